"""The proxies that sleep, and those that are about to: who watches their listening sockets, and when they wake.

A client may come at any moment, so all that matters is one order, and it is in this module and in
`actors.forwarding.sleeper` alone:

=====  ==========================================  ===========================================================
step   process                                     supervisor
=====  ==========================================  ===========================================================
1      reports that it has no client (`Idle`)      when all workers of the proxy have: `Sleep` to each
2      accepts what waits; with a client: Failed
3      accepts no more, leaves its pack: `Done`
4                                                  when all have replied `Done`: watches the sockets
5                                                  looks at them: is one readable, has any failed, or does
                                                   something else happen to the proxy by now, or has it other
                                                   processes, then `Resume` to all, and nothing has happened
6      drains and ends                             else the proxy sleeps, and its processes are stopped
7                                                  a socket is readable: watches none of them, starts it
=====  ==========================================  ===========================================================

A client that comes before step 3 is accepted in step 2, or keeps the sockets readable until step 5. One that comes
later makes a watched socket readable. So none waits for a process that isn't there.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Protocol

from actors.bus.messages.common import Done
from actors.bus.messages.forwarding import Resume, Sleep

SLEEP_REPLY_MAX = 5.0
"""Seconds that a process may take to leave its pack."""


class Watches(Protocol):
    """What watches descriptors, as `actors.bus.loop.Loop` does."""

    def watch(self, fd: int, mask: int, handler: Callable[[int], None]) -> None:
        """Call `handler` as long as it is ready."""

    def unwatch(self, fd: int) -> None:
        """Stop that. Harmless when it isn't watched."""


class Processes(Protocol):
    """The processes of proxies, as far as they are sent to sleep: each is known by its address on the bus."""

    def ask(self, to: str, message: Any, on_reply: Callable[[Any], None], timeout: float) -> None:
        """Send a request; the reply comes later, and in any case."""

    def tell(self, to: str, message: Any) -> bool:
        """Send a message."""


class Asleep:
    """A proxy that sleeps: since when, in Unix seconds, and how often it was restarted before."""

    __slots__ = ("restarts", "since")

    def __init__(self, since: float, restarts: int) -> None:
        self.since = since
        self.restarts = restarts

    def __repr__(self) -> str:
        return f"<Asleep since {self.since:.0f}>"


class _Attempt:
    """An attempt to send all processes of a proxy to sleep; `awaited` are those that have not replied yet."""

    __slots__ = ("asked", "awaited", "refused")

    def __init__(self, asked: tuple[str, ...]) -> None:
        self.asked = asked
        self.awaited = set(asked)
        self.refused = False


class SleepWatch:
    """See the module. Proxies are known by their ids.

    `sockets_of` returns the descriptors of a proxy's listening sockets, `may_sleep` whether these processes, and no
    others, serve it and nothing else happens to it.
    `on_asleep` is called when it sleeps from now on, with its processes still to be stopped, and `on_waking` when a
    client waits: to start it is all that is left.
    """

    def __init__(
        self,
        loop: Watches,
        processes: Processes,
        sockets_of: Callable[[str], Sequence[int]],
        may_sleep: Callable[[str, tuple[str, ...]], bool],
        on_asleep: Callable[[str], None],
        on_waking: Callable[[str], None],
        is_readable: Callable[[Iterable[int]], bool] | None = None,
    ) -> None:
        self._loop = loop
        self._processes = processes
        self._sockets_of = sockets_of
        self._may_sleep = may_sleep
        self._on_asleep = on_asleep
        self._on_waking = on_waking
        self._is_readable = is_readable or any_readable
        self._idle: dict[str, set[str]] = {}
        self._attempts: dict[str, _Attempt] = {}
        self._watched: dict[str, tuple[int, ...]] = {}

    # --- going to sleep ---

    def idle(self, proxy_id: str, process: str, all_of_it: tuple[str, ...]) -> None:
        """A process has had no client for long enough; when all of the proxy have, they are sent to sleep."""
        if proxy_id in self._attempts:
            return
        idle = self._idle.setdefault(proxy_id, set())
        idle.add(process)
        idle.intersection_update(all_of_it)
        if all_of_it and len(idle) == len(all_of_it):
            del self._idle[proxy_id]
            attempt = self._attempts[proxy_id] = _Attempt(all_of_it)
            for each in all_of_it:
                self._processes.ask(each, Sleep(), partial(self._replied, proxy_id, attempt, each), SLEEP_REPLY_MAX)

    def _cancel(self, proxy_id: str) -> None:
        """Its processes are to go on."""
        for each in self._attempts.pop(proxy_id).asked:
            self._processes.tell(each, Resume())

    def _replied(self, proxy_id: str, attempt: _Attempt, process: str, reply: object) -> None:
        if self._attempts.get(proxy_id) is not attempt:
            return
        attempt.awaited.discard(process)
        attempt.refused = attempt.refused or not isinstance(reply, Done)
        if attempt.awaited:
            return
        if attempt.refused or not self._may_sleep(proxy_id, attempt.asked):
            self._cancel(proxy_id)
            return
        self.watch(proxy_id)
        if self._is_readable(self._watched[proxy_id]):
            self.unwatch(proxy_id)
            self._cancel(proxy_id)
            return
        del self._attempts[proxy_id]
        self._on_asleep(proxy_id)

    # --- asleep ---

    def watch(self, proxy_id: str) -> None:
        """It sleeps, or its sockets are others: report when a client waits at one of those that it has now."""
        self.unwatch(proxy_id)
        descriptors = tuple(self._sockets_of(proxy_id))
        self._watched[proxy_id] = descriptors
        handler = partial(self._client_waits, proxy_id)
        for descriptor in descriptors:
            self._loop.watch(descriptor, select.EPOLLIN, handler)

    def unwatch(self, proxy_id: str) -> None:
        """It is started, or its sockets are about to be closed. Harmless when they aren't watched."""
        for descriptor in self._watched.pop(proxy_id, ()):
            self._loop.unwatch(descriptor)

    def forget(self, proxy_id: str) -> None:
        """It is not to run any more."""
        self.unwatch(proxy_id)
        self._idle.pop(proxy_id, None)

    def watches(self, proxy_id: str) -> bool:
        """Whether its sockets are watched."""
        return proxy_id in self._watched

    def _client_waits(self, proxy_id: str, _mask: int) -> None:
        if proxy_id in self._watched:
            self.unwatch(proxy_id)
            self._on_waking(proxy_id)

    def __repr__(self) -> str:
        return f"<SleepWatch: {len(self._watched)} watched, {len(self._attempts)} on the way>"


def any_readable(descriptors: Iterable[int]) -> bool:
    """Whether a client waits at one of these listening sockets."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))
