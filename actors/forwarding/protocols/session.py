"""What all client protocols are to their driver: a session takes what happens and returns commands.

Sessions have no socket, no clock and no logger. Every input takes the time and returns commands (`commands`), to be
executed in order. An input that the phase excludes raises `IllegalEventError` and changes nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

from actors.forwarding.protocols.commands import Again, Command
from actors.forwarding.protocols.failures import PROXY_NAME, Failure

HANDSHAKE_TIMEOUT = 10.0
"""Seconds that a client may take for all that comes before a request: a PROXY header, TLS, credentials, its head."""


@dataclass(slots=True)
class SessionConfig:
    """Shared by all sessions of a proxy, and changed in place: so a change holds for the next request of each, however
    many there are. What was agreed on with a client stays agreed on. Times are seconds.

    `accepts_optional_user`: no credentials are wanted, but a user name that comes all the same may choose an upstream.
    `date` returns the `Date` line of a response at a time of the session's clock. `pseudonym` names this very proxy, so
    that chains of proxyfleet proxies are no loops; `via` is what is added to `Via` behind the version, empty for
    nothing. `new_id` makes the id of a record before there is one, for responses that name it; `contact` is whom
    clients may ask, a URL or a mail address, empty for none.
    """

    keep_alive: bool = True
    wants_credentials: bool = False
    accepts_optional_user: bool = False
    timeout: float = 30.0
    handshake_timeout: float = HANDSHAKE_TIMEOUT
    keep_alive_timeout: float = 60.0
    date: Callable[[float], bytes] = lambda _now: b""
    new_id: Callable[[], str] = lambda: ""
    contact: str = ""
    pseudonym: bytes = PROXY_NAME.encode()
    via: bytes = PROXY_NAME.encode()

    def become(self, other: SessionConfig) -> None:
        """Say the same as `other`, to all sessions that have this one."""
        for field in fields(self):
            setattr(self, field.name, getattr(other, field.name))


P = TypeVar("P", bound=StrEnum)
"""The phases of a protocol."""


class PhasedSession(ABC, Generic[P]):
    """The conversation on one client connection.

    Not to be used after it returned `CloseClient`, `Tunnel` or `RelayDatagrams`. A protocol names those of its
    phases that the driver asks for.
    """

    __slots__ = ("_client_ended", "_config", "_started", "deadline", "phase")

    _authorizing: ClassVar[StrEnum]
    _opening: ClassVar[frozenset[StrEnum]]
    _closed: ClassVar[StrEnum]

    def __init__(self, config: SessionConfig, now: float, phase: P) -> None:
        self._config = config
        self._started = now
        self._client_ended = False
        self.phase = phase
        self.deadline = now + config.handshake_timeout
        """When `timed_out` is to be called, by the clock of the inputs."""

    # --- what the driver reads ---

    @property
    @abstractmethod
    def reads_client(self) -> bool:
        """True while bytes of the client are wanted; False is the back-pressure."""

    @property
    @abstractmethod
    def reads_origin(self) -> bool:
        """True while bytes of the origin are wanted."""

    @property
    @abstractmethod
    def idle(self) -> bool:
        """True before the first and between two exchanges."""

    @property
    @abstractmethod
    def has_request(self) -> bool:
        """True once a request has come on this connection."""

    @property
    def authorizing(self) -> bool:
        """True while `authorized` is awaited."""
        return self.phase is self._authorizing

    @property
    def opening(self) -> bool:
        """True while `opened` or `failed` is awaited."""
        return self.phase in self._opening

    @property
    def closed(self) -> bool:
        """True once the session has ended with the client's connection."""
        return self.phase is self._closed

    # --- what happens ---

    @abstractmethod
    def receive_from_client(self, data: bytes, now: float) -> list[Command]:
        """Bytes of the client; `b""` for the end of what it sends."""

    @abstractmethod
    def receive_from_origin(self, data: bytes, now: float) -> list[Command]:
        """Bytes of the origin; `b""` for the end of what it sends."""

    @abstractmethod
    def authorized(self, user: str | None, now: float) -> list[Command]:
        """The reply to `Authorize`: the user of the credentials; None when they are wrong or missing."""

    @abstractmethod
    def unchecked(self, failure: Failure, now: float) -> list[Command]:
        """The reply to `Authorize`: the credentials can't be checked."""

    @abstractmethod
    def opened(
        self,
        reused: bool,
        now: float,
        address: tuple[str, int] | None = None,
        hop: bytes | None = None,
        again: Again | None = None,
        /,
    ) -> list[Command]:
        """The reply to `Open`, `Listen` or `Associate`: it is there. They say what `address` is of, if any.

        With `hop` the other side is an upstream proxy that gets the request in absolute-form, with these field lines.
        `again` says after which errors of its own another upstream is asked; None: after 407 alone.
        """

    @abstractmethod
    def failed(self, failure: Failure, now: float) -> list[Command]:
        """The reply to `Open`, `Listen` or `Associate`: it can't be had."""

    @abstractmethod
    def request_relayed(self, count: int, now: float, ended: bool) -> list[Command]:
        """`count` bytes were moved for `RelayToOrigin`; `ended`: the client's side ended before the last."""

    @abstractmethod
    def response_relayed(self, count: int, now: float, ended: bool) -> list[Command]:
        """`count` bytes were moved for `RelayToClient`; `ended`: the origin's side ended then."""

    @abstractmethod
    def client_disconnected(self, now: float) -> list[Command]:
        """The client's connection broke; nothing can be sent to it any more."""

    @abstractmethod
    def origin_disconnected(self, now: float) -> list[Command]:
        """The origin's connection broke."""

    @abstractmethod
    def timed_out(self, now: float) -> list[Command]:
        """`deadline` has passed."""

    @abstractmethod
    def abort(self, reason: str, now: float) -> list[Command]:
        """End it from outside; `reason` goes into the report of what was under way."""

    @abstractmethod
    def note_progress(self, now: float) -> None:
        """Bytes have moved on their way to the client, so the deadline of silence is put off."""

    @property
    def plain_request(self) -> tuple[str, str]:
        """Method and path, with the query, of a request that is plain HTTP; both are empty for any other."""
        return "", ""

    def change_head(self, change: Callable[[bytes], bytes]) -> None:
        """Send the origin what `change` makes of the head of the present request; without a head it does nothing."""

    @abstractmethod
    def disable_keep_alive(self) -> None:
        """Close the client's connection after the exchange that is under way."""


Session: TypeAlias = PhasedSession[Any]
"""That of any protocol."""
