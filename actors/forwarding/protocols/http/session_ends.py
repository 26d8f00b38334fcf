"""How an HTTP session ends: an exchange, orderly, refused or broken, and the client's connection with it; and the
client's bytes that it has received and not used yet.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Final

from actors.forwarding.protocols import failures
from actors.forwarding.protocols.commands import CloseClient, Command, LeaveOrigin
from actors.forwarding.protocols.failures import Failure
from actors.forwarding.protocols.http.error_body import refuse_head
from actors.forwarding.protocols.http.exchange import Exchange
from actors.forwarding.protocols.http.head_parser import RequestHead, find_end, parse_request
from actors.forwarding.protocols.http.states import CLOSED, EXCHANGE, HEAD, IDLE, TRANSITIONS, HttpEvent, HttpPhase
from actors.forwarding.protocols.session import PhasedSession, SessionConfig

EMPTY_LINES_MAX: Final = 8
"""Empty lines before a request that are ignored (RFC 9112 2.2): old clients end a body with one that isn't counted."""


class SessionBuffer(PhasedSession[HttpPhase]):
    """The part of `HttpSession` that has its bytes."""

    __slots__ = ("_empty_lines", "_head_size", "_in", "_searched")

    def __init__(self, config: SessionConfig, now: float, phase: HttpPhase) -> None:
        super().__init__(config, now, phase)
        self._in: bytes | bytearray = b""
        self._searched = 0
        self._head_size = 0
        self._empty_lines = 0

    def _append(self, data: bytes) -> None:
        if not self._in:
            self._in = data
        elif isinstance(self._in, bytearray):
            self._in += data
        else:
            self._in = bytearray(self._in) + data

    def _consume(self, count: int) -> bytes:
        """Remove the first `count` bytes and return them.

        The rest is cut in place: a thousand requests in one piece are not copied a thousand times.
        """
        buffered = self._in
        if len(buffered) == count:
            self._in = b""
            return bytes(buffered)
        if not isinstance(buffered, bytearray):
            buffered = self._in = bytearray(buffered)
        taken = bytes(buffered[:count])
        del buffered[:count]
        return taken

    def _consume_all(self) -> bytes:
        buffered, self._in = bytes(self._in), b""
        return buffered

    def _head_begins(self) -> bool:
        """Skip empty lines; True when the first byte of a head is there."""
        while self._in.startswith(b"\r\n") and self._empty_lines < EMPTY_LINES_MAX:
            self._empty_lines += 1
            self._consume(2)
        if not self._in or self._in == b"\r":
            return False
        self._empty_lines = self._searched = self._head_size = 0
        return True

    def _consume_head(self) -> bytes | None:
        """The whole head, or None while its end is to come. Raises `Refused` when it can't become one."""
        end = find_end(self._in, self._searched)
        if end < 0:
            self._searched = len(self._in)
            return None
        self._head_size = end
        return self._consume(end)


_DONE: Final[HttpEvent] = (
    HttpEvent.DONE
)  # an event of each request; through the class it costs more than the look-up (see `state_machine`)
_CLOSE: Final[HttpEvent] = HttpEvent.CLOSE

NO_EXCHANGE: Final = Exchange(parse_request(b"GET http://none/ HTTP/1.1\r\nHost: none\r\n\r\n"), b"", 0.0, 0)
"""Before a head is whole and after its exchange: compared by identity, and never used. The table admits no event there
that would need an exchange."""


class SessionEnds(SessionBuffer):
    """The part of `HttpSession` that ends what it has begun."""

    __slots__ = ("_exchange", "_is_last")

    def __init__(self, config: SessionConfig, now: float, phase: HttpPhase) -> None:
        super().__init__(config, now, phase)
        self._is_last = False
        self._exchange = NO_EXCHANGE

    def disable_keep_alive(self) -> None:
        self._is_last = True

    @abstractmethod
    def _next_head(self, out: list[Command], now: float) -> None:
        """Begin an exchange when a whole head is there."""

    def _on(self, event: HttpEvent) -> None:
        """Go over to the phase that the table names. Raises `IllegalEventError`, and changes nothing then."""
        self.phase = TRANSITIONS[self.phase][event]

    # --- the end of an exchange ---

    def _finish(self, exchange: Exchange, out: list[Command], now: float) -> None:
        out.append(exchange.report(0, "", now))
        out.append(LeaveOrigin(exchange.origin_persists, exchange.authenticates_connection))
        if exchange.persists and not self._client_ended and self._config.keep_alive and not self._is_last:
            self._await_next(out, now)
        else:
            self._close(out)

    def _await_next(self, out: list[Command], now: float) -> None:
        self.phase = TRANSITIONS[self.phase][_DONE]
        self._exchange = NO_EXCHANGE
        self.deadline = now + self._config.keep_alive_timeout
        if self._in:
            self._next_head(out, now)

    def _may_persist(self, head: RequestHead) -> bool:
        """True when the client's connection may be kept after this exchange."""
        return self._config.keep_alive and not self._is_last and head.may_persist and not self._client_ended

    def _broken(self, failure: Failure, out: list[Command], now: float) -> None:
        """One of the two sides broke the rules, or fell silent: report it to the client if that is still possible."""
        if self._exchange.response is not None:
            out.extend(self.abort(failure.reason, now))
            return
        out.append(LeaveOrigin(reusable=False))
        self._refuse(failure, out, now)

    def _refuse(self, failure: Failure, out: list[Command], now: float, head: RequestHead | None = None) -> None:
        """Respond with an error of our own; keep the connection when nothing of the request is left unread.

        `head` is one that could be read and made no exchange.
        """
        exchange = self._exchange
        if exchange is NO_EXCHANGE:
            size = self._head_size or len(self._in)
            out.extend(refuse_head(failure, self._config, self._started, now, size, head))
            self._close(out)
            return
        persists = not failure.close and exchange.request_body is None and not exchange.is_connect
        # Requests that wait behind this one are not served: to refuse them all takes more room than they do.
        persists = persists and not self._in and self._may_persist(exchange.head)
        exchange.refuse(failure, persists, self._config, now, out)
        if persists:
            self._await_next(out, now)
        else:
            self._close(out)

    # --- the end of the connection ---

    def _close(self, out: list[Command]) -> None:
        self._on(_CLOSE)
        out.append(CloseClient())

    def client_disconnected(self, now: float) -> list[Command]:
        if self.phase is IDLE or self.phase is HEAD or self.phase is CLOSED:
            self._on(HttpEvent.CLIENT_LOST)
            return [CloseClient(abort=True)]
        return self._end_at_once(HttpEvent.CLIENT_LOST, "connection_terminated", now)

    def timed_out(self, now: float) -> list[Command]:
        self._on(HttpEvent.TIMED_OUT)
        out: list[Command] = []
        phase = self.phase
        if phase is IDLE:
            self._close(out)
        elif phase is HEAD:
            self._refuse(Failure(408, "http_request_error", "the head did not come in time", close=True), out, now)
        elif phase is EXCHANGE:
            if self._exchange.response is not None:
                return self.abort("connection_read_timeout", now)
            self._broken(failures.RESPONSE_TIMED_OUT, out, now)
        elif phase is not CLOSED:
            self._refuse(failures.connection_timed_out("the origin could not be reached in time"), out, now)
        return out

    def abort(self, reason: str, now: float) -> list[Command]:
        """Cut both sides, so that an incomplete message isn't taken for a whole one; report it with `reason`."""
        return self._end_at_once(HttpEvent.ABORT, reason, now)

    def _end_at_once(self, event: HttpEvent, reason: str, now: float) -> list[Command]:
        if self.phase is CLOSED:
            return []
        self._on(event)
        out: list[Command] = []
        if self._exchange is not NO_EXCHANGE:
            out.append(self._exchange.report(502, reason, now))
        return [*out, LeaveOrigin(reusable=False), CloseClient(abort=True)]
