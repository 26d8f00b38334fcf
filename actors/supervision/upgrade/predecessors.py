"""Forwarding actors that an older program made and handed over (`actors.supervision.upgrade.handover`).

A predecessor accepts and serves until this program has a process in its place; then it drains, and ends by itself or
when its time is up. It was forked by a zygote that is gone, so it is this process's child, and its pidfd becomes
readable when it has ended. It reconnects to the bus by itself and reports there as before.
"""

from __future__ import annotations

import logging
import os
import select
import signal
from collections.abc import Callable, Iterable
from dataclasses import replace

from actors.bus.loop import Loop
from actors.bus.mailbox import MailboxRouter, address_of
from actors.bus.messages.common import Done, Stop, actor_proxy
from actors.process import ORPHAN_GRACE
from actors.supervision.callbacks import noop
from actors.supervision.upgrade.handover import Predecessor

log = logging.getLogger(__name__)

STOP_REPLY_MAX = 1.0
RETRY_AFTER = 0.05
"""Seconds until `Stop` is sent again: a predecessor may not have reconnected to the bus yet."""


class _Tracked:
    """One predecessor, with whether it was `asked` to drain, and has `acknowledged` that."""

    def __init__(self, predecessor: Predecessor, pidfd: int) -> None:
        self.predecessor = predecessor
        self.pidfd = pidfd
        self.asked = self.acknowledged = predecessor.leaving
        self.lifeline = predecessor.lifeline

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
        self._loop = loop
        self._router = router
        self._tracked: list[_Tracked] = []
        self.on_end: Callable[[], None] = noop
        self.on_process_end: Callable[[str, int], None] = lambda _proxy_id, _instance: None
        """Called with the proxy and the instance of one that has ended."""
        for predecessor in predecessors:
            self._track(predecessor, drain)

    def __len__(self) -> int:
        return len(self._tracked)

    def names(self) -> set[str]:
        """The actors that have predecessors which still accept."""
        return {each.predecessor.name for each in self._tracked if not each.asked}

    def has(self, name: str) -> bool:
        """Whether one of this name lives, whatever it does."""
        return any(each.predecessor.name == name for each in self._tracked)

    def drain(self, name: str, seconds: float) -> None:
        """Have the predecessors of this name stop accepting and drain: a successor runs, or none is desired."""
        for each in self._tracked:
            if each.predecessor.name == name and not each.asked:
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
            replace(each.predecessor, lifeline=each.lifeline, leaving=each.acknowledged)
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
        if predecessor.leaving:
            self._limit(tracked, drain)

    def _ask(self, tracked: _Tracked, drain: float) -> None:
        def replied(reply: object) -> None:
            if isinstance(reply, Done):
                tracked.acknowledged = True
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

        self._loop.call_later(drain + ORPHAN_GRACE, unless_ended(tracked.close_lifeline))
        self._loop.call_later(drain + 2 * ORPHAN_GRACE, unless_ended(tracked.kill))

    def _ended(self, tracked: _Tracked) -> None:
        log.info("predecessor %s exited (pid %s)", tracked.predecessor.name, tracked.predecessor.pid)
        self._loop.unwatch(tracked.pidfd)
        os.close(tracked.pidfd)
        tracked.close_lifeline()
        self._tracked.remove(tracked)
        self.on_process_end(actor_proxy(tracked.predecessor.name), tracked.predecessor.instance)
        self.on_end()
