"""Which proxies sleep, and what the supervisor does for them in place of a process.

A sleeping proxy has no managed actor, so that what is done for each actor each second costs nothing for it: an entry
here, its listening sockets and its desired state are all there is.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from actors.bus.mailbox import Reply, address_of
from actors.bus.messages.common import actor_proxy, forwarding_name
from actors.bus.messages.forwarding import Idle
from actors.bus.messages.specs import ProxySpec
from actors.supervision.asleep import Asleep, SleepWatch
from actors.supervision.desired_proxies import DesiredProxies
from actors.supervision.listeners.registry import ListenerRegistry
from actors.supervision.processes.actor_spec import SupervisionContext
from actors.supervision.processes.managed_actor import ManagedActor
from actors.supervision.sleep_log import SleepLog
from actors.supervision.upgrade.predecessors import Predecessors

log = logging.getLogger(__name__)

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
        self._packs = context.packs
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
        """It is not to run any more: what its processes have left is removed."""
        self.end(proxy_id)
        self._watch.forget(proxy_id)
        folder = self._packs / proxy_id
        try:
            for pack in folder.glob("asleep.*"):
                pack.unlink(missing_ok=True)
            folder.rmdir()
        except FileNotFoundError:
            return
        except OSError as error:
            log.debug("the folder of what processes of %s leave stays: %s", proxy_id, error)

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
