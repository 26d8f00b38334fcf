"""Processes with accounts and a collector in one process, by a clock set by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from actors.bus.loop import Loop
from actors.bus.messages.accounts import ReportUsage, Totals
from actors.bus.messages.common import METRICS, Unreachable
from actors.bus.messages.specs import AccountSpec, ProxySpec
from actors.forwarding.limits.limits import LimitsOfProxy
from actors.forwarding.limits.usage import AccountCounter
from actors.forwarding.reporting.usage_reporter import UsageReporter
from actors.metrics.account_usage import UsageLedger
from actors.state.counts import LiveState
from tests.kit.forwarding_rig import spec


class Hand:
    """A clock that is set by hand."""

    time = 100.0

    def __call__(self) -> float:
        return self.time


class Collector:
    """A collector at the other end of a mailbox; `down` while it cannot be reached, `silent` while it hangs."""

    def __init__(self, loop: Loop, folder: Path) -> None:
        self._loop = loop
        self.book = UsageLedger(folder)
        self.down = self.silent = False
        self.reports: list[ReportUsage] = []

    def ask(self, to: str, message: Any, on_reply: Callable[[Any], None], timeout: float = 5.0) -> None:
        assert to == METRICS
        self.reports.append(message)
        if self.silent:
            self._loop.call_later(timeout, lambda: on_reply(Unreachable(to, "no reply in time")))
            return
        reply = Unreachable(to, "it is not on the bus") if self.down else self.store(message)
        self._loop.call_soon(lambda: on_reply(reply))

    def store(self, message: ReportUsage) -> Totals:
        with self.book.changes():
            return Totals(self.book.update(message))


class Process:
    """The accounts of one process of a proxy."""

    def __init__(self, world: World, instance: int, proxy_id: str = "px1", state: LiveState | None = None) -> None:
        self.limits = LimitsOfProxy(world.loop, state)
        self.proxy_id = proxy_id
        self.reporter = UsageReporter(world.loop, world.collector, self.limits, instance)  # type: ignore[arg-type]

    def configure(self, *accounts: AccountSpec) -> None:
        config: ProxySpec = spec(1, id=self.proxy_id, accounts=accounts, auth_required=True)
        self.limits.configure(config)
        self.reporter.configured(config.id)

    @property
    def ada(self) -> AccountCounter:
        return self.limits.accounts["ada"].usage

    def uses(self, count: int) -> None:
        self.ada.count(True, count)

    def knows(self) -> int:
        return self.ada.state().usage.bytes_in


class World:
    def __init__(self, folder: Path) -> None:
        self.hand = Hand()
        self.loop = Loop(self.hand)
        self.collector = Collector(self.loop, folder)

    def pass_time(self, seconds: float) -> None:
        for _ in range(round(seconds * 10)):
            self.hand.time += 0.1
            self.turn()

    def turn(self) -> None:
        """Let what is due be done, and no time pass."""
        for _ in range(3):
            self.loop.turn(0)

    def kept(self) -> int:
        return self.collector.book.usage({"acc_1": "total"})["acc_1"].usage.bytes_in


ADA = AccountSpec("acc_1", "ada", None, quota=1000)
