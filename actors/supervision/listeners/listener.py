"""The life of one listening socket as a table of states.

               KEEP            DEFER                    CLOSE
  reserved ──────────> kept ──────────> close_deferred ───────> closed
      │                 │ └─ HAND_OVER ──> handed_over             ↑
      └───── CLOSE ─────┴──────────────────────────────────────────┘

A name (of a proxy) has at most one listener in each of the first three states: while it moves, one at the older address
is kept and one at the new address is reserved.

Whatever its state, a listener may share its socket: when a proxy takes over the address of another, the one gets a copy
(`shared_by`) of the socket of the other (`borrowed_from`). While both live, the end of one closes its copy alone, and
the socket listens on.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from socket import socket

from actors.supervision.transitions import next_state


class ListenerState(StrEnum):
    """What a listening socket is for."""

    RESERVED = "reserved"
    """Bound for a proxy that is not stored yet, until a time limit."""
    KEPT = "kept"
    """A proxy's, until that is stopped or moves."""
    CLOSE_DEFERRED = "close_deferred"
    """It listens until its actor has stopped accepting, so that the actor closes it in good order."""
    CLOSED = "closed"
    HANDED_OVER = "handed_over"
    """The next program's."""


class ListenerEvent(StrEnum):
    """What may happen to a listening socket."""

    KEEP = "keep"
    """The proxy is stored and active."""
    DEFER = "defer"
    """The proxy is to stop."""
    CLOSE = "close"
    HAND_OVER = "hand_over"
    """Another program replaces this one."""


TRANSITIONS: dict[tuple[ListenerState, ListenerEvent], ListenerState] = {
    (ListenerState.RESERVED, ListenerEvent.KEEP): ListenerState.KEPT,
    (ListenerState.RESERVED, ListenerEvent.CLOSE): ListenerState.CLOSED,
    (ListenerState.KEPT, ListenerEvent.DEFER): ListenerState.CLOSE_DEFERRED,
    (ListenerState.KEPT, ListenerEvent.CLOSE): ListenerState.CLOSED,
    (ListenerState.KEPT, ListenerEvent.HAND_OVER): ListenerState.HANDED_OVER,
    (ListenerState.CLOSE_DEFERRED, ListenerEvent.CLOSE): ListenerState.CLOSED,
}


@dataclass(slots=True, eq=False)
class Listener:
    """One listening socket. `expires` is when a reservation ends, by the monotonic clock."""

    host: str
    port: int
    socket: socket
    expires: float
    state: ListenerState = ListenerState.RESERVED
    shared_by: Listener | None = None
    """The one with a copy of this socket, which continues with it."""
    borrowed_from: Listener | None = None
    """The one whose socket this is a copy of, as long as that one lives."""

    @property
    def address(self) -> tuple[str, int]:
        """As it was requested; the host may be a name."""
        return self.host, self.port

    @property
    def is_shared(self) -> bool:
        """True while another listener has the same socket."""
        return self.shared_by is not None or self.borrowed_from is not None

    def transition(self, event: ListenerEvent) -> None:
        """Enter the next state. Raises `actors.supervision.transitions.IllegalTransitionError`."""
        self.state = next_state(TRANSITIONS, "a listener", self.state, event)

    def share(self, expires: float) -> Listener:
        """A reservation with a copy of this socket."""
        self.shared_by = Listener(self.host, self.port, self.socket.dup(), expires, borrowed_from=self)
        return self.shared_by

    def leave_shared(self) -> None:
        """Close this copy; those that share the socket listen on."""
        if self.shared_by is not None:
            self.shared_by.borrowed_from = self.borrowed_from
        if self.borrowed_from is not None:
            self.borrowed_from.shared_by = self.shared_by
        self.socket.close()
