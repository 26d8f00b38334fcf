"""Which proxies sleep, and what the supervisor does for them in place of a process.

A sleeping proxy has no managed actor, so that what is done for each actor each second costs nothing for it: an entry
here, its listening sockets and its desired state are all there is.

A client may come at any moment, so all that matters is one order, and it is in this module and in
`actors.forwarding.sleeper` alone:

=====  ==========================================  ===========================================================
step   process                                     supervisor
=====  ==========================================  ===========================================================
1      reports that it has no client (`Idle`)      when all workers of the proxy have: `Sleep` to each
2      accepts what waits; with a client: Failed
3      accepts no more: `Done`
4                                                  when all have replied `Done`: watches the sockets
5                                                  looks at them: is one readable, has any failed, or does
                                                   something else happen to the proxy by now, or has it other
                                                   processes, then `Resume` to all, and nothing has happened
6      drains and ends                             else the proxy sleeps, and its processes are stopped
7                                                  a socket is readable: watches none of them, starts it
=====  ==========================================  ===========================================================

A client that comes before step 3 is accepted in step 2, or keeps the sockets readable until step 5. One that comes
later makes a watched socket readable. So none waits for a process that isn't there.

Who watches thousands reads only what has changed: each falling asleep and waking is a step, and who knows the state as
of a step asks for what has changed since.
"""

from __future__ import annotations

import logging
import select
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from actors.bus.mailbox import Reply, address_of
from actors.bus.messages.common import Done, actor_proxy, forwarding_name
from actors.bus.messages.forwarding import Idle, Resume, Sleep
from actors.bus.messages.specs import ProxySpec
from actors.supervision.handover import Predecessors
from actors.supervision.listeners.registry import ListenerRegistry
from actors.supervision.processes.actor_specs import SupervisionContext
from actors.supervision.processes.managed_actor import ManagedActor
from actors.supervision.proxies.desired_proxies import DesiredProxies

log = logging.getLogger(__name__)


SLEEP_REPLY_MAX = 5.0
"""Seconds that a process may take to stop accepting."""


class Watches(Protocol):
    """What watches descriptors, as `actors.bus.loop.Loop` does."""

    def watch(self, fd: int, mask: int, handler: Callable[[int], None]) -> None:
        """Call `handler` as long as it is ready."""

    def unwatch(self, fd: int) -> None:
        """Stop that. Harmless when it isn't watched."""


class Recipients(Protocol):
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


class _SleepAttempt:
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
        processes: Recipients,
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
        self._attempts: dict[str, _SleepAttempt] = {}
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
            attempt = self._attempts[proxy_id] = _SleepAttempt(all_of_it)
            for each in all_of_it:
                self._processes.ask(each, Sleep(), partial(self._replied, proxy_id, attempt, each), SLEEP_REPLY_MAX)

    def _cancel(self, proxy_id: str) -> None:
        """Its processes are to go on."""
        for each in self._attempts.pop(proxy_id).asked:
            self._processes.tell(each, Resume())

    def _replied(self, proxy_id: str, attempt: _SleepAttempt, process: str, reply: object) -> None:
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


CHANGES_MAX = 4096
"""Changes that are remembered; who knows only an older state gets all that sleep."""


class SleepLog:
    """The last changes, by step: `step` is that of the last one, 0 when there was none."""

    def __init__(self) -> None:
        self.step = 0
        self._changed: deque[str] = deque(maxlen=CHANGES_MAX)

    def note(self, proxy_id: str) -> None:
        """It sleeps from now on, or no longer."""
        self.step += 1
        self._changed.append(proxy_id)

    def since(self, step: int) -> set[str] | None:
        """Those that have changed since that step; None when that isn't known any more, or never was."""
        missing = self.step - step
        if step < 1 or not 0 <= missing <= len(self._changed):
            return None
        return {self._changed[-1 - index] for index in range(missing)}

    def __repr__(self) -> str:
        return f"<SleepLog: step {self.step}>"


AWAKE_MAX = 200
"""Proxies with processes above which one that is made or started begins asleep, where it may sleep."""


class AwakeProxies(Protocol):
    """The processes of proxies."""

    @property
    def by_id(self) -> Mapping[str, object]:
        """Those that have any."""

    def of_proxy(self, proxy_id: str) -> Sequence[ManagedActor]:
        """The workers of a proxy."""

    def sleep(self, proxy_id: str) -> None:
        """Have its processes end, which accept nothing and have no client."""


class Sleepers:
    """`by_id` are those that sleep; one that is `waking` is among them until its first process is requested.

    `start` starts a proxy, unless the program ends.
    """

    def __init__(
        self,
        context: SupervisionContext,
        desired: DesiredProxies,
        listeners: ListenerRegistry,
        predecessors: Predecessors,
        start: Callable[[str], None],
    ) -> None:
        self.by_id: dict[str, Asleep] = {}
        self.log = SleepLog()
        self.waking: set[str] = set()
        self.ending = False
        """The program ends: none goes to sleep any more."""
        self.awake: AwakeProxies | None = None
        self._desired = desired
        self._listeners = listeners
        self._predecessors = predecessors
        self._start = start
        self._watch = SleepWatch(
            context.loop, context.router, self._sockets_of, self._are_still_idle, self._fell_asleep, self.wake
        )

    def __contains__(self, proxy_id: str) -> bool:
        return proxy_id in self.by_id

    # --- going to sleep ---

    def idle(self, sender: str, message: Idle, _reply: Reply) -> None:
        """A process has had no client for long enough."""
        proxy_id = actor_proxy(sender)
        if self._may_sleep(proxy_id):
            serving = self._serving(proxy_id)
            process = address_of(sender, message.instance)
            if process in serving:
                self._watch.idle(proxy_id, process, serving)

    def begin_asleep(self, spec: ProxySpec) -> None:
        """Let a proxy begin its life asleep, if it may sleep and has not begun yet.

        One whose predecessor serves begins awake, so that it can end that.
        """
        begins = spec.active and spec.sleep_after > 0 and spec.id not in self.by_id
        if begins and not self._processes(spec.id) and not self._predecessors.has(forwarding_name(spec.id)):
            self._put(spec.id, Asleep(time.time(), 0))

    @property
    def many_awake(self) -> bool:
        """True if one that is made or started had better begin asleep."""
        return self.awake is not None and len(self.awake.by_id) >= AWAKE_MAX

    def _may_sleep(self, proxy_id: str) -> bool:
        """Whether that is wanted, and nothing is under way with its processes."""
        spec = self._desired.get(proxy_id)
        if self.ending or spec is None or not (spec.active and spec.sleep_after):
            return False
        processes = self._processes(proxy_id)
        settled = bool(processes) and all(each.is_settled for each in processes)
        return settled and not self._predecessors.has(forwarding_name(proxy_id))

    def _are_still_idle(self, proxy_id: str, asked: tuple[str, ...]) -> bool:
        """Whether it may sleep with these processes. One that was made since they were asked may have clients."""
        return self._may_sleep(proxy_id) and self._serving(proxy_id) == asked

    def _serving(self, proxy_id: str) -> tuple[str, ...]:
        """The addresses of its processes, all of which serve."""
        name = forwarding_name(proxy_id)
        return tuple(address_of(name, each.serving or 0) for each in self._processes(proxy_id))

    def _fell_asleep(self, proxy_id: str) -> None:
        restarts = sum(each.life.restarts for each in self._processes(proxy_id))
        self._put(proxy_id, Asleep(time.time(), restarts))
        log.info("%s sleeps", self._desired.label(forwarding_name(proxy_id)))
        if self.awake is not None:
            self.awake.sleep(proxy_id)

    def _processes(self, proxy_id: str) -> Sequence[ManagedActor]:
        return () if self.awake is None else self.awake.of_proxy(proxy_id)

    # --- asleep ---

    def listen(self, proxy_id: str) -> None:
        """Watch the sockets that it has now."""
        self._watch.watch(proxy_id)

    def release(self, proxy_id: str) -> None:
        """Its sockets are about to be others or to be closed. Harmless for one that doesn't sleep."""
        self._watch.unwatch(proxy_id)

    # --- waking ---

    def wake(self, proxy_id: str) -> None:
        """Start it, if it sleeps."""
        if proxy_id in self.by_id:
            self._watch.unwatch(proxy_id)
            self.waking.add(proxy_id)
            self._start(proxy_id)

    def end(self, proxy_id: str) -> Asleep | None:
        """It has a process again, or is not to run; what it was. None if it did not sleep."""
        self._watch.unwatch(proxy_id)
        self.waking.discard(proxy_id)
        if proxy_id in self.by_id:
            self.log.note(proxy_id)
        return self.by_id.pop(proxy_id, None)

    def forget(self, proxy_id: str) -> None:
        """It is not to run any more."""
        self.end(proxy_id)
        self._watch.forget(proxy_id)

    def hand_over(self) -> None:
        """The next program has them from now on: none goes to sleep or is started here."""
        self.ending = True
        for proxy_id in self.by_id:
            self._watch.unwatch(proxy_id)

    def _put(self, proxy_id: str, asleep: Asleep) -> None:
        self.by_id[proxy_id] = asleep
        self.log.note(proxy_id)

    def _sockets_of(self, proxy_id: str) -> tuple[int, ...]:
        return tuple(each.fileno() for each in self._listeners.get(proxy_id))

    def __repr__(self) -> str:
        return f"<Sleepers: {len(self.by_id)}, {len(self.waking)} waking>"
