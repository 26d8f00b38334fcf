"""The listening sockets of the proxies: the supervisor alone binds, keeps and closes them.

An actor gets a copy of the descriptor. What it does with its copy, and whether it lives, doesn't matter to the socket:
it listens on, and connections queue in the kernel until the next process accepts them. Where systemd keeps copies
(`actors.supervision.listeners.descriptor_store`), that holds for the supervisor itself as well. The states of one
socket are a table in `actors.supervision.listeners.listener`.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection, Iterator

from actors.supervision.listeners.bind import end_listening, listen, sharing
from actors.supervision.listeners.descriptor_store import DescriptorStore
from actors.supervision.listeners.listener import Listener, ListenerEvent

RESERVED_FOR = 10.0
"""Seconds that a reserved socket is held for a proxy that is not stored yet."""


class ListenerRegistry:
    """The listeners by name of their proxy and by state. `clock` is monotonic."""

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
        self._reservations: dict[str, Listener] = {}
        self._kept: dict[str, Listener] = {}
        self._deferred: dict[str, Listener] = {}
        self.changes = 0
        """Grows whenever an address is added or removed."""

    def reserve(self, name: str, host: str, port: int, instead_of: Collection[str] = ()) -> None:
        """Bind for `name`, for `RESERVED_FOR` seconds unless `keep` follows. Raises `ListenError`, and all stays.

        An address that `name` has already is a success. Where one of `instead_of` listens at this very address, `name`
        gets a copy of its socket, which so never closes; the other one is to be closed before or after.
        """
        expires = self._clock() + RESERVED_FOR
        for listener in (self._kept.get(name), self._reservations.get(name)):
            if listener is not None and listener.address == (host, port):
                listener.expires = expires
                return
        self.close_deferred(name)  # it may be this very address
        lender = self._lender((host, port), instead_of)
        if lender is None:
            reservation = Listener(host, port, self._listen(host, port, {name, *instead_of}), expires)
        else:
            reservation = lender.share(expires)
        self.cancel(name)
        self._reservations[name] = reservation
        self.changes += 1

    def keep(self, name: str, host: str, port: int) -> socket.socket:
        """The socket of `name` at this address, bound now unless it is reserved or kept; it stays until `release`.

        Raises `ListenError`.
        """
        self.reserve(name, host, port)
        reservation = self._reservations.get(name)
        if reservation is not None and reservation.address == (host, port):
            del self._reservations[name]
            self._remove(self._kept, name)
            reservation.transition(ListenerEvent.KEEP)
            self._store.put(reservation.socket)
            self._kept[name] = reservation
        return self._kept[name].socket

    def cancel(self, name: str) -> None:
        """Close a reservation; what is kept stays. Harmless if there is none."""
        self._remove(self._reservations, name)

    def get(self, name: str) -> socket.socket | None:
        """The socket that is kept, or else reserved, for `name`."""
        listener = self._current(name)
        return listener.socket if listener else None

    def kept(self, name: str) -> tuple[str, int] | None:
        """The address that is kept for `name`, as it was requested; None without one."""
        listener = self._kept.get(name)
        return listener.address if listener else None

    def defer_close(self, name: str) -> None:
        """Let the kept socket of `name` listen until `close_deferred`. Harmless if none is kept."""
        listener = self._kept.pop(name, None)
        if listener is None:
            return
        self.changes += 1
        self.close_deferred(name)
        if listener.is_shared:
            self._close(listener)  # it listens on for the other proxy
        else:
            listener.transition(ListenerEvent.DEFER)
            self._deferred[name] = listener

    def close_deferred(self, name: str) -> None:
        """Close what `defer_close` left open. Harmless if there is nothing."""
        listener = self._deferred.pop(name, None)
        if listener is not None:
            self._close(listener)

    def release(self, name: str) -> None:
        """Close what is reserved and kept for `name`, in all processes that have a copy. Harmless if there is none."""
        self.cancel(name)
        self._remove(self._kept, name)

    def expire_reservations(self) -> list[str]:
        """Close the reservations whose time is up; their names."""
        now = self._clock()
        expired = [name for name, listener in self._reservations.items() if listener.expires <= now]
        for name in expired:
            self.cancel(name)
        return expired

    def addresses(self) -> Iterator[tuple[str, int]]:
        """Where the proxies listen, as the kernel says."""
        for listener in (*self._kept.values(), *self._reservations.values()):
            host, port = listener.socket.getsockname()[:2]
            yield str(host), int(port)

    def keep_for_restart(self) -> None:
        """The product ends: what a store has copies of listens on for the next start of it."""
        self._kept_for_restart = self._store.outlives

    def hand_over(self) -> list[int]:
        """The descriptors of what is kept, for the next program; all else is closed."""
        kept, self._kept = self._kept, {}
        for listener in kept.values():
            listener.transition(ListenerEvent.HAND_OVER)
        self.close()
        return [listener.socket.detach() for listener in kept.values()]

    def close(self) -> None:
        """Close everything."""
        for name in (*self._reservations, *self._kept):
            self.release(name)
        for name in tuple(self._deferred):
            self.close_deferred(name)

    def _current(self, name: str) -> Listener | None:
        return self._kept.get(name) or self._reservations.get(name)

    def _lender(self, address: tuple[str, int], names: Collection[str]) -> Listener | None:
        listeners = (self._current(name) for name in names)
        return next((each for each in listeners if each and each.address == address and each.shared_by is None), None)

    def _listen(self, host: str, port: int, leaving: Collection[str]) -> socket.socket:
        """A new socket. It may overlap with those of names that leave this port at another host (`0.0.0.0`)."""
        listeners = (self._current(name) for name in leaving)
        overlapping = [each.socket for each in listeners if each is not None and each.port == port]
        if not overlapping:
            return self._bind(host, port)
        with sharing(overlapping):
            return self._bind(host, port, shared=True)

    def _remove(self, group: dict[str, Listener], name: str) -> None:
        listener = group.pop(name, None)
        if listener is not None:
            self.changes += 1
            self._close(listener)

    def _close(self, listener: Listener) -> None:
        listener.transition(ListenerEvent.CLOSE)
        if listener.is_shared:
            listener.leave_shared()
        elif self._kept_for_restart:
            listener.socket.close()
        else:
            self._store.drop(listener.socket)
            end_listening(listener.socket)
