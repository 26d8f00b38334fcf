"""The parts that SOCKS4 and SOCKS5 sessions share, without sockets: from a whole request to the end.

`states` has the table that both run on; `v4` and `v5` read the messages of the handshake and write the replies. The
handshake has one absolute deadline; from the request on `timeout` holds. Bytes behind the request are buffered
and sent to the origin once, after the reply.
"""

from __future__ import annotations

from abc import abstractmethod
from enum import Enum
from functools import lru_cache
from typing import Final

from actors.forwarding.protocols import failures
from actors.forwarding.protocols.commands import (
    Again,
    Associate,
    Authorize,
    CloseClient,
    Command,
    Listen,
    Open,
    RelayDatagrams,
    Report,
    ToClient,
    Tunnel,
    masked,
)
from actors.forwarding.protocols.failures import Failure, Refused, malformed
from actors.forwarding.protocols.http.targets import Authority
from actors.forwarding.protocols.session import PhasedSession, SessionConfig
from actors.forwarding.protocols.socks.states import (
    AUTH,
    CLOSED,
    GREETING,
    LISTEN,
    OPEN,
    PASSWORD,
    PEER,
    RELAY,
    REQUEST,
    TRANSITIONS,
    SocksEvent,
    SocksPhase,
)
from actors.forwarding.protocols.state_machine import IllegalEventError
from actors.net.socks_wire import UNSPECIFIED, Endpoint

BUFFERED_MAX: Final = 64 * 1024
"""Bytes buffered behind a request before the client is read no more."""


class SocksOperation(Enum):
    """What a request asks for, by its code on the wire; the value's name is the method of the access record."""

    CONNECT = 1
    BIND = 2
    UDP = 3


_METHODS: Final = {each: each.name.encode("ascii") for each in SocksOperation}
_EVENTS: Final = {
    SocksOperation.CONNECT: SocksEvent.CONNECT,
    SocksOperation.BIND: SocksEvent.BIND,
    SocksOperation.UDP: SocksEvent.UDP,
}
_HANDSHAKE: Final = frozenset((GREETING, PASSWORD, REQUEST))
_FOR_THIRD_PARTY: Final = frozenset((LISTEN, PEER, RELAY))


class SocksSession(PhasedSession[SocksPhase]):
    """One client connection; a version of the protocol fills in how requests are read and replies written."""

    __slots__ = ("_bytes_in", "_bytes_out", "_in", "_operation", "_replied", "_target", "_tried", "_user")

    _authorizing = AUTH
    _opening = frozenset((OPEN, LISTEN, PEER, RELAY))
    _closed = CLOSED

    def __init__(self, config: SessionConfig, now: float, phase: SocksPhase) -> None:
        super().__init__(config, now, phase)
        self._in = bytearray()
        self._replied = 0.0
        self._bytes_in = 0
        self._bytes_out = 0
        self._operation: SocksOperation | None = None
        self._target: Authority | None = None
        self._tried = ""
        self._user = ""

    # --- what differs between the versions ---

    @abstractmethod
    def _step(self, out: list[Command]) -> bool:
        """Read one message of the handshake and return True; False when it is not there whole. Raises `Refused`."""

    @abstractmethod
    def _admitted(self, out: list[Command]) -> None:
        """The credentials were accepted."""

    @abstractmethod
    def _granted(self, bound: Endpoint) -> bytes:
        """The reply of success."""

    @abstractmethod
    def _rejection(self, failure: Failure, /) -> bytes:
        """The reply to a failure in this phase; empty where the protocol has none."""

    # --- what the driver reads ---

    @property
    def reads_client(self) -> bool:
        return not self._client_ended and self.phase is not CLOSED and len(self._in) <= BUFFERED_MAX

    @property
    def reads_origin(self) -> bool:
        """False: the bytes of the origin are the tunnel's."""
        return False

    @property
    def idle(self) -> bool:
        """True until the first byte of the client."""
        return self._bytes_in == 0 and self.phase in _HANDSHAKE

    @property
    def has_request(self) -> bool:
        return self._operation is not None

    def note_progress(self, _now: float) -> None:
        """No effect: replies are a few octets, and no deadline waits for them."""
        return

    def disable_keep_alive(self) -> None:
        """No effect: there is never more than one request."""
        return

    # --- the client ---

    def receive_from_client(self, data: bytes, now: float) -> list[Command]:
        if not data:
            return self._end_of_client(now)
        self._on(SocksEvent.CLIENT_DATA)
        self._bytes_in += len(data)
        self._in += data
        return self._read(now)

    def _on(self, event: SocksEvent) -> None:
        """Go over to the phase that the table names. Raises `IllegalEventError`, and changes nothing then."""
        self.phase = TRANSITIONS[self.phase][event]

    def _read(self, now: float) -> list[Command]:
        """Read the messages of the handshake that are there whole."""
        out: list[Command] = []
        try:
            while self.phase in _HANDSHAKE and self._step(out):
                pass
        except Refused as refused:
            self._refuse(refused.failure, out, now)
        if self.opening:
            self.deadline = now + self._config.timeout
        elif self.phase in _HANDSHAKE and self._client_ended:
            self._on(SocksEvent.CLOSE)
            out.append(CloseClient())
        return out

    def _end_of_client(self, now: float) -> list[Command]:
        self._on(SocksEvent.CLIENT_END)
        self._client_ended = True
        if self.phase in _HANDSHAKE:
            self._on(SocksEvent.CLOSE)
            return [CloseClient()]
        if self.phase in _FOR_THIRD_PARTY:
            # These end with the control connection. In OPEN the end is one of a direction, and passed on; in AUTH
            # the rest of the handshake may be buffered already.
            return self.abort("connection_terminated", now)
        return []

    def client_disconnected(self, _now: float) -> list[Command]:
        if self._operation is None:
            self._on(SocksEvent.CLIENT_LOST)
            return [CloseClient(abort=True)]
        return self._end_at_once(SocksEvent.CLIENT_LOST, "connection_terminated")

    def _consume(self, count: int) -> bytes:
        """Remove the first `count` bytes of what is buffered and return them."""
        taken = bytes(self._in[:count])
        del self._in[:count]
        return taken

    # --- the request ---

    def _request(self, operation: SocksOperation, target: Authority) -> None:
        """A whole request has come. Raises `Refused` when it can't be meant."""
        self._operation, self._target = operation, target
        if operation is SocksOperation.CONNECT and target.port == 0:
            raise malformed("there is no port 0 to connect to")

    def _begin(self, operation: SocksOperation, target: Authority, out: list[Command]) -> None:
        """Ask the driver for what the request names."""
        if self._client_ended and operation is not SocksOperation.CONNECT:
            out.extend(self._end_at_once(SocksEvent.ABORT, "connection_terminated"))
            return
        self._on(_EVENTS[operation])
        if operation is SocksOperation.CONNECT:
            out.append(Open(target, fresh=True, with_address=True))
        else:
            out.append(Listen(target) if operation is SocksOperation.BIND else Associate())

    def authorized(self, user: str | None, now: float) -> list[Command]:
        out: list[Command] = []
        if user is None:
            return self.unchecked(failures.CREDENTIALS_WRONG, now)
        self._on(SocksEvent.AUTHORIZED)
        self._user = user
        self._admitted(out)
        return out + self._read(now)

    def unchecked(self, failure: Failure, now: float) -> list[Command]:
        self._on(SocksEvent.UNAUTHORIZED)
        out: list[Command] = []
        self._user = self._tried
        self._refuse(failure, out, now)
        return out

    def _check(self, user: str | None, password: bytes | None, out: list[Command]) -> None:
        self._on(SocksEvent.CHECK)
        self._tried = masked(user or "")
        out.append(Authorize(user, password, self._target))

    def opened(
        self,
        _reused: bool,
        now: float,
        address: Endpoint | None = None,
        _hop: bytes | None = None,
        _again: Again | None = None,
    ) -> list[Command]:
        """The phase says what `address` is of (see `states`)."""
        was = self.phase
        self._on(SocksEvent.OPENED)
        out: list[Command] = []
        self._send(self._granted(address or UNSPECIFIED), out)
        if was is LISTEN:
            self.deadline = now + self._config.timeout
            return out
        self._replied = now
        if was is RELAY and self._target is not None:
            out.append(RelayDatagrams(self._target, self._report(200, "")))
            return out
        out.append(Tunnel(self._report(200, ""), self._consume(len(self._in))))
        return out

    def failed(self, failure: Failure, now: float) -> list[Command]:
        self._on(SocksEvent.FAILED)
        out: list[Command] = []
        self._refuse(failure, out, now)
        return out

    # --- ends ---

    def timed_out(self, now: float) -> list[Command]:
        self._on(SocksEvent.TIMED_OUT)
        out: list[Command] = []
        if self.idle:
            self._on(SocksEvent.CLOSE)
            out.append(CloseClient())
        elif self.opening:
            self._refuse(failures.connection_timed_out("it did not come about in time"), out, now)
        elif not self.closed:
            late = Failure(408, "http_request_error", "the handshake did not come in time", close=True)
            self._end(late, out, now)
        return out

    def abort(self, reason: str, _now: float) -> list[Command]:
        return self._end_at_once(SocksEvent.ABORT, reason)

    def _end_at_once(self, event: SocksEvent, reason: str) -> list[Command]:
        if self.phase is CLOSED:
            return []
        self._on(event)
        out: list[Command] = [] if self._operation is None else [self._report(502, reason)]
        return [*out, CloseClient(abort=True)]

    def _refuse(self, failure: Failure, out: list[Command], now: float) -> None:
        """Reply with the failure, as far as the protocol can, and close."""
        reply = self._rejection(failure)
        if reply:
            self._send(reply, out)
        self._end(failure, out, now)

    def _end(self, failure: Failure, out: list[Command], now: float) -> None:
        self._replied = now
        self._on(SocksEvent.CLOSE)
        out.extend((self._report(failure.status, failure.reason).because(failure), CloseClient()))

    def _send(self, data: bytes, out: list[Command]) -> None:
        self._bytes_out += len(data)
        out.append(ToClient(data))

    def _report(self, status: int, reason: str) -> Report:
        operation, target = self._operation, self._target
        return Report(
            b"" if operation is None else _METHODS[operation],
            "" if target is None else _text_of(target.text),
            status,
            reason,
            self._user,
            self._started,
            self._replied,
            self._bytes_in,
            self._bytes_out,
        )

    # --- the origin: its bytes are the tunnel's from the first one on, so these raise `IllegalEventError` ---

    def receive_from_origin(self, _data: bytes, _now: float) -> list[Command]:
        return self._never(SocksEvent.ORIGIN_DATA)

    def origin_disconnected(self, _now: float) -> list[Command]:
        return self._never(SocksEvent.ORIGIN_LOST)

    def request_relayed(self, _count: int, _now: float, _ended: bool) -> list[Command]:
        return self._never(SocksEvent.REQUEST_RELAYED)

    def response_relayed(self, _count: int, _now: float, _ended: bool) -> list[Command]:
        return self._never(SocksEvent.RESPONSE_RELAYED)

    def _never(self, event: SocksEvent) -> list[Command]:
        raise IllegalEventError(self.phase, event)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.phase.value}, {len(self._in)} bytes buffered, {self._target!r}>"


@lru_cache(maxsize=256)
def _text_of(text: bytes) -> str:
    """One text for all tunnels to a target."""
    return text.decode("ascii")
