"""Forwarding actors that an older program has made and left to this one (`actors.supervision.upgrade.handover`).

An elder accepts and serves until this program has a process in its place; then it is asked to drain, and ends by
itself or when its time is up. It was forked by a zygote that is gone, so it is this process's child, and its pidfd says
when it has ended. What it has to say to others it says on the bus, to which it comes back by itself.
"""

from __future__ import annotations

import logging
import os
import select
import signal
from collections.abc import Callable, Iterable
from dataclasses import replace

from actors.bus.loop import Loop
from actors.bus.mailbox import Exchange, address_of
from actors.bus.messages.common import Done, Stop
from actors.process import ORPHAN_GRACE
from actors.supervision.callbacks import nothing
from actors.supervision.upgrade.handover import Elder

log = logging.getLogger(__name__)

STOP_ANSWER_MAX = 1.0
ASK_AGAIN = 0.05
"""Seconds until it is asked again: it may not be back on the bus yet."""


class _Predecessor:
    def __init__(self, elder: Elder, pidfd: int) -> None:
        self.elder = elder
        self.pidfd = pidfd
        self.asked = self.told = elder.leaving
        self.lifeline = elder.lifeline

    def let_go(self) -> None:
        """It ends soon, whatever it does (`actors.process`)."""
        if self.lifeline >= 0:
            os.close(self.lifeline)
            self.lifeline = -1

    def kill(self) -> None:
        """SIGKILL. Harmless when it has ended."""
        try:
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        except ProcessLookupError:
            return  # its pidfd says so, too


class Predecessors:
    """See the module. `on_end` is called whenever one has ended."""

    def __init__(self, loop: Loop, exchange: Exchange, elders: Iterable[Elder], drain: float) -> None:
        self._loop = loop
        self._exchange = exchange
        self._known: list[_Predecessor] = []
        self.on_end: Callable[[], None] = nothing
        for elder in elders:
            self._take(elder, drain)

    def __len__(self) -> int:
        return len(self._known)

    def names(self) -> set[str]:
        """The actors that have elders which serve."""
        return {known.elder.name for known in self._known if not known.asked}

    def dismiss(self, name: str, drain: float) -> None:
        """There is another process of this name, or none is wanted: its elders accept nothing new and drain."""
        for known in self._known:
            if known.elder.name == name and not known.asked:
                known.asked = True
                self._time_out(known, drain)
                self._ask(known, drain)

    def bequeath(self) -> list[Elder]:
        """Those that live, for the next program; this one has none any more."""
        known, self._known = self._known, []
        for each in known:
            self._loop.unwatch(each.pidfd)
            os.close(each.pidfd)
        return [replace(each.elder, lifeline=each.lifeline, leaving=each.told) for each in known if each.lifeline >= 0]

    def hasten(self) -> None:
        """No more time."""
        for known in self._known:
            known.kill()

    def _take(self, elder: Elder, drain: float) -> None:
        try:
            pidfd = os.pidfd_open(elder.pid)
        except ProcessLookupError:
            os.close(elder.lifeline)
            return
        known = _Predecessor(elder, pidfd)
        self._known.append(known)
        self._loop.watch(pidfd, select.EPOLLIN, lambda _mask: self._ended(known))
        if elder.leaving:
            self._time_out(known, drain)

    def _ask(self, known: _Predecessor, drain: float) -> None:
        def heard(reply: object) -> None:
            if isinstance(reply, Done):
                known.told = True
            else:
                self._loop.call_later(ASK_AGAIN, again)

        def again() -> None:
            if known in self._known:
                self._ask(known, drain)

        to = address_of(known.elder.name, known.elder.instance)
        self._exchange.ask(to, Stop(drain), heard, STOP_ANSWER_MAX)

    def _time_out(self, known: _Predecessor, drain: float) -> None:
        def then(act: Callable[[], None]) -> Callable[[], None]:
            return lambda: act() if known in self._known else None

        self._loop.call_later(drain + ORPHAN_GRACE, then(known.let_go))
        self._loop.call_later(drain + 2 * ORPHAN_GRACE, then(known.kill))

    def _ended(self, known: _Predecessor) -> None:
        log.info("%s of the older program has ended (pid %s)", known.elder.name, known.elder.pid)
        self._loop.unwatch(known.pidfd)
        os.close(known.pidfd)
        known.let_go()
        self._known.remove(known)
        self.on_end()
