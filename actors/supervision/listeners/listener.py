"""The life of the listening sockets of one proxy as a table of states.

               KEEP            DEFER                    CLOSE
  reserved ──────────> kept ──────────> close_deferred ───────> closed
      │                 │ └─ HAND_OVER ──> handed_over             ↑
      └───── CLOSE ─────┴──────────────────────────────────────────┘

A proxy has a listener for each of its ports, and they are in one state together, as a group. A name (of a proxy) has at
most one group in each of the first three states: while it moves, one at the older address is kept and one at the new
address is reserved.

Whatever its state, a listener may share its socket: when a proxy takes over a port of another, or of its own older
range, the one gets a copy (`shared_by`) of the socket of the other (`borrowed_from`). While both live, the end of one
closes its copy alone, and the socket listens on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from socket import socket

from actors.supervision.transitions import next_state
from config.net.ports import Ports

Address = tuple[str, Ports]


class ListenerState(StrEnum):
    """What listening sockets are for."""

    RESERVED = "reserved"
    """Bound for a proxy that is not stored yet, until a time limit."""
    KEPT = "kept"
    """A proxy's, until that is stopped or moves."""
    CLOSE_DEFERRED = "close_deferred"
    """They listen until their actor has stopped accepting, so that it closes them in good order."""
    CLOSED = "closed"
    HANDED_OVER = "handed_over"
    """The next program's."""


class ListenerEvent(StrEnum):
    """What may happen to listening sockets."""

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
    """One listening socket."""

    socket: socket
    shared_by: Listener | None = None
    """The one with a copy of this socket, which continues with it."""
    borrowed_from: Listener | None = None
    """The one whose socket this is a copy of, as long as that one lives."""

    @property
    def is_shared(self) -> bool:
        """True while another listener has the same socket."""
        return self.shared_by is not None or self.borrowed_from is not None

    def share(self) -> Listener:
        """A listener with a copy of this socket."""
        self.shared_by = Listener(self.socket.dup(), borrowed_from=self)
        return self.shared_by

    def leave_shared(self) -> None:
        """Close this copy; those that share the socket listen on."""
        if self.shared_by is not None:
            self.shared_by.borrowed_from = self.borrowed_from
        if self.borrowed_from is not None:
            self.borrowed_from.shared_by = self.shared_by
        self.socket.close()


@dataclass(slots=True, eq=False)
class ListenerGroup:
    """The listeners of a proxy, in the order of its ports.

    `host` is as it was requested, and may be a name. `expires` is when a reservation ends, by the monotonic clock.
    """

    host: str
    ports: Ports
    expires: float
    state: ListenerState = ListenerState.RESERVED
    listeners: list[Listener] = field(default_factory=list)
    bound_host: str = ""
    """The host as the kernel says, once its first listener is bound."""

    @property
    def address(self) -> Address:
        """As it was requested."""
        return self.host, self.ports

    @property
    def sockets(self) -> list[socket]:
        """Those of its listeners."""
        return [each.socket for each in self.listeners]

    def at(self, port: int) -> Listener | None:
        """The listener of this port, if it has one."""
        return self.listeners[port - self.ports.first] if port in self.ports else None

    def transition(self, event: ListenerEvent) -> None:
        """Enter the next state. Raises `actors.supervision.transitions.IllegalTransitionError`."""
        self.state = next_state(TRANSITIONS, "a listener", self.state, event)

    def leave_shared(self) -> None:
        """Close the copies of sockets that others listen on with."""
        for each in self.listeners:
            if each.is_shared:
                each.leave_shared()
        self.listeners = [each for each in self.listeners if each.socket.fileno() >= 0]
