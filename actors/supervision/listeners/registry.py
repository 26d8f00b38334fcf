"""The listening sockets of the proxies: the supervisor alone binds, keeps and closes them.

An actor gets copies of the descriptors. What it does with its copies, and whether it lives, doesn't matter to a socket:
it listens on, and connections queue in the kernel until the next process accepts them. Where systemd keeps copies
(`actors.supervision.listeners.descriptor_store`), that holds for the supervisor itself as well. A proxy has a group of
sockets, one for each of its ports, and all of them or none. The life of a group:

               KEEP            DEFER                    CLOSE
  reserved ──────────> kept ──────────> close_deferred ───────> closed
      │                 │ └─ HAND_OVER ──> handed_over             ↑
      └───── CLOSE ─────┴──────────────────────────────────────────┘

A name (of a proxy) has at most one group in each of the first three states: while it moves, one at the older address is
kept and one at the new address is reserved.

Whatever its state, a listener may share its socket: when a proxy takes over a port of another, or of its own older
range, the one gets a copy (`shared_by`) of the socket of the other (`borrowed_from`). While both live, the end of one
closes its copy alone, and the socket listens on.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from enum import StrEnum

from actors.supervision.lifecycle import next_state
from actors.supervision.listeners.bind import ListenError, end_listening, listen, refusal, sharing
from actors.supervision.listeners.descriptor_store import DescriptorStore
from config.net.names import Ports, Range, merged

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

    socket: socket.socket
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
    def sockets(self) -> list[socket.socket]:
        """Those of its listeners."""
        return [each.socket for each in self.listeners]

    def at(self, port: int) -> Listener | None:
        """The listener of this port, if it has one."""
        return self.listeners[port - self.ports.first] if port in self.ports else None

    def transition(self, event: ListenerEvent) -> None:
        """Enter the next state. Raises `actors.supervision.lifecycle.IllegalTransitionError`."""
        self.state = next_state(TRANSITIONS, "a listener", self.state, event)

    def leave_shared(self) -> None:
        """Close the copies of sockets that others listen on with."""
        for each in self.listeners:
            if each.is_shared:
                each.leave_shared()
        self.listeners = [each for each in self.listeners if each.socket.fileno() >= 0]


RESERVED_FOR = 10.0
"""Seconds that a reserved socket stays bound for a proxy that is not stored yet."""
_ALL_ADDRESSES = frozenset({"0.0.0.0", "::"})  # noqa: S104 - to compare with


class ListenerRegistry:
    """The groups of listeners by name of their proxy and by state. `clock` is monotonic."""

    def __init__(
        self,
        clock: Callable[[], float],
        bind: Callable[..., socket.socket] = listen,
        store: DescriptorStore | None = None,
    ) -> None:
        self._clock = clock
        self._bind = bind
        self._store = store or DescriptorStore()
        self._kept_for_restart = False
        self._reservations: dict[str, ListenerGroup] = {}
        self._kept: dict[str, ListenerGroup] = {}
        self._deferred: dict[str, ListenerGroup] = {}
        self.changes = 0
        """Grows whenever an address is added or removed."""
        self._addresses: tuple[Range, ...] = ()
        self._addresses_of = 0

    def reserve(self, name: str, host: str, ports: Ports, instead_of: Collection[str] = ()) -> None:
        """Bind all `ports` for `name`, for `RESERVED_FOR` seconds unless `keep` follows.

        Raises `ListenError`, which names the first port that can't be bound, and all stays. An address that `name` has
        already is a success. Where `name` or one of `instead_of` listens at one of these ports of the host, `name` gets
        a copy of that socket, which so never closes; the other one is to be closed before or after.
        """
        expires = self._clock() + RESERVED_FOR
        for group in (self._kept.get(name), self._reservations.get(name)):
            if group is not None and group.address == (host, ports):
                group.expires = expires
                return
        self.close_deferred(name)  # it may be this very address
        reservation = self._bind_group(ListenerGroup(host, ports, expires), {name, *instead_of})
        self.cancel(name)
        self._reservations[name] = reservation
        self.changes += 1

    def keep(self, name: str, host: str, ports: Ports) -> list[socket.socket]:
        """The sockets of `name` at this address, bound now unless it is reserved or kept; they stay until `release`.

        Raises `ListenError`.
        """
        self.reserve(name, host, ports)
        reservation = self._reservations.get(name)
        if reservation is not None and reservation.address == (host, ports):
            del self._reservations[name]
            self._remove(self._kept, name)
            reservation.transition(ListenerEvent.KEEP)
            self._store.put_all(reservation.sockets)
            self._kept[name] = reservation
        return self._kept[name].sockets

    def cancel(self, name: str) -> None:
        """Close a reservation; what is kept stays. Harmless if there is none."""
        self._remove(self._reservations, name)

    def get(self, name: str) -> list[socket.socket]:
        """The sockets that are kept, or else reserved, for `name`."""
        group = self._kept.get(name) or self._reservations.get(name)
        return group.sockets if group else []

    def kept(self, name: str) -> Address | None:
        """The address that is kept for `name`, as it was requested; None without one."""
        group = self._kept.get(name)
        return group.address if group else None

    def holder(self, host: str, port: int) -> str:
        """The name for which a socket listens at this port, at this host or where one of both is all; or empty."""
        for name, group in (*self._kept.items(), *self._reservations.items()):
            hosts = {group.host, group.bound_host}
            if port in group.ports and (host in hosts or {host, *hosts} & _ALL_ADDRESSES):
                return name
        return ""

    def defer_close(self, name: str) -> None:
        """Let the kept sockets of `name` listen until `close_deferred`. Harmless if none is kept."""
        group = self._kept.pop(name, None)
        if group is None:
            return
        self.changes += 1
        self.close_deferred(name)
        group.leave_shared()  # these listen on for the other proxy
        if group.listeners:
            group.transition(ListenerEvent.DEFER)
            self._deferred[name] = group
        else:
            group.transition(ListenerEvent.CLOSE)

    def close_deferred(self, name: str) -> None:
        """Close what `defer_close` left open. Harmless if there is nothing."""
        group = self._deferred.pop(name, None)
        if group is not None:
            self._close(group)

    def release(self, name: str) -> None:
        """Close what is reserved and kept for `name`, in all processes that have a copy. Harmless if there is none."""
        self.cancel(name)
        self._remove(self._kept, name)

    def expire_reservations(self) -> list[str]:
        """Close the reservations whose time is up; their names."""
        now = self._clock()
        expired = [name for name, group in self._reservations.items() if group.expires <= now]
        for name in expired:
            self.cancel(name)
        return expired

    def addresses(self) -> tuple[Range, ...]:
        """Where the proxies listen: hosts as the kernel says, consecutive ports as one."""
        if self._addresses_of != self.changes:
            self._addresses_of = self.changes
            groups = (*self._kept.values(), *self._reservations.values())
            self._addresses = tuple(merged((each.bound_host, each.ports.first, each.ports.last) for each in groups))
        return self._addresses

    def keep_for_restart(self) -> None:
        """The product ends: what a store has copies of listens on for the next start of it."""
        self._kept_for_restart = self._store.outlives
        self._store.flush()

    def hand_over(self) -> list[int]:
        """The descriptors of what is kept, for the next program; all else is closed."""
        kept, self._kept = self._kept, {}
        for group in kept.values():
            group.transition(ListenerEvent.HAND_OVER)
        self.close()
        return [each.detach() for group in kept.values() for each in group.sockets]

    def close(self) -> None:
        """Close everything."""
        for name in (*self._reservations, *self._kept):
            self.release(name)
        for name in tuple(self._deferred):
            self.close_deferred(name)
        self._store.flush()

    # --- binding ---

    def _bind_group(self, group: ListenerGroup, leaving: Collection[str]) -> ListenerGroup:
        """The group with a listener for each of its ports. Raises `ListenError`, and then it has none."""
        bound = [groups.get(name) for name in leaving for groups in (self._kept, self._reservations)]
        rivals = [each for each in bound if each is not None and each.ports.overlaps(group.ports)]
        host = group.host
        try:
            for port in group.ports:
                group.listeners.append(self._listener(group.host, host, port, rivals))
                if not group.bound_host:
                    host = group.bound_host = _bound_host(
                        group
                    )  # a name is resolved once: all ports are at one address
        except ListenError:
            self._close(group)
            raise
        return group

    def _listener(self, requested: str, host: str, port: int, rivals: Collection[ListenerGroup]) -> Listener:
        """A copy of the socket of a rival at this very address, or a new one, which may overlap with theirs."""
        there = [(each.host, listener) for each in rivals if (listener := each.at(port)) is not None]
        for other, listener in there:
            if other == requested and listener.shared_by is None:
                try:
                    return listener.share()
                except OSError as error:
                    raise refusal(error, requested, port) from error
        if not there:
            return Listener(self._bind(host, port))
        with sharing([listener.socket for _host, listener in there]):
            return Listener(self._bind(host, port, shared=True))

    # --- closing ---

    def _remove(self, groups: dict[str, ListenerGroup], name: str) -> None:
        group = groups.pop(name, None)
        if group is not None:
            self.changes += 1
            self._close(group)

    def _close(self, group: ListenerGroup) -> None:
        group.transition(ListenerEvent.CLOSE)
        group.leave_shared()
        for each in group.sockets:
            if self._kept_for_restart:
                each.close()
            else:
                self._store.drop(each)
                end_listening(each)


def _bound_host(group: ListenerGroup) -> str:
    name = group.listeners[0].socket.getsockname()
    scoped = len(name) > 2 and name[3]  # a scope is in the requested one alone
    return group.host if scoped else sys.intern(str(name[0]))
