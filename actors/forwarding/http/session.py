"""The conversation on one client connection, without sockets: a sequence of exchanges, perhaps ending in a tunnel.

========== ============================================ ===================================================
phase      waits for                                    and then
========== ============================================ ===================================================
IDLE       the first byte of a head                     HEAD; the end of the connection is fine here
HEAD       the rest of the head                         AUTHORIZE or OPEN; 400, 431 and close
AUTHORIZE  `authorized`                                 OPEN, or 407
OPEN       `opened`, `failed`                           EXCHANGE, TUNNEL; or an error answer
EXCHANGE   the answer's head and body, and meanwhile    IDLE when both sides may go on, else CLOSED
           the request's body
TUNNEL     nothing: the driver joins both sides         (for good)
CLOSED     nothing                                      (for good)
========== ============================================ ===================================================

Every input takes the time and gives a list of commands. `deadline` is when `timed_out` is to be called, and
`reads_client`, `reads_origin` say whether bytes of that side are wanted now: back-pressure is the answer no.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from actors.forwarding import errors
from actors.forwarding.commands import (
    Authorize,
    CloseClient,
    Command,
    LeaveOrigin,
    Open,
    RelayToClient,
    RelayToOrigin,
    Report,
    ToClient,
    ToOrigin,
    Tunnel,
)
from actors.forwarding.errors import Failure, Refused, error_response
from actors.forwarding.http.bodies import LAST_CHUNK, Body, Chunked, Counted, UntilClose, chunk
from actors.forwarding.http.fields import ESTABLISHED, answer_to_client, passed_here, request_to_origin
from actors.forwarding.http.heads import HEAD_MAX, AnswerHead, RequestHead, find_end, parse_answer, parse_request
from actors.forwarding.http.targets import Authority, parse_absolute, parse_authority

RELAY_MIN: Final = 128 * 1024
"""Bytes of a counted body still to come from which on the kernel moves them; below, two system calls less win."""

INTERIM_MAX: Final = 16
"""1xx answers to one request; more is a flood."""

_RETRIABLE = frozenset((b"GET", b"HEAD", b"OPTIONS", b"TRACE", b"PUT", b"DELETE"))
"""Idempotent methods (RFC 9110 9.2.2): sent again when a reused connection turns out to be dead."""


class Phase(Enum):
    """Where the conversation is; the table is in the module's docstring."""

    IDLE = "idle"
    HEAD = "head"
    AUTHORIZE = "authorize"
    OPEN = "open"
    EXCHANGE = "exchange"
    TUNNEL = "tunnel"
    CLOSED = "closed"


@dataclass(slots=True)
class Policy:
    """What the configuration says to a session. Shared by all sessions of a proxy; times are seconds."""

    keep_alive: bool = True
    wants_credentials: bool = False
    timeout: float = 30.0
    handshake_timeout: float = 10.0
    keep_alive_timeout: float = 60.0
    own_via: bytes = errors.PROXY_NAME.encode()


class HttpSession:
    """One client connection. Not to be used after `CloseClient` or `Tunnel` came out."""

    __slots__ = (
        "_answer",
        "_answer_body",
        "_answer_in",
        "_answer_seen",
        "_answered",
        "_bytes_in",
        "_bytes_out",
        "_client_ended",
        "_head",
        "_in",
        "_interim",
        "_origin_head",
        "_path",
        "_persists",
        "_policy",
        "_recoded",
        "_relaying",
        "_request_body",
        "_reused",
        "_searched",
        "_started",
        "_target",
        "_user",
        "deadline",
        "phase",
    )

    def __init__(self, policy: Policy, now: float) -> None:
        self._policy = policy
        self.phase = Phase.IDLE
        self.deadline = now + policy.handshake_timeout
        self._in: bytes | bytearray = b""
        self._searched = 0
        self._client_ended = False
        self._clear()

    def _clear(self) -> None:
        """Forget the last exchange."""
        self._head: RequestHead | None = None
        self._target: Authority | None = None
        self._path = b""
        self._request_body: Body | None = None
        self._answer: AnswerHead | None = None
        self._answer_body: Body | None = None
        self._answer_in: bytes = b""
        self._answer_seen = 0
        self._recoded = False
        self._relaying = False
        self._persists = False
        self._reused = False
        self._interim = 0
        self._origin_head = b""
        self._user = ""
        self._started = 0.0
        self._answered = 0.0
        self._bytes_in = 0
        self._bytes_out = 0

    # --- readiness ---

    @property
    def reads_client(self) -> bool:
        """Are bytes of the client wanted now?"""
        if self.phase is Phase.EXCHANGE and self._request_body is not None:
            return not self._relaying
        return self.phase is not Phase.CLOSED and not self._client_ended and len(self._in) < HEAD_MAX

    @property
    def idle(self) -> bool:
        """Is nothing under way?"""
        return self.phase is Phase.IDLE

    def last_exchange(self) -> None:
        """Let the client's connection end with the exchange that is under way."""
        self._policy = replace(self._policy, keep_alive=False)

    # --- the client's bytes ---

    def receive_from_client(self, data: bytes, now: float) -> list[Command]:
        """Bytes of the client; `b""` for the end of what it sends."""
        out: list[Command] = []
        if not data:
            self._end_of_client(out, now)
        elif self.phase is Phase.EXCHANGE and self._request_body is not None:
            self._request_content(data, out, now)
        else:
            self._in = (
                data if not self._in else bytearray(self._in) + data if isinstance(self._in, bytes) else self._in + data
            )
            if self.phase is Phase.IDLE or self.phase is Phase.HEAD:
                self._next_head(out, now)
        return out

    def _next_head(self, out: list[Command], now: float) -> None:
        """Begin an exchange when a whole head is there."""
        if self.phase is Phase.IDLE:
            if self._in.startswith(b"\r\n"):  # RFC 9112 2.2: an empty line before the request line is ignored
                self._in = self._in[2:]
            if not self._in:
                return
            self._clear()
            self.phase = Phase.HEAD
            self._started = now
            self.deadline = now + self._policy.handshake_timeout
            self._searched = 0
        try:
            end = find_end(self._in, self._searched)
            if end < 0:
                self._searched = len(self._in)
                return
            head = parse_request(bytes(self._in[:end]))
            self._in = self._in[end:]
            self._bytes_in = end
            self._take_request(head, out, now)
        except Refused as refused:
            self._refuse(refused.failure, out, now)

    def _take_request(self, head: RequestHead, out: list[Command], now: float) -> None:
        self._head = head
        fields = head.fields
        if head.method == b"CONNECT":
            self._target = parse_authority(head.target, None)
            if fields.chunked or fields.length:
                raise errors.malformed("CONNECT has no body")
        else:
            self._target, self._path = parse_absolute(head.target)
            if fields.chunked:
                self._request_body = Chunked()
            elif fields.length:
                self._request_body = Counted(fields.length)
        if passed_here(fields.via, self._policy.own_via):
            raise Refused(errors.LOOP_DETECTED)
        self.phase = Phase.AUTHORIZE
        self.deadline = now + self._policy.timeout
        if self._policy.wants_credentials:
            out.append(Authorize(fields.credentials))
        else:
            self._open(out, now)

    # --- answers of the driver ---

    def authorized(self, user: str | None, now: float) -> list[Command]:
        """The credentials are those of `user`; None: they are not good."""
        out: list[Command] = []
        if user is None:
            self._refuse(errors.CREDENTIALS_WANTED, out, now)
        else:
            self._user = user
            self._open(out, now)
        return out

    def _open(self, out: list[Command], now: float) -> None:
        head, target = self._must_head(), self._must_target()
        if head.fields.max_forwards == 0 and head.method in (b"OPTIONS", b"TRACE"):
            self._answer_itself(out, now)
            return
        self.phase = Phase.OPEN
        retriable = self._request_body is None and head.method in _RETRIABLE and not head.fields.expects
        out.append(Open(target, fresh=not retriable))

    def opened(self, reused: bool, now: float) -> list[Command]:
        """The connection to the origin is there."""
        head = self._must_head()
        self.deadline = now + self._policy.timeout
        if head.method == b"CONNECT":
            return self._begin_tunnel(ESTABLISHED, now)
        self.phase = Phase.EXCHANGE
        self._reused = reused
        self._answer_in = b""
        wants_upgrade = head.fields.wants_upgrade and head.minor == 1
        if not self._origin_head:
            self._origin_head = request_to_origin(head, self._must_target(), self._path, upgrade=wants_upgrade)
        out: list[Command] = [ToOrigin(self._origin_head)]
        if self._in and self._request_body is not None:
            data, self._in = bytes(self._in), b""
            self._request_content(data, out, now)
            if self._request_body is not None and self._client_ended:
                return self.abandon("http_request_error", now)
        elif self._request_body is not None and self._client_ended:
            return self.abandon("http_request_error", now)
        elif self._request_body is not None:
            self._relay_request(out)
        return out

    def failed(self, failure: Failure, now: float) -> list[Command]:
        """There is no connection to the origin."""
        out: list[Command] = []
        self._refuse(failure, out, now)
        return out

    # --- the request's body ---

    def _request_content(self, data: bytes, out: list[Command], now: float) -> None:
        body = self._request_body
        assert body is not None
        self.deadline = now + self._policy.timeout
        try:
            content, rest = body.feed(data)
        except Refused as refused:
            out.append(LeaveOrigin(reusable=False))
            self._refuse(refused.failure, out, now)
            return
        self._bytes_in += len(data) - len(rest)
        coded = content if isinstance(body, Counted) else chunk(content)
        if body.complete:
            self._request_body = None
            coded += b"" if isinstance(body, Counted) else LAST_CHUNK
            self._in = rest
        if coded:
            out.append(ToOrigin(coded))
        if self._request_body is not None:
            self._relay_request(out)

    def _relay_request(self, out: list[Command]) -> None:
        """Let the kernel move the rest of a long counted body."""
        body = self._request_body
        if isinstance(body, Counted) and body.remaining >= RELAY_MIN and not self._relaying:
            self._relaying = True
            out.append(RelayToOrigin(body.remaining))

    def request_relayed(self, count: int, now: float, ended: bool) -> list[Command]:
        """The driver has moved `count` bytes of the request's body; `ended`: the client's side ended before."""
        body = self._request_body
        assert isinstance(body, Counted)
        body.remaining -= count
        self._bytes_in += count
        self._relaying = False
        self.deadline = now + self._policy.timeout
        if body.complete:
            self._request_body = None
            return []
        return self.abandon("http_request_error", now) if ended else []

    def _end_of_client(self, out: list[Command], now: float) -> None:
        self._client_ended = True
        if self.phase in (Phase.IDLE, Phase.HEAD):
            self.phase = Phase.CLOSED
            out.append(CloseClient())
        elif self._request_body is not None and self.phase is Phase.EXCHANGE:
            out.extend(self.abandon("http_request_error", now))

    # --- the origin's bytes ---

    @property
    def reads_origin(self) -> bool:
        """Are bytes of the origin wanted now?"""
        return self.phase is Phase.EXCHANGE

    def receive_from_origin(self, data: bytes, now: float) -> list[Command]:
        """Bytes of the origin; `b""` for the end of what it sends."""
        out: list[Command] = []
        self.deadline = now + self._policy.timeout
        try:
            if not data:
                self._end_of_origin(out, now)
            elif self._answer_body is not None:
                self._answer_content(data, out, now)
            else:
                self._answer_heads(data, out, now)
        except Refused as refused:
            self._answer_is_bad(refused.failure, out, now)
        return out

    def origin_lost(self, now: float) -> list[Command]:
        """The origin's connection broke (reset, no way to send)."""
        return self.receive_from_origin(b"", now)

    def _answer_heads(self, data: bytes, out: list[Command], now: float) -> None:
        """Take the heads that are there: interim ones pass, the final one begins the body."""
        if self._answer_in:
            data = self._answer_in + data
        while True:
            try:
                end = find_end(data, self._answer_seen)
            except Refused as refused:
                raise errors.bad_answer(refused.failure.detail) from None
            if end < 0:
                self._answer_in = data
                self._answer_seen = len(data)
                return
            answer = parse_answer(data[:end])
            data = data[end:]
            self._answer_seen = 0
            self._answer_in = b""
            if answer.status >= 200:
                self._begin_answer(answer, data, out, now)
                return
            if answer.status == 101:
                self._switch(answer, data, out, now)
                return
            self._pass_interim(answer, out)
            if not data:
                return

    def _pass_interim(self, answer: AnswerHead, out: list[Command]) -> None:
        self._interim += 1
        if self._interim > INTERIM_MAX:
            raise errors.bad_answer("the origin floods with interim answers")
        if self._must_head().minor:  # RFC 9110 15.2: none of them to an HTTP/1.0 client
            self._say(answer_to_client(answer, chunked=False, connection=None), out)

    def _switch(self, answer: AnswerHead, data: bytes, out: list[Command], now: float) -> None:
        """101: what follows is another protocol, joined byte for byte."""
        head = self._must_head()
        if not (head.fields.wants_upgrade and head.fields.upgrade and answer.fields.upgrade) or head.minor == 0:
            raise errors.bad_answer("the origin switches protocols though nobody asked")
        if self._request_body is not None:
            raise errors.bad_answer("the origin switches protocols before it has the request")
        self._answer = answer
        reply = answer_to_client(answer, chunked=False, connection=b"upgrade") + data
        out.extend(self._begin_tunnel(reply, now))

    def _begin_tunnel(self, reply: bytes, now: float) -> list[Command]:
        """Tell the client, hand what it has sent already to the origin once, and let go."""
        self.phase = Phase.TUNNEL
        self._answered = now
        out: list[Command] = [ToClient(reply)]
        self._bytes_out += len(reply)
        if self._in:
            early, self._in = bytes(self._in), b""
            self._bytes_in += len(early)
            out.append(ToOrigin(early))
        status = self._answer.status if self._answer else 200
        out.append(Tunnel(self._report(status, "", now)))
        return out

    def _begin_answer(self, answer: AnswerHead, data: bytes, out: list[Command], now: float) -> None:
        head = self._must_head()
        self._answer = answer
        self._answered = now
        body = self._body_of(answer, head)
        until_close = isinstance(body, UntilClose)
        self._recoded = isinstance(body, Chunked) and head.minor == 1
        delimited = not until_close and (self._recoded or not isinstance(body, Chunked))
        self._persists = delimited and self._client_persists(head)
        connection = None if self._persists and head.minor else b"keep-alive" if self._persists else b"close"
        start = answer_to_client(answer, chunked=answer.fields.chunked and head.minor == 1, connection=connection)
        if body is None:
            self._say(start, out)
            self._finish(data, out, now)
            return
        self._answer_body = body
        self._answer_content(data, out, now, start)

    def _client_persists(self, head: RequestHead) -> bool:
        """May the client's connection go on after this exchange (RFC 9112 9.3)?"""
        policy, fields = self._policy, head.fields
        if not policy.keep_alive or fields.close or self._request_body is not None:
            return False
        return not self._client_ended and (head.minor == 1 or fields.keep_alive)

    def _body_of(self, answer: AnswerHead, head: RequestHead) -> Body | None:
        """The answer's body (RFC 9112 6.3); None when it has none."""
        if head.method == b"HEAD" or answer.status in (204, 304):
            return None
        if answer.fields.chunked:
            return Chunked()
        length = answer.fields.length
        if length is None:
            return UntilClose()
        return Counted(length) if length else None

    def _answer_content(self, data: bytes, out: list[Command], now: float, start: bytes = b"") -> None:
        body = self._answer_body
        assert body is not None
        rest = b""
        if data:
            content, rest = body.feed(data)
            start += chunk(content) if self._recoded else content
        if body.complete:
            if self._recoded:
                start += LAST_CHUNK
            self._say(start, out)
            self._finish(rest, out, now)
            return
        self._say(start, out)
        if isinstance(body, UntilClose):
            out.append(RelayToClient(None))
        elif isinstance(body, Counted) and body.remaining >= RELAY_MIN:
            out.append(RelayToClient(body.remaining))

    def answer_relayed(self, count: int, now: float, ended: bool) -> list[Command]:
        """The driver has moved `count` bytes of the answer's body; `ended`: the origin's side ended then."""
        out: list[Command] = []
        self._bytes_out += count
        self.deadline = now + self._policy.timeout
        body = self._answer_body
        if isinstance(body, Counted):
            body.remaining -= count
            if body.complete:
                self._finish(b"", out, now)
                return out
        if ended:
            self._end_of_origin(out, now)
        return out

    def _end_of_origin(self, out: list[Command], now: float) -> None:
        if self._answer is None and self._reused and not self._answer_in and not self._interim:
            self._reused = False
            self.phase = Phase.OPEN
            out.extend((LeaveOrigin(reusable=False), Open(self._must_target(), fresh=True)))
        elif self._answer is None:
            out.append(LeaveOrigin(reusable=False))
            self._refuse(errors.connection_lost("the origin closed without an answer"), out, now)
        elif isinstance(self._answer_body, UntilClose):
            self._finish(b"", out, now)
        else:
            out.extend(self.abandon("http_response_incomplete", now))

    def _finish(self, rest: bytes, out: list[Command], now: float) -> None:
        """The answer is complete. `rest` is what came behind it: more than was asked for, so that way is closed."""
        answer = self._answer
        assert answer is not None
        out.append(self._report(answer.status, "", now))
        origin_persists = answer.fields.keep_alive if answer.minor == 0 else not answer.fields.close
        reusable = origin_persists and not rest and self._request_body is None
        reusable = reusable and not isinstance(self._answer_body, UntilClose)
        out.append(LeaveOrigin(reusable))
        if self._persists and self._request_body is None and not self._client_ended:
            self._await_next(out, now)
        else:
            self.phase = Phase.CLOSED
            out.append(CloseClient())

    def _await_next(self, out: list[Command], now: float) -> None:
        self.phase = Phase.IDLE
        self._answer_body = None
        self.deadline = now + self._policy.keep_alive_timeout
        if self._in:
            self._next_head(out, now)

    # --- ends ---

    def timed_out(self, now: float) -> list[Command]:
        """`deadline` has passed."""
        out: list[Command] = []
        if self.phase is Phase.IDLE or (self.phase is Phase.HEAD and not self._in):
            self.phase = Phase.CLOSED
            out.append(CloseClient())
        elif self.phase is Phase.HEAD:
            self._refuse(Failure(408, "http_request_error", "the head did not come in time", close=True), out, now)
        elif self._answer is not None:
            out.extend(self.abandon("connection_read_timeout", now))
        elif self.phase is Phase.EXCHANGE:
            out.append(LeaveOrigin(reusable=False))
            self._refuse(errors.answer_timed_out(), out, now)
        elif self.phase in (Phase.AUTHORIZE, Phase.OPEN):
            self._refuse(errors.connection_timed_out("the origin could not be reached in time"), out, now)
        return out

    def client_lost(self, now: float) -> list[Command]:
        """The client's connection broke; nothing can be said to it any more."""
        if self.phase in (Phase.IDLE, Phase.HEAD, Phase.CLOSED):
            self.phase = Phase.CLOSED
            return [CloseClient(abort=True)]
        return self.abandon("connection_terminated", now)

    def abandon(self, reason: str, now: float) -> list[Command]:
        """What was begun can't be completed: cut both sides, so that nobody takes the part for the whole."""
        status = self._answer.status if self._answer else 502
        self.phase = Phase.CLOSED
        return [self._report(status, reason, now), LeaveOrigin(reusable=False), CloseClient(abort=True)]

    def _answer_is_bad(self, failure: Failure, out: list[Command], now: float) -> None:
        if self._answer is not None:
            out.extend(self.abandon(failure.kind, now))
            return
        out.append(LeaveOrigin(reusable=False))
        self._refuse(failure, out, now)

    def _refuse(self, failure: Failure, out: list[Command], now: float) -> None:
        """Answer with an error of our own; go on when nothing of the request is left unread."""
        head = self._head
        persists = head is not None and not failure.close and self._request_body is None and self._client_persists(head)
        persists = persists and (head is not None and head.method != b"CONNECT")
        self._answered = now
        with_body = head is None or head.method != b"HEAD"
        self._say(error_response(failure, keep_alive=persists, with_body=with_body), out)
        out.append(self._report(failure.status, failure.kind, now))
        if persists:
            self._await_next(out, now)
        else:
            self.phase = Phase.CLOSED
            out.append(CloseClient())

    def _answer_itself(self, out: list[Command], now: float) -> None:
        """Max-Forwards 0: this proxy is the final recipient (RFC 9110 7.6.2)."""
        self._answered = now
        self._say(
            b"HTTP/1.1 200 OK\r\nAllow: GET, HEAD, POST, PUT, DELETE, OPTIONS, CONNECT\r\n"
            b"Content-Length: 0\r\nConnection: close\r\n\r\n",
            out,
        )
        out.extend((self._report(200, "", now), CloseClient()))
        self.phase = Phase.CLOSED

    def _say(self, data: bytes, out: list[Command]) -> None:
        if data:
            self._bytes_out += len(data)
            out.append(ToClient(data))

    def _report(self, status: int, reason: str, now: float) -> Report:
        head = self._head
        if head is None:
            return Report(
                b"", "", status, reason, "", self._started, now, self._bytes_in or len(self._in), self._bytes_out
            )
        url = head.target.decode("latin-1")
        return Report(
            head.method, url, status, reason, self._user, self._started, self._answered, self._bytes_in, self._bytes_out
        )

    def _must_head(self) -> RequestHead:
        assert self._head is not None
        return self._head

    def _must_target(self) -> Authority:
        assert self._target is not None
        return self._target

    def __repr__(self) -> str:
        return f"<HttpSession {self.phase.value}, {len(self._in)} bytes held, answer {self._answer_body!r}>"
