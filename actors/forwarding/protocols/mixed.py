"""The sessions by the words of `protocol`, `mixed` among them: a client whose first byte says which one it speaks.

No byte begins two of them: 4 is SOCKS4 (VN), 5 is SOCKS5 (VER, RFC 1928 section 3), and a request of HTTP begins with a
letter or another character of a token (RFC 9112 section 3), before which empty lines may come (section 2.2). Any other
byte is a malformed request of HTTP. Nothing is consumed here: the session that follows reads the first byte as well, so
that a single parser sees all of a client's bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum, auto
from typing import Final

from actors.forwarding.protocols.commands import Again, CloseClient, Command, Speak
from actors.forwarding.protocols.failures import Failure
from actors.forwarding.protocols.http.error_body import UNKNOWN, Asker, dated, error_response
from actors.forwarding.protocols.http.session import HttpSession
from actors.forwarding.protocols.session import PhasedSession, Session, SessionConfig
from actors.forwarding.protocols.socks import v4, v5
from actors.forwarding.protocols.state_machine import transitions

_BY_FIRST_BYTE: Final = {4: "socks4", 5: "socks5"}
_ANY_OTHER: Final = "http"


class MixedPhase(StrEnum):
    """The phase of a session."""

    FIRST_BYTE = auto()
    """Nothing has come yet."""
    KNOWN = auto()
    """Another session takes over."""
    CLOSED = auto()


class MixedEvent(StrEnum):
    """What happens to a session: the inputs of its driver."""

    CLIENT_DATA = auto()
    CLIENT_END = auto()
    CLIENT_LOST = auto()
    TIMED_OUT = auto()
    ABORT = auto()
    AUTHORIZED = auto()
    UNAUTHORIZED = auto()
    OPENED = auto()
    FAILED = auto()
    ORIGIN_DATA = auto()
    ORIGIN_LOST = auto()
    REQUEST_RELAYED = auto()
    RESPONSE_RELAYED = auto()


_POSSIBLE: dict[MixedEvent, tuple[MixedPhase | None, ...]] = {
    # event            FIRST_BYTE    KNOWN  CLOSED
    MixedEvent.CLIENT_DATA: (MixedPhase.KNOWN, None, None),
    MixedEvent.CLIENT_END: (MixedPhase.CLOSED, None, None),
    MixedEvent.CLIENT_LOST: (MixedPhase.CLOSED, None, MixedPhase.CLOSED),
    MixedEvent.TIMED_OUT: (MixedPhase.CLOSED, None, None),
    MixedEvent.ABORT: (MixedPhase.CLOSED, None, MixedPhase.CLOSED),
}
TRANSITIONS = transitions(MixedPhase, {event: _POSSIBLE.get(event, (None, None, None)) for event in MixedEvent})
"""All other events are of a client that has sent a request."""


def protocol_of(first: int) -> str:
    """The protocol that a client speaks which begins with this byte."""
    return _BY_FIRST_BYTE.get(first, _ANY_OTHER)


class MixedSession(PhasedSession[MixedPhase]):
    """A client of whom nothing is known yet: `Speak` names the protocol with the first bytes, and ends the session."""

    __slots__ = ("_is_last",)

    _authorizing = MixedPhase.KNOWN
    _opening = frozenset()
    _closed = MixedPhase.CLOSED

    def __init__(self, config: SessionConfig, now: float) -> None:
        super().__init__(config, now, MixedPhase.FIRST_BYTE)
        self._is_last = False

    # --- what the driver reads ---

    @property
    def reads_client(self) -> bool:
        return self.phase is MixedPhase.FIRST_BYTE

    @property
    def reads_origin(self) -> bool:
        """False: there is no origin yet."""
        return False

    @property
    def idle(self) -> bool:
        return self.phase is MixedPhase.FIRST_BYTE

    @property
    def has_request(self) -> bool:
        """False: it is another session's."""
        return False

    @property
    def authorizing(self) -> bool:
        """False: no credentials have come."""
        return False

    # --- what happens ---

    def receive_from_client(self, data: bytes, _now: float) -> list[Command]:
        if not data:
            return self._end(MixedEvent.CLIENT_END, abort=False)
        self._on(MixedEvent.CLIENT_DATA)
        return [Speak(protocol_of(data[0]), data, self._started, self._is_last)]

    def client_disconnected(self, _now: float) -> list[Command]:
        return self._end(MixedEvent.CLIENT_LOST, abort=True)

    def timed_out(self, _now: float) -> list[Command]:
        return self._end(MixedEvent.TIMED_OUT, abort=False)

    def abort(self, _reason: str, _now: float) -> list[Command]:
        return [] if self.phase is MixedPhase.CLOSED else self._end(MixedEvent.ABORT, abort=True)

    def _end(self, event: MixedEvent, abort: bool) -> list[Command]:
        self._on(event)
        return [CloseClient(abort)]

    def note_progress(self, _now: float) -> None:
        """No effect: nothing is sent."""
        return

    def disable_keep_alive(self) -> None:
        self._is_last = True

    # --- what only happens to a client that has sent a request: each raises `IllegalEventError` ---

    def authorized(self, user: str | None, _now: float) -> list[Command]:
        return self._on(MixedEvent.UNAUTHORIZED if user is None else MixedEvent.AUTHORIZED)

    def unchecked(self, _failure: Failure, _now: float) -> list[Command]:
        return self._on(MixedEvent.UNAUTHORIZED)

    def opened(
        self,
        _reused: bool,
        _now: float,
        _address: tuple[str, int] | None = None,
        _hop: bytes | None = None,
        _again: Again | None = None,
        /,
    ) -> list[Command]:
        return self._on(MixedEvent.OPENED)

    def failed(self, _failure: Failure, _now: float) -> list[Command]:
        return self._on(MixedEvent.FAILED)

    def receive_from_origin(self, _data: bytes, _now: float) -> list[Command]:
        return self._on(MixedEvent.ORIGIN_DATA)

    def origin_disconnected(self, _now: float) -> list[Command]:
        return self._on(MixedEvent.ORIGIN_LOST)

    def request_relayed(self, _count: int, _now: float, _ended: bool) -> list[Command]:
        return self._on(MixedEvent.REQUEST_RELAYED)

    def response_relayed(self, _count: int, _now: float, _ended: bool) -> list[Command]:
        return self._on(MixedEvent.RESPONSE_RELAYED)

    def _on(self, event: MixedEvent) -> list[Command]:
        """Go over to the phase that the table names; no commands. Raises `IllegalEventError`."""
        self.phase = TRANSITIONS[self.phase][event]
        return []

    def __repr__(self) -> str:
        return f"<MixedSession {self.phase.value}>"


_SESSIONS: dict[str, Callable[[SessionConfig, float], Session]] = {
    "http": HttpSession,
    "https": HttpSession,
    "socks4": v4.Socks4Session,
    "socks5": v5.Socks5Session,
    "mixed": MixedSession,
}
_REJECTIONS = {"socks4": v4.REJECTION, "socks5": v5.REJECTION}


def new_session(protocol: str, config: SessionConfig, now: float) -> Session:
    """The session of a new client connection."""
    return _SESSIONS[protocol](config, now)


def rejection_reply(protocol: str, failure: Failure, date: bytes, asker: Asker = UNKNOWN) -> bytes:
    """The reply to a client that is rejected before anything of it is read; `date` is the line for HTTP, and `asker`
    what there is to say in its body.

    On `mixed` it is that of HTTP: SOCKS clients end at its first byte, which is no version of theirs.
    """
    return _REJECTIONS.get(protocol) or dated(error_response(failure, asker, keep_alive=False), date)
