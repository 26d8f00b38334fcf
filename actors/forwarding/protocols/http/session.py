"""The conversation on one client connection, without sockets: a sequence of exchanges, perhaps ending in a tunnel.

========== ============================================ ===================================================
phase      waits for                                    and then
========== ============================================ ===================================================
IDLE       the first byte of a head                     HEAD; the end of the connection is fine here
HEAD       the rest of the head                         AUTHORIZE or OPEN; 400, 408, 431 and close
AUTHORIZE  `authorized`                                 OPEN, or 407
OPEN       `opened`, `failed`                           EXCHANGE, TUNNEL; or an error answer
EXCHANGE   the answer, and meanwhile the rest of the    IDLE when both sides may go on, else CLOSED;
           request's body                               TUNNEL after 101; OPEN again when a reused
                                                        connection was dead
TUNNEL     nothing: the driver joins both sides         (for good)
CLOSED     nothing                                      (for good)
========== ============================================ ===================================================

Every input takes the time and gives a list of commands. `deadline` is when `timed_out` is to be called, and
`reads_client`, `reads_origin` say whether bytes of that side are wanted now: back-pressure is the answer no.
"""

from __future__ import annotations

from actors.forwarding.protocols import failures
from actors.forwarding.protocols.commands import (
    Authorize,
    CloseClient,
    Command,
    LeaveOrigin,
    Open,
    Report,
    ToClient,
    ToOrigin,
    Tunnel,
)
from actors.forwarding.protocols.failures import Failure, ParentRefusesUs, Refused, error_response
from actors.forwarding.protocols.http.basic_auth import read_basic
from actors.forwarding.protocols.http.conversation import Conversation, Phase
from actors.forwarding.protocols.http.date_header import dated
from actors.forwarding.protocols.http.exchange import Exchange, Stage
from actors.forwarding.protocols.http.head_cache import request_head
from actors.forwarding.protocols.http.head_parser import RequestHead, find_end
from actors.forwarding.protocols.http.head_rewriting import ESTABLISHED, FINAL_RECIPIENT, NOT_TRACED
from actors.forwarding.protocols.http.via import passed_here

EMPTY_LINES_MAX = 8
"""Empty lines before a request that are ignored (RFC 9112 2.2): old clients end a body with one that isn't counted."""


class HttpSession(Conversation):
    """One client connection. Not to be used after `CloseClient` or `Tunnel` came out."""

    __slots__ = ()

    # --- the client ---

    def receive_from_client(self, data: bytes, now: float) -> list[Command]:
        """Bytes of the client; `b""` for the end of what it sends."""
        out: list[Command] = []
        exchange = self._exchange
        if not data:
            self._end_of_client(out, now)
        elif self.phase is Phase.EXCHANGE and exchange is not None and exchange.request_body is not None:
            self._request_content(exchange, data, out, now)
        else:
            self._hold(data)
            if self.phase is Phase.IDLE or self.phase is Phase.HEAD:
                self._next_head(out, now)
        return out

    def client_disconnected(self, now: float) -> list[Command]:
        """The client's connection broke; nothing can be said to it any more."""
        if self.phase in (Phase.IDLE, Phase.HEAD, Phase.CLOSED):
            self.phase = Phase.CLOSED
            return [CloseClient(abort=True)]
        return self.abort("connection_terminated", now)

    def _next_head(self, out: list[Command], now: float) -> None:
        """Begin an exchange when a whole head is there."""
        if self.phase is Phase.IDLE:
            while self._empty_lines < EMPTY_LINES_MAX and self._in.startswith(b"\r\n"):
                self._empty_lines += 1
                self._take(2)
            if not self._in or self._in == b"\r":
                return
            self.phase = Phase.HEAD
            self._empty_lines = 0
            self._exchange = None
            self._started = now
            self.deadline = now + self._policy.handshake_timeout
            self._searched = self._head_size = 0
        try:
            end = find_end(self._in, self._searched)
            if end < 0:
                self._searched = len(self._in)
                return
            self._head_size = end
            head = request_head(self._take(end))
            self._begin(Exchange(head, self._policy.via, self._started, end), out, now)
        except Refused as refused:
            self._refuse(refused.failure, out, now)

    def _begin(self, exchange: Exchange, out: list[Command], now: float) -> None:
        self._exchange = exchange
        self._has_request = True
        fields = exchange.head.fields
        if passed_here(fields.via, self._policy.pseudonym):
            raise Refused(failures.LOOP_DETECTED)
        self.phase = Phase.AUTHORIZE
        self.deadline = now + self._policy.timeout
        policy = self._policy
        if policy.wants_credentials or (policy.hears_users and fields.credentials is not None):
            out.append(Authorize(*(read_basic(fields.credentials) or (None, None))))
        else:
            self._open(exchange, out, now)

    def _request_content(self, exchange: Exchange, data: bytes, out: list[Command], now: float) -> None:
        self.deadline = now + self._policy.timeout
        try:
            rest = exchange.request_content(data, out)
        except Refused as refused:
            self._broken(refused.failure, out, now)
            return
        if rest:
            self._hold(rest)
        exchange.relay_request(out)

    def request_relayed(self, count: int, now: float, ended: bool) -> list[Command]:
        """The driver has moved `count` bytes of the request's body; `ended`: the client's side ended before."""
        self._must().request_relayed(count)
        self.deadline = now + self._policy.timeout
        if ended and self._must().request_body is not None:
            return self.abort("http_request_error", now)
        return []

    def _end_of_client(self, out: list[Command], now: float) -> None:
        self._client_ended = True
        if self.phase in (Phase.IDLE, Phase.HEAD):
            self.phase = Phase.CLOSED
            out.append(CloseClient())
        elif self.phase is Phase.EXCHANGE and self._must().request_body is not None:
            out.extend(self.abort("http_request_error", now))

    # --- answers of the driver ---

    def authorized(self, user: str | None, now: float) -> list[Command]:
        """The credentials are those of `user`; None: they are not good."""
        out: list[Command] = []
        exchange = self._must()
        if user is None:
            tried = read_basic(exchange.head.fields.credentials)
            exchange.user = "" if tried is None else tried[0]
            self._refuse(failures.CREDENTIALS_WANTED if tried is None else failures.CREDENTIALS_WRONG, out, now)
        else:
            exchange.user = user
            self._open(exchange, out, now)
        return out

    def _open(self, exchange: Exchange, out: list[Command], now: float) -> None:
        head = exchange.head
        if head.fields.max_forwards == 0 and head.method in (b"OPTIONS", b"TRACE"):
            self._answer_as_recipient(exchange, out, now)  # RFC 9110 7.6.2
            return
        self.phase = Phase.OPEN
        out.append(Open(exchange.target, not exchange.retriable, False, not exchange.is_connect, head.fields.via))

    def _answer_as_recipient(self, exchange: Exchange, out: list[Command], now: float) -> None:
        """OPTIONS and TRACE that end at this proxy."""
        trace = exchange.head.method == b"TRACE"
        exchange.say(dated(NOT_TRACED if trace else FINAL_RECIPIENT, self._policy.date(now)), out)
        out.append(exchange.report(405 if trace else 200, "", now))
        if self.phase is Phase.OPEN:
            out.append(LeaveOrigin(reusable=True))
        self.phase = Phase.CLOSED
        out.append(CloseClient())

    def opened(
        self, reused: bool, now: float, _address: tuple[str, int] | None = None, hop: bytes | None = None
    ) -> list[Command]:
        """The connection to the origin is there."""
        exchange = self._must()
        out: list[Command] = []
        self.deadline = now + self._policy.timeout
        if exchange.is_connect:
            exchange.say(dated(ESTABLISHED, self._policy.date(now)), out)
            self._tunnel(exchange, out, now)
            return out
        if hop and exchange.head.method == b"TRACE":
            self._answer_as_recipient(exchange, out, now)  # an echo would show our credentials to the client
            return out
        self.phase = Phase.EXCHANGE
        exchange.begin(reused, out, hop)
        if exchange.request_body is not None:
            held, self._in = bytes(self._in), b""
            if held:
                self._request_content(exchange, held, out, now)
            else:
                exchange.relay_request(out)
            if exchange.request_body is not None and self._client_ended:
                return self.abort("http_request_error", now)
        return out

    def failed(self, failure: Failure, now: float) -> list[Command]:
        """There is no connection to the origin."""
        out: list[Command] = []
        self._refuse(failure, out, now)
        return out

    def _tunnel(self, exchange: Exchange, out: list[Command], now: float) -> None:
        """Hand what the client has sent already to the origin, once, and let go."""
        self.phase = Phase.TUNNEL
        exchange.answered = now
        if self._in:
            early, self._in = bytes(self._in), b""
            exchange.bytes_in += len(early)
            out.append(ToOrigin(early))
        report = exchange.report(200, "", now)
        # one b"CONNECT" for all tunnels, since each keeps its report for as long as it lives
        out.append(Tunnel(report._replace(method=b"CONNECT") if exchange.is_connect else report))
        self._exchange = None

    # --- the origin ---

    def receive_from_origin(self, data: bytes, now: float) -> list[Command]:
        """Bytes of the origin; `b""` for the end of what it sends."""
        out: list[Command] = []
        exchange = self._must()
        self.deadline = now + self._policy.timeout
        try:
            if data:
                exchange.receive(data, now, self._may_persist(exchange.head), out)
                self._after_answer(exchange, out, now)
            else:
                self._end_of_origin(exchange, out, now)
        except ParentRefusesUs as refused:
            self._ask_another_parent(exchange, refused, out, now)
        except Refused as refused:
            self._broken(refused.failure, out, now)
        return out

    def _ask_another_parent(self, exchange: Exchange, refused: Refused, out: list[Command], now: float) -> None:
        if exchange.try_another_parent():
            self._open_fresh(exchange, out)
        else:
            self._broken(refused.failure, out, now)

    def _open_fresh(self, exchange: Exchange, out: list[Command]) -> None:
        """Another connection for the same request."""
        self.phase = Phase.OPEN
        via = exchange.head.fields.via
        out.extend((LeaveOrigin(reusable=False), Open(exchange.target, fresh=True, forward=True, via=via)))

    def origin_disconnected(self, now: float) -> list[Command]:
        """The origin's connection broke: an answer that would end with it has not ended well."""
        exchange = self._must()
        if exchange.stage is Stage.BODY:
            return self.abort("http_response_incomplete", now)
        out: list[Command] = []
        self._end_of_origin(exchange, out, now)
        return out

    def response_relayed(self, count: int, now: float, ended: bool) -> list[Command]:
        """The driver has moved `count` bytes of the answer's body; `ended`: the origin's side ended then."""
        out: list[Command] = []
        exchange = self._must()
        exchange.relayed(count)
        self.deadline = now + self._policy.timeout
        if ended and exchange.stage is not Stage.COMPLETE:
            self._end_of_origin(exchange, out, now)
        else:
            self._after_answer(exchange, out, now)
        return out

    def _after_answer(self, exchange: Exchange, out: list[Command], now: float) -> None:
        """Go on when the answer is complete or has become a tunnel."""
        if exchange.stage is Stage.COMPLETE:
            self._finish(exchange, out, now)
        elif exchange.stage is Stage.SWITCHED:
            self._tunnel(exchange, out, now)

    def _end_of_origin(self, exchange: Exchange, out: list[Command], now: float) -> None:
        if exchange.untouched:
            self._open_fresh(exchange, out)
        elif exchange.stage is Stage.AWAITED:
            self._broken(failures.connection_lost("the origin closed without an answer"), out, now)
        elif exchange.origin_ended():
            self._finish(exchange, out, now)
        else:
            out.extend(self.abort("http_response_incomplete", now))

    def _finish(self, exchange: Exchange, out: list[Command], now: float) -> None:
        out.append(exchange.report(0, "", now))
        out.append(LeaveOrigin(exchange.origin_persists, exchange.authenticates_connection))
        if exchange.persists and not self._client_ended and self._keeps_alive:
            self._await_next(out, now)
        else:
            self.phase = Phase.CLOSED
            out.append(CloseClient())

    def _await_next(self, out: list[Command], now: float) -> None:
        self.phase = Phase.IDLE
        self._exchange = None
        self.deadline = now + self._policy.keep_alive_timeout
        if self._in:
            self._next_head(out, now)

    def _may_persist(self, head: RequestHead) -> bool:
        """May the client's connection go on after this exchange?

        Never with HTTP/1.0, whatever it asks for: another proxy before this one may have passed on a `keep-alive` that
        it doesn't understand, and would wait for the end of the connection (RFC 9112 9.3 and C.2.2).
        """
        fields = head.fields
        return self._keeps_alive and head.minor == 1 and not fields.close and not self._client_ended

    # --- ends ---

    def timed_out(self, now: float) -> list[Command]:
        """`deadline` has passed."""
        out: list[Command] = []
        phase, exchange = self.phase, self._exchange
        if phase is Phase.IDLE:
            self.phase = Phase.CLOSED
            out.append(CloseClient())
        elif phase is Phase.HEAD:
            self._refuse(Failure(408, "http_request_error", "the head did not come in time", close=True), out, now)
        elif exchange is not None and exchange.answer is not None:
            out.extend(self.abort("connection_read_timeout", now))
        elif phase is Phase.EXCHANGE:
            self._broken(failures.answer_timed_out(), out, now)
        elif phase in (Phase.AUTHORIZE, Phase.OPEN):
            self._refuse(failures.connection_timed_out("the origin could not be reached in time"), out, now)
        return out

    def abort(self, reason: str, now: float) -> list[Command]:
        """What was begun can't be completed: cut both sides, so that nobody takes the part for the whole."""
        if self.phase is Phase.CLOSED:
            return []
        self.phase = Phase.CLOSED
        told: list[Command] = [] if self._exchange is None else [self._exchange.report(502, reason, now)]
        return [*told, LeaveOrigin(reusable=False), CloseClient(abort=True)]

    def _broken(self, failure: Failure, out: list[Command], now: float) -> None:
        """One of the two sides broke the rules, or fell silent: say so if that is still possible."""
        if self._must().answer is not None:
            out.extend(self.abort(failure.reason, now))
            return
        out.append(LeaveOrigin(reusable=False))
        self._refuse(failure, out, now)

    def _refuse(self, failure: Failure, out: list[Command], now: float) -> None:
        """Answer with an error of our own; go on when nothing of the request is left unread."""
        exchange = self._exchange
        if exchange is None:
            reply = dated(error_response(failure, keep_alive=False), self._policy.date(now))
            size = self._head_size or len(self._in)
            report = Report(b"", "", failure.status, failure.reason, "", self._started, now, size, len(reply))
            out.extend((ToClient(reply), report.because(failure), CloseClient()))
            self.phase = Phase.CLOSED
            return
        persists = not failure.close and exchange.request_body is None and not exchange.is_connect
        # Requests that wait behind this one are not served: to refuse them all takes more room than they do.
        persists = persists and not self._in and self._may_persist(exchange.head)
        exchange.answered = now
        with_body = exchange.head.method != b"HEAD"
        reply = error_response(failure, keep_alive=persists, with_body=with_body)
        exchange.say(dated(reply, self._policy.date(now)), out)
        out.append(exchange.report(failure.status, failure.reason, now).because(failure))
        if persists:
            self._await_next(out, now)
        else:
            self.phase = Phase.CLOSED
            out.append(CloseClient())

    def _must(self) -> Exchange:
        assert self._exchange is not None
        return self._exchange

    def __repr__(self) -> str:
        return f"<HttpSession {self.phase.value}, {len(self._in)} bytes held, {self._exchange!r}>"
