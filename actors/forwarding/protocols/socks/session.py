"""What SOCKS4 and SOCKS5 have in common: from a complete request to its end, without sockets.

========== ============================================ ===================================================
phase      waits for                                    and then
========== ============================================ ===================================================
(a phase   bytes of the handshake; `v4` and `v5` have   AUTHORIZE, or `_begin` with a whole request; the end
of the     tables of their own for these                of the connection is fine here
version)
AUTHORIZE  `authorized`                                 what the version says; a refusal
OPEN       `opened`, `failed` (CONNECT)                 TUNNEL, or a refusal
LISTEN     `opened` with the address that listens, or   PEER after the first reply, or a refusal
           `failed` (BIND)
PEER       `opened` with the address of the peer, or    TUNNEL after the second reply, or a refusal
           `failed` (BIND)
RELAY      `opened` with the address of the UDP socket  TUNNEL: the driver relays datagrams from then on
           or `failed` (UDP ASSOCIATE)
TUNNEL     nothing: the driver has it                   (for good)
CLOSED     nothing                                      (for good)
========== ============================================ ===================================================

The handshake has one absolute deadline, whatever comes meanwhile; from the request on `settings.timeout` holds. Bytes
behind the request are held and given to the origin once, after the reply.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from functools import lru_cache

from actors.forwarding.protocols import failures
from actors.forwarding.protocols.commands import (
    Associate,
    Authorize,
    CloseClient,
    Command,
    Listen,
    Open,
    RelayDatagrams,
    Report,
    ToClient,
    ToOrigin,
    Tunnel,
)
from actors.forwarding.protocols.failures import Failure, Refused, malformed
from actors.forwarding.protocols.http.targets import Authority
from actors.forwarding.protocols.session_config import Policy
from actors.net.socks_wire import UNSPECIFIED, Endpoint

HELD_MAX = 64 * 1024
"""Bytes held behind a request before the client is read no more."""


class Phase(Enum):
    """Where the conversation is; the tables are in the docstrings of this module, `v4` and `v5`."""

    GREETING = "greeting"
    CREDENTIALS = "credentials"
    REQUEST = "request"
    AUTHORIZE = "authorize"
    OPEN = "open"
    LISTEN = "listen"
    PEER = "peer"
    RELAY = "relay"
    TUNNEL = "tunnel"
    CLOSED = "closed"


class Operation(Enum):
    """What a request asks for, by its code on the wire; the value's name is the method of the access record."""

    CONNECT = 1
    BIND = 2
    UDP = 3


_METHODS = {each: each.name.encode("ascii") for each in Operation}
_HANDSHAKE = frozenset((Phase.GREETING, Phase.CREDENTIALS, Phase.REQUEST))
_ASKED = frozenset((Phase.OPEN, Phase.LISTEN, Phase.PEER, Phase.RELAY))
_BEGUN = {Operation.CONNECT: Phase.OPEN, Operation.BIND: Phase.LISTEN, Operation.UDP: Phase.RELAY}


class SocksSession(ABC):
    """One client connection; a version of the protocol fills in how requests are read and replies written.

    Not to be used after `CloseClient`, `Tunnel` or `RelayDatagrams` came out.
    """

    __slots__ = (
        "_answered",
        "_bytes_in",
        "_bytes_out",
        "_client_ended",
        "_in",
        "_operation",
        "_policy",
        "_started",
        "_target",
        "_tried",
        "_user",
        "deadline",
        "phase",
    )

    def __init__(self, policy: Policy, now: float, phase: Phase) -> None:
        self._policy = policy
        self.phase = phase
        self.deadline = now + policy.handshake_timeout
        self._in = bytearray()
        self._started = now
        self._answered = 0.0
        self._bytes_in = 0
        self._bytes_out = 0
        self._client_ended = False
        self._operation: Operation | None = None
        self._target: Authority | None = None
        self._tried = ""
        self._user = ""

    # --- what a version says ---

    @abstractmethod
    def _step(self, out: list[Command]) -> bool:
        """Take one message of the handshake from what is held, if it is there whole. Raises `Refused`."""

    @abstractmethod
    def _admitted(self, out: list[Command]) -> None:
        """The credentials were good."""

    @abstractmethod
    def _granted(self, bound: Endpoint) -> bytes:
        """The reply of success."""

    @abstractmethod
    def _refusal(self, failure: Failure, /) -> bytes:
        """What this phase has to say to a failure; empty when the protocol has no word for it."""

    # --- what the driver asks ---

    @property
    def reads_client(self) -> bool:
        """Are bytes of the client wanted now?"""
        return not self._client_ended and self.phase is not Phase.CLOSED and len(self._in) <= HELD_MAX

    @property
    def reads_origin(self) -> bool:
        """Never: what the origin says is the tunnel's."""
        return False

    @property
    def idle(self) -> bool:
        """Has the client said nothing yet?"""
        return self._bytes_in == 0 and self.phase in _HANDSHAKE

    @property
    def authorizing(self) -> bool:
        """Is `authorized` awaited?"""
        return self.phase is Phase.AUTHORIZE

    @property
    def opening(self) -> bool:
        """Is `opened` or `failed` awaited?"""
        return self.phase in _ASKED

    @property
    def closed(self) -> bool:
        """Is there nothing more to say?"""
        return self.phase is Phase.CLOSED

    @property
    def has_request(self) -> bool:
        """Has anything been asked for?"""
        return self._operation is not None

    def note_progress(self, _now: float) -> None:
        """Replies are a few octets; no deadline waits for them."""
        return

    def adopt(self, policy: Policy) -> None:
        """What the configuration says from now on; a method of authentication that was agreed on stays agreed on."""
        self._policy = policy

    def disable_keep_alive(self) -> None:
        """There is never more than one."""
        return

    # --- the client ---

    def receive_from_client(self, data: bytes, now: float) -> list[Command]:
        """Bytes of the client; `b""` for the end of what it sends."""
        if not data:
            return self._end_of_client(now)
        self._bytes_in += len(data)
        self._in += data
        return self._read(now)

    def _read(self, now: float) -> list[Command]:
        """Take messages of the handshake as long as there are whole ones."""
        out: list[Command] = []
        try:
            while self.phase in _HANDSHAKE and self._step(out):
                pass
        except Refused as refused:
            self._refuse(refused.failure, out, now)
        if self.phase in _ASKED:
            self.deadline = now + self._policy.timeout
        elif self.phase in _HANDSHAKE and self._client_ended:
            self.phase = Phase.CLOSED
            out.append(CloseClient())
        return out

    def _end_of_client(self, now: float) -> list[Command]:
        self._client_ended = True
        if self.phase in _HANDSHAKE:
            self.phase = Phase.CLOSED
            return [CloseClient()]
        if self.phase in (Phase.LISTEN, Phase.PEER, Phase.RELAY):
            # What waits for others ends with the control connection. In OPEN an end is half of one, and passed on; in
            # AUTHORIZE the rest of the handshake may be held already.
            return self.abort("connection_terminated", now)
        return []

    def client_disconnected(self, now: float) -> list[Command]:
        """The client's connection broke."""
        if self._operation is None:
            self.phase = Phase.CLOSED
            return [CloseClient(abort=True)]
        return self.abort("connection_terminated", now)

    def _take(self, count: int) -> bytes:
        """Remove and give the first `count` bytes of what is held."""
        taken = bytes(self._in[:count])
        del self._in[:count]
        return taken

    # --- the request ---

    def _request(self, operation: Operation, target: Authority) -> None:
        """A whole request has come. Raises `Refused` when it can't be meant."""
        self._operation, self._target = operation, target
        if operation is Operation.CONNECT and target.port == 0:
            raise malformed("there is no port 0 to connect to")

    def _begin(self, out: list[Command]) -> None:
        """Do what the request asks for."""
        operation, target = self._operation, self._target
        assert operation is not None
        assert target is not None
        if self._client_ended and operation is not Operation.CONNECT:
            out.extend(self._cut("connection_terminated"))
            return
        self.phase = _BEGUN[operation]
        if operation is Operation.CONNECT:
            out.append(Open(target, fresh=True, tell_address=True))
        else:
            out.append(Listen(target) if operation is Operation.BIND else Associate())

    def authorized(self, user: str | None, now: float) -> list[Command]:
        """The credentials are those of `user`; None: they are not good."""
        if user is None:
            out: list[Command] = []
            self._user = self._tried
            self._refuse(failures.CREDENTIALS_WRONG, out, now)
            return out
        self._user = user
        out = []
        self._admitted(out)
        return out + self._read(now)

    def _ask(self, user: str | None, password: bytes | None, out: list[Command]) -> None:
        self.phase = Phase.AUTHORIZE
        self._tried = user or ""
        out.append(Authorize(user, password))

    def opened(
        self, _reused: bool, now: float, address: Endpoint | None = None, _hop: bytes | None = None
    ) -> list[Command]:
        """What was asked for is there; the table says whose `address` it is."""
        out: list[Command] = []
        self._say(self._granted(address or UNSPECIFIED), out)
        if self.phase is Phase.LISTEN:
            self.phase = Phase.PEER
            self.deadline = now + self._policy.timeout
            return out
        relays = self.phase is Phase.RELAY
        self.phase = Phase.TUNNEL
        self._answered = now
        if relays and self._target is not None:
            out.append(RelayDatagrams(self._target, self._report(200, "")))
            return out
        if self._in:
            out.append(ToOrigin(self._take(len(self._in))))
        out.append(Tunnel(self._report(200, "")))
        return out

    def failed(self, failure: Failure, now: float) -> list[Command]:
        """What was asked for can't be had."""
        out: list[Command] = []
        self._refuse(failure, out, now)
        return out

    # --- ends ---

    def timed_out(self, now: float) -> list[Command]:
        """`deadline` has passed."""
        out: list[Command] = []
        if self.idle:
            self.phase = Phase.CLOSED
            out.append(CloseClient())
        elif self.phase in _ASKED:
            self._refuse(failures.connection_timed_out("it did not come about in time"), out, now)
        elif not self.closed:
            late = Failure(408, "http_request_error", "the handshake did not come in time", close=True)
            self._end(late, out, now)
        return out

    def abort(self, reason: str, _now: float) -> list[Command]:
        """End it from outside."""
        return self._cut(reason)

    def _cut(self, reason: str) -> list[Command]:
        if self.phase is Phase.CLOSED:
            return []
        began = self._operation is not None
        self.phase = Phase.CLOSED
        told: list[Command] = [self._report(502, reason)] if began else []
        return [*told, CloseClient(abort=True)]

    def _refuse(self, failure: Failure, out: list[Command], now: float) -> None:
        """Say no, as far as the protocol can, and close."""
        refusal = self._refusal(failure)
        if refusal:
            self._say(refusal, out)
        self._end(failure, out, now)

    def _end(self, failure: Failure, out: list[Command], now: float) -> None:
        self._answered = now
        self.phase = Phase.CLOSED
        out.extend((self._report(failure.status, failure.reason).because(failure), CloseClient()))

    def _say(self, data: bytes, out: list[Command]) -> None:
        self._bytes_out += len(data)
        out.append(ToClient(data))

    def _report(self, status: int, reason: str) -> Report:
        operation, target = self._operation, self._target
        return Report(
            b"" if operation is None else _METHODS[operation],
            "" if target is None else _shown(target.text),
            status,
            reason,
            self._user,
            self._started,
            self._answered,
            self._bytes_in,
            self._bytes_out,
        )

    # --- the origin: it is the tunnel's from its first byte on ---

    def receive_from_origin(self, _data: bytes, _now: float) -> list[Command]:
        """Not called, since `reads_origin` is never true."""
        return []

    def origin_disconnected(self, now: float) -> list[Command]:
        """Not called, as above; there would be nothing left to do."""
        return self.abort("connection_terminated", now)

    def request_relayed(self, _count: int, _now: float, _ended: bool) -> list[Command]:
        """Not called: nothing is relayed piece by piece."""
        return []

    def response_relayed(self, _count: int, _now: float, _ended: bool) -> list[Command]:
        """Not called, as above."""
        return []

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.phase.value}, {len(self._in)} bytes held, {self._target!r}>"


@lru_cache(maxsize=256)
def _shown(text: bytes) -> str:
    """One text for all tunnels to a target."""
    return text.decode("ascii")
