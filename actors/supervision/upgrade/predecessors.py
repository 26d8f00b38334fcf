"""Forwarding actors that an older program made and handed over (`actors.supervision.upgrade.handover`).

A predecessor accepts and serves until this program has a process in its place; then it drains, and ends by itself or
when its time is up (`server.upgrade_drain`). Later upgrades hand it on, `UPGRADES_MAX` of them. It was forked by a
zygote that is gone, so it is this process's child, and its pidfd becomes readable when it has ended. It reconnects to
the bus by itself and reports there as before.
"""

from __future__ import annotations

import logging
import math
import os
import select
import signal
from collections.abc import Callable, Iterable
from dataclasses import replace

from actors.bus.loop import Loop
from actors.bus.mailbox import MailboxRouter, address_of
from actors.bus.messages.common import Done, Stop, actor_proxy
from actors.bus.messages.forwarding import ConnectionFilter, ConnectionGroups, GroupConnections
from actors.process import ORPHAN_GRACE
from actors.supervision.callbacks import noop
from actors.supervision.upgrade.handover import Predecessor

log = logging.getLogger(__name__)

STOP_REPLY_MAX = 1.0
UPGRADES_MAX = 3
"""Through so many upgrades a process drains; then it has `server.drain_timeout` left, so that not ever more programs
are in memory."""
COUNT_FIRST = 1.0
"""Seconds until the first count: by then those that drained before have reconnected to the bus."""
COUNT_PERIOD = 10.0
"""Seconds between two counts of the connections that are open in those that drain."""
REPLY_MAX = 5.0
LOG_PERIOD = 600.0
"""Seconds between two lines about them."""
RETRY_AFTER = 0.05
"""Seconds until `Stop` is sent again: a predecessor may not have reconnected to the bus yet."""


class _Tracked:
    """One predecessor, with whether it was `asked` to drain, and has `acknowledged` that."""

    def __init__(self, predecessor: Predecessor, pidfd: int) -> None:
        self.predecessor = predecessor
        self.pidfd = pidfd
        self.asked = self.acknowledged = predecessor.leaving
        self.lifeline = predecessor.lifeline
        self.until = math.inf
        self.connections: int | None = None

    def close_lifeline(self) -> None:
        """End it soon, whatever it does (`actors.process`)."""
        if self.lifeline >= 0:
            os.close(self.lifeline)
            self.lifeline = -1

    def kill(self) -> None:
        """SIGKILL. Harmless when it has ended."""
        try:
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        except ProcessLookupError:
            return  # which its pidfd reports


class Predecessors:
    """See the module. `on_end` is called whenever one has ended."""

    def __init__(self, loop: Loop, router: MailboxRouter, predecessors: Iterable[Predecessor], drain: float) -> None:
        """`drain` is what those may take whose time is not known, or was long enough."""
        self._loop = loop
        self._router = router
        self._tracked: list[_Tracked] = []
        self.on_end: Callable[[], None] = noop
        self.on_process_end: Callable[[str, int], None] = lambda _proxy_id, _instance: None
        """Called with the proxy and the instance of one that has ended."""
        self._cut = 0
        self._logged_at = -math.inf
        for predecessor in predecessors:
            self._track(predecessor, drain)
        if self._tracked:
            loop.call_later(COUNT_FIRST, self._count)

    def __len__(self) -> int:
        return len(self._tracked)

    def names(self) -> set[str]:
        """The actors that have predecessors which still accept."""
        return {each.predecessor.name for each in self._tracked if not each.asked}

    def has(self, name: str) -> bool:
        """Whether one of this name lives, whatever it does."""
        return any(each.predecessor.name == name for each in self._tracked)

    def instances(self) -> dict[str, tuple[int, ...]]:
        """By proxy, the instances of those that drain."""
        found: dict[str, tuple[int, ...]] = {}
        for each in self._draining():
            proxy_id = actor_proxy(each.predecessor.name)
            found[proxy_id] = (*found.get(proxy_id, ()), each.predecessor.instance)
        return found

    @property
    def connections(self) -> int:
        """How many are open in those that drain, as of the last count."""
        return sum(each.connections or 0 for each in self._draining())

    @property
    def until(self) -> float:
        """When the last of those that drain has to end, of the loop's clock; 0 without any."""
        return max((each.until for each in self._draining()), default=0.0)

    def was_cut(self, connections: int) -> None:
        """So many were open in one of them at the end of its time."""
        self._cut += connections

    def drain_all(self, seconds: float) -> None:
        """Have all drain for no longer than that."""
        for name in {each.predecessor.name for each in self._tracked}:
            self.drain(name, seconds)

    def drain(self, name: str, seconds: float) -> None:
        """Have the predecessors of this name stop accepting and drain: a successor runs, or none is desired. Those that
        drain already have no more time than that."""
        for each in self._tracked:
            if each.predecessor.name == name and (not each.asked or self._loop.now + seconds < each.until):
                each.asked = True
                self._limit(each, seconds)
                self._ask(each, seconds)

    def hand_over(self) -> list[Predecessor]:
        """Those that live, for the next program; this one has none any more."""
        tracked, self._tracked = self._tracked, []
        for each in tracked:
            self._loop.unwatch(each.pidfd)
            os.close(each.pidfd)
        return [
            replace(
                each.predecessor,
                lifeline=each.lifeline,
                leaving=each.acknowledged,
                until=each.until if each.acknowledged else 0.0,
                upgrades=each.predecessor.upgrades + each.acknowledged,
            )
            for each in tracked
            if each.lifeline >= 0
        ]

    def kill_all(self) -> None:
        """SIGKILL to all that live."""
        for each in self._tracked:
            each.kill()

    def _track(self, predecessor: Predecessor, drain: float) -> None:
        try:
            pidfd = os.pidfd_open(predecessor.pid)
        except ProcessLookupError:
            os.close(predecessor.lifeline)
            return
        tracked = _Tracked(predecessor, pidfd)
        self._tracked.append(tracked)
        self._loop.watch(pidfd, select.EPOLLIN, lambda _mask: self._ended(tracked))
        if predecessor.leaving and predecessor.upgrades <= UPGRADES_MAX and predecessor.until:
            self._limit(tracked, max(0.0, predecessor.until - self._loop.now))
        elif predecessor.leaving:
            self._limit(tracked, drain)
            self._ask(tracked, drain)

    def _draining(self) -> list[_Tracked]:
        return [each for each in self._tracked if each.asked]

    def _count(self) -> None:
        """Ask each that drains how many connections are open; the sum is in the log now and then."""
        if not self._tracked:
            return
        self._loop.call_later(COUNT_PERIOD, self._count)
        waiting = self._draining()
        left = len(waiting)

        def counted() -> None:
            nonlocal left
            left -= 1
            if not left:
                self._log()

        for each in waiting:
            self._count_one(each, counted)

    def _count_one(self, tracked: _Tracked, on_reply: Callable[[], None] = noop) -> None:
        def counted(reply: object) -> None:
            if isinstance(reply, ConnectionGroups):
                tracked.connections = sum(count for count, _, _ in reply.groups.values())
            on_reply()

        to = address_of(tracked.predecessor.name, tracked.predecessor.instance)
        self._router.ask(to, GroupConnections(ConnectionFilter(), None, 1), counted, REPLY_MAX)

    def _log(self) -> None:
        if self._loop.now - self._logged_at >= LOG_PERIOD and self._draining():
            self._logged_at = self._loop.now
            text = "older processes that drain for up to %.0f s more: %d, connections that are open in them: %d"
            log.info(text, self.until - self._loop.now, len(self._draining()), self.connections)

    def _ask(self, tracked: _Tracked, drain: float) -> None:
        def replied(reply: object) -> None:
            if isinstance(reply, Done):
                tracked.acknowledged = True
                self._count_one(tracked)
            else:
                self._loop.call_later(RETRY_AFTER, again)

        def again() -> None:
            if tracked in self._tracked:
                self._ask(tracked, drain)

        to = address_of(tracked.predecessor.name, tracked.predecessor.instance)
        self._router.ask(to, Stop(drain), replied, STOP_REPLY_MAX)

    def _limit(self, tracked: _Tracked, drain: float) -> None:
        """End it when its time to drain is over: by its lifeline, and at last by SIGKILL."""

        def unless_ended(act: Callable[[], None]) -> Callable[[], None]:
            return lambda: act() if tracked in self._tracked else None

        tracked.until = self._loop.now + drain
        self._loop.call_later(drain + ORPHAN_GRACE, unless_ended(tracked.close_lifeline))
        self._loop.call_later(drain + 2 * ORPHAN_GRACE, unless_ended(tracked.kill))

    def _ended(self, tracked: _Tracked) -> None:
        log.info("predecessor %s exited (pid %s)", tracked.predecessor.name, tracked.predecessor.pid)
        self._loop.unwatch(tracked.pidfd)
        os.close(tracked.pidfd)
        tracked.close_lifeline()
        self._tracked.remove(tracked)
        if not self._tracked:
            log.info("the last older process has ended; connections that were cut: %d", self._cut)
        self.on_process_end(actor_proxy(tracked.predecessor.name), tracked.predecessor.instance)
        self.on_end()
