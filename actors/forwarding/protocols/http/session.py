"""The session on one client connection that speaks HTTP, without sockets: a sequence of exchanges, perhaps a tunnel.

`states` has the table that it runs on: every input, and what the session concludes from it, is an event of the table,
and nothing else changes the phase.

Credentials in `Proxy-Authorization`: `Basic` (RFC 7617), and `Bearer` (RFC 6750) for the secret of a credential.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from typing import Final

from actors.forwarding.protocols import failures
from actors.forwarding.protocols.commands import (
    PREFIX,
    Again,
    Authorize,
    Command,
    LeaveOrigin,
    Open,
    Tunnel,
    masked,
)
from actors.forwarding.protocols.failures import AskAnotherUpstream, Failure, Refused, UpstreamRefusesUs
from actors.forwarding.protocols.http.error_body import ESTABLISHED, dated
from actors.forwarding.protocols.http.exchange import Exchange
from actors.forwarding.protocols.http.head_cache import request_head
from actors.forwarding.protocols.http.head_parser import HEAD_MAX, RequestHead
from actors.forwarding.protocols.http.header_changes import passed_here
from actors.forwarding.protocols.http.session_ends import NO_EXCHANGE, SessionEnds
from actors.forwarding.protocols.http.states import (
    AUTHORIZE,
    AWAITED,
    BODY,
    CLOSED,
    COMPLETE,
    EXCHANGE,
    HEAD,
    IDLE,
    OPEN,
    SWITCHED,
    TRANSITIONS,
    HttpEvent,
)
from actors.forwarding.protocols.session import SessionConfig

_BASIC = re.compile(rb"[Bb][Aa][Ss][Ii][Cc] +([A-Za-z0-9+/]+={0,2})")
_BEARER = re.compile(rb"[Bb][Ee][Aa][Rr][Ee][Rr] +(pfc_[0-9A-Za-z]+)")


def read_credentials(value: bytes | None) -> tuple[str, bytes] | None:
    """User and password, or None when there are none. With `Bearer` the user is empty and the password a secret."""
    found = read_basic(value)
    if found is not None or value is None:
        return found
    bearer = _BEARER.fullmatch(value)
    return None if bearer is None else ("", bearer[1])


def read_basic(value: bytes | None) -> tuple[str, bytes] | None:
    """User and password of a `Basic` value, or None when it isn't one. Only beside a secret the user may be empty."""
    match = _BASIC.fullmatch(value) if value is not None else None
    if match is None:
        return None
    try:
        decoded = base64.b64decode(match[1], validate=True)
    except binascii.Error:
        return None
    user, colon, password = decoded.partition(b":")
    if not colon or not (user or password.startswith(PREFIX)):
        return None
    return user.decode("utf-8", "replace"), password


# The events of each request; through the class they cost more than the look-up (see `state_machine`).
_CLIENT_DATA: Final[HttpEvent] = HttpEvent.CLIENT_DATA
_HEAD_BEGINS: Final[HttpEvent] = HttpEvent.HEAD_BEGINS
_REQUEST: Final[HttpEvent] = HttpEvent.REQUEST
_OPENED: Final[HttpEvent] = HttpEvent.OPENED
_ORIGIN_DATA: Final[HttpEvent] = HttpEvent.ORIGIN_DATA
_SWITCHED: Final[HttpEvent] = HttpEvent.SWITCHED


class HttpSession(SessionEnds):
    """One client connection."""

    __slots__ = ("has_request",)

    _authorizing = AUTHORIZE
    _opening = frozenset((OPEN,))
    _closed = CLOSED
    has_request: bool

    def __init__(self, config: SessionConfig, now: float) -> None:
        super().__init__(config, now, IDLE)
        self.has_request = False

    # --- what the driver reads ---

    @property
    def reads_client(self) -> bool:
        phase = self.phase
        if self._client_ended or phase is CLOSED:
            return False
        if phase is EXCHANGE and self._exchange.request_body is not None:
            return self._exchange.takes_content
        if phase is IDLE or phase is HEAD:
            return len(self._in) <= HEAD_MAX
        return not self._in  # what is behind a request waits in the kernel, but for one read

    @property
    def reads_origin(self) -> bool:
        return self.phase is EXCHANGE

    @property
    def idle(self) -> bool:
        return self.phase is IDLE

    def note_progress(self, now: float) -> None:
        if self.phase is not HEAD:  # a head has an absolute deadline
            self.deadline = max(self.deadline, now + self._config.timeout)

    @property
    def plain_request(self) -> tuple[str, str]:
        exchange = self._exchange
        if exchange is NO_EXCHANGE or exchange.is_connect:
            return "", ""
        return exchange.head.method.decode("ascii"), exchange.path.decode("latin-1")

    def change_head(self, change: Callable[[bytes], bytes]) -> None:
        exchange = self._exchange
        if exchange is not NO_EXCHANGE:
            before = exchange.change_head
            exchange.change_head = change if before is None else lambda head: change(before(head))

    # --- the client ---

    def receive_from_client(self, data: bytes, now: float) -> list[Command]:
        out: list[Command] = []
        if not data:
            self._end_of_client(out, now)
            return out
        phase = self.phase = TRANSITIONS[self.phase][_CLIENT_DATA]
        if phase is EXCHANGE and self._exchange.request_body is not None:
            self._request_content(self._exchange, data, out, now)
        else:
            self._append(data)
            if phase is IDLE or phase is HEAD:
                self._next_head(out, now)
        return out

    def _next_head(self, out: list[Command], now: float) -> None:
        """Begin an exchange when a whole head is there."""
        if self.phase is IDLE:
            if not self._head_begins():
                return
            self.phase = TRANSITIONS[self.phase][_HEAD_BEGINS]
            self._exchange = NO_EXCHANGE
            self._started = now
            self.deadline = now + self._config.handshake_timeout
        request: RequestHead | None = None
        try:
            head = self._consume_head()
            if head is not None:
                request = request_head(head)
                self._begin(Exchange(request, self._config.via, self._started, len(head)), out, now)
        except Refused as refused:
            self._refuse(refused.failure, out, now, request)

    def _begin(self, exchange: Exchange, out: list[Command], now: float) -> None:
        self._exchange = exchange
        self.has_request = True
        config, fields = self._config, exchange.head.fields
        if passed_here(fields.via, config.pseudonym):
            raise Refused(failures.LOOP_DETECTED)
        self.deadline = now + config.timeout
        if config.wants_credentials or (config.accepts_optional_user and fields.credentials is not None):
            self._on(HttpEvent.CREDENTIALS)
            user, password = read_credentials(fields.credentials) or (None, None)
            out.append(Authorize(user, password, exchange.target))
        else:
            self.phase = TRANSITIONS[self.phase][_REQUEST]
            self._open(exchange, out, now)

    def _request_content(self, exchange: Exchange, data: bytes, out: list[Command], now: float) -> None:
        self.deadline = now + self._config.timeout
        try:
            rest = exchange.request_content(data, out)
        except Refused as refused:
            self._broken(refused.failure, out, now)
            return
        if rest:
            self._append(rest)
        exchange.relay_request(out)

    def request_relayed(self, count: int, now: float, ended: bool) -> list[Command]:
        self._on(HttpEvent.REQUEST_RELAYED)
        self._exchange.request_relayed(count)
        self.deadline = now + self._config.timeout
        if ended and self._exchange.request_body is not None:
            return self.abort("http_request_error", now)
        return []

    def _end_of_client(self, out: list[Command], now: float) -> None:
        self._on(HttpEvent.CLIENT_END)
        self._client_ended = True
        if self.phase is IDLE or self.phase is HEAD:
            self._close(out)
        elif self.phase is EXCHANGE and self._exchange.request_body is not None:
            out.extend(self.abort("http_request_error", now))

    # --- replies of the driver ---

    def authorized(self, user: str | None, now: float) -> list[Command]:
        self._on(HttpEvent.UNAUTHORIZED if user is None else HttpEvent.AUTHORIZED)
        out: list[Command] = []
        exchange = self._exchange
        if user is None:
            tried = read_credentials(exchange.head.fields.credentials)
            exchange.user = "" if tried is None else masked(tried[0])
            self._refuse(failures.CREDENTIALS_WANTED if tried is None else failures.CREDENTIALS_WRONG, out, now)
        else:
            exchange.user = user
            self._open(exchange, out, now)
        return out

    def unchecked(self, failure: Failure, now: float) -> list[Command]:
        self._on(HttpEvent.UNAUTHORIZED)
        out: list[Command] = []
        exchange = self._exchange
        tried = read_credentials(exchange.head.fields.credentials)
        exchange.user = "" if tried is None else masked(tried[0])
        self._refuse(failure, out, now)
        return out

    def _open(self, exchange: Exchange, out: list[Command], now: float) -> None:
        head = exchange.head
        if head.fields.max_forwards == 0 and head.method in (b"OPTIONS", b"TRACE"):
            self._respond_as_recipient(exchange, out, now)
            return
        out.append(Open(exchange.target, not exchange.retriable, False, not exchange.is_connect, head.fields.via))

    def _respond_as_recipient(self, exchange: Exchange, out: list[Command], now: float) -> None:
        """Respond to OPTIONS and TRACE that end at this proxy (RFC 9110 7.6.2)."""
        exchange.respond_as_recipient(self._config.date(now), now, out)
        if self.phase is EXCHANGE:
            out.append(LeaveOrigin(reusable=True))
        self._close(out)

    def opened(
        self,
        reused: bool,
        now: float,
        _address: tuple[str, int] | None = None,
        hop: bytes | None = None,
        again: Again | None = None,
    ) -> list[Command]:
        self.phase = TRANSITIONS[self.phase][_OPENED]
        exchange = self._exchange
        out: list[Command] = []
        self.deadline = now + self._config.timeout
        if exchange.is_connect:
            exchange.send_to_client(dated(ESTABLISHED, self._config.date(now)), out)
            self._tunnel(exchange, out, now)
            return out
        if (hop or exchange.change_head is not None) and exchange.head.method == b"TRACE":
            self._respond_as_recipient(exchange, out, now)  # an echo would disclose what we add to the client
            return out
        exchange.send_head(reused, out, hop, again)
        if exchange.request_body is not None:
            self._request_content(exchange, self._consume_all(), out, now)  # what has come of it already
            if exchange.wants_body and self._client_ended:
                return self.abort("http_request_error", now)
        return out

    def failed(self, failure: Failure, now: float) -> list[Command]:
        self._on(HttpEvent.FAILED)
        out: list[Command] = []
        self._refuse(failure, out, now)
        return out

    def _tunnel(self, exchange: Exchange, out: list[Command], now: float) -> None:
        """Leave both sides to the driver, and what the client has sent for the origin already."""
        self._on(_SWITCHED)
        exchange.responded = now
        early = self._consume_all() if self._in else b""
        exchange.bytes_in += len(early)
        out.append(Tunnel(exchange.report(200, "", now), early))
        self._exchange = NO_EXCHANGE

    # --- the origin ---

    def receive_from_origin(self, data: bytes, now: float) -> list[Command]:
        self.phase = TRANSITIONS[self.phase][_ORIGIN_DATA if data else HttpEvent.ORIGIN_END]
        out: list[Command] = []
        exchange = self._exchange
        self.deadline = now + self._config.timeout
        try:
            if data:
                exchange.receive(data, now, self._may_persist(exchange.head), out)
                self._after_response(exchange, out, now)
            else:
                self._end_of_origin(exchange, out, now)
        except AskAnotherUpstream:
            self._retry(exchange, out)
        except UpstreamRefusesUs as refused:
            self._ask_another_upstream(exchange, refused, out, now)
        except Refused as broken:  # a name of its own: a compiled variable keeps the type that it had first
            self._broken(broken.failure, out, now)
        return out

    def _ask_another_upstream(self, exchange: Exchange, refused: Refused, out: list[Command], now: float) -> None:
        if exchange.may_retry_upstream():
            self._retry(exchange, out)
        else:
            self._broken(refused.failure, out, now)

    def _retry(self, exchange: Exchange, out: list[Command]) -> None:
        """Send the request again, on a connection made for it."""
        self._on(HttpEvent.RETRY)
        via = exchange.head.fields.via
        out.extend((LeaveOrigin(reusable=False), Open(exchange.target, fresh=True, forward=True, via=via)))

    def origin_disconnected(self, now: float) -> list[Command]:
        self._on(HttpEvent.ORIGIN_LOST)
        exchange = self._exchange
        if exchange.stage is BODY:  # a response that would end with the connection has not ended well
            return self.abort("http_response_incomplete", now)
        out: list[Command] = []
        self._end_of_origin(exchange, out, now)
        return out

    def response_relayed(self, count: int, now: float, ended: bool) -> list[Command]:
        self._on(HttpEvent.RESPONSE_RELAYED)
        out: list[Command] = []
        exchange = self._exchange
        exchange.relayed(count)
        self.deadline = now + self._config.timeout
        if ended and exchange.stage is not COMPLETE:
            self._end_of_origin(exchange, out, now)
        else:
            self._after_response(exchange, out, now)
        return out

    def _after_response(self, exchange: Exchange, out: list[Command], now: float) -> None:
        """End the exchange when its response is complete or has become a tunnel."""
        if exchange.stage is COMPLETE:
            self._finish(exchange, out, now)
        elif exchange.stage is SWITCHED:
            self._tunnel(exchange, out, now)

    def _end_of_origin(self, exchange: Exchange, out: list[Command], now: float) -> None:
        if exchange.no_response_yet or exchange.asks_another_after_loss(out):
            self._retry(exchange, out)
        elif exchange.stage is AWAITED:
            self._broken(failures.connection_lost("the origin closed without a response"), out, now)
        elif exchange.origin_ended():
            self._finish(exchange, out, now)
        else:
            out.extend(self.abort("http_response_incomplete", now))

    def __repr__(self) -> str:
        return f"<HttpSession {self.phase.value}, {len(self._in)} bytes buffered, {self._exchange!r}>"
