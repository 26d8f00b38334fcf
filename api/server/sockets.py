"""The sockets of the HTTP server: which ones it waits for, and what is done with those that are ready.

waitress has its sockets in a map, and asks every one of them at every turn whether it wants to read or to write: what a
request costs grows with the connections that are open. Here the kernel remembers what they want (epoll(7)), each time
for one event: a socket that was ready is asked again before the next turn. Those that a thread is serving want no data,
until the thread has made the response (`resume`): then the kernel waits for more, without a turn of the server's
thread, unless that has something to send or to close.
"""

from __future__ import annotations

import select
from collections import deque
from contextlib import suppress
from typing import Any, Final

from waitress import wasyncore
from waitress.trigger import trigger

_DATA: Final = select.EPOLLIN | select.EPOLLPRI
_BROKEN: Final = select.EPOLLERR | select.EPOLLHUP


class Sockets(dict[int, Any]):
    """By file descriptor, as waitress adds and removes them. All but the methods for threads in the server's thread."""

    def __init__(self) -> None:
        super().__init__()
        self._epoll = select.epoll()
        self._known = set[int]()
        self._to_ask = set[int]()
        self._changed = deque[int]()

    def __setitem__(self, descriptor: int, each: Any) -> None:
        super().__setitem__(descriptor, each)
        self._to_ask.add(descriptor)

    def __delitem__(self, descriptor: int) -> None:
        super().__delitem__(descriptor)
        if descriptor in self._known:
            self._known.remove(descriptor)
            self._epoll.unregister(descriptor)

    def ask_all(self) -> None:
        """Ask every socket what it wants, before the next turn."""
        self._to_ask.update(self)

    def turn(self, seconds: float) -> None:
        """Wait so long at most for sockets that are ready, and have each do its part."""
        for _ in range(len(self._changed)):
            self._to_ask.add(self._changed.popleft())
        while self._to_ask:
            self._ask(self._to_ask.pop())
        # One that is closed meanwhile may leave its number to a new one, which these events are not for.
        ready = [(each, self[each], events) for each, events in self._epoll.poll(seconds)]
        ready.sort(key=lambda each: not isinstance(each[1], trigger))  # before any request
        self._to_ask.update(descriptor for descriptor, _, _ in ready)
        for descriptor, each, events in ready:
            if self.get(descriptor) is not each:
                continue
            if wanted := _wanted_by(each):
                wasyncore.readwrite(each, events & (wanted | _BROKEN))

    def _ask(self, descriptor: int) -> None:
        each = self.get(descriptor)
        wanted = 0 if each is None else _wanted_by(each)
        if not wanted:
            return
        if descriptor in self._known:
            self._epoll.modify(descriptor, wanted | select.EPOLLONESHOT)
        else:
            self._epoll.register(descriptor, wanted | select.EPOLLONESHOT)
            self._known.add(descriptor)

    # --- for threads ---

    def resume(self, channel: Any) -> bool:
        """Wait for data of one that a thread has served, or return True where it has something to send or to close, for
        which the server's thread is to be woken. For a socket that is closed meanwhile, another may be asked in vain.
        """
        descriptor = channel._fileno
        if descriptor is None:
            return False
        if channel.writable():
            self.changed(descriptor)
            return True
        if channel.readable():
            with suppress(OSError):
                self._epoll.modify(descriptor, _DATA | select.EPOLLONESHOT)
        return False

    def changed(self, descriptor: int | None) -> None:
        """Ask it what it wants, before the next turn."""
        if descriptor is not None:
            self._changed.append(descriptor)


def _wanted_by(each: Any) -> int:
    wanted = _DATA if each.readable() else 0
    return wanted | select.EPOLLOUT if each.writable() and not each.accepting else wanted
