"""The actual state: of processes from the supervisor, of metrics from the collector.

Neither is needed to read a configuration: without the supervisor `runtime` is None, without the collector all metrics
are zero.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from actors.bus.messages.accounts import OpenOfAccounts, QueryOpen
from actors.bus.messages.common import METRICS, SUPERVISOR
from actors.bus.messages.metrics import (
    ProxyStats,
    QueryRealtime,
    QueryStats,
    QuerySystem,
    Realtime,
    Stats,
    SystemMetrics,
)
from actors.bus.messages.supervision import QueryRuntime, Runtime, RuntimeReport, asleep_runtime
from api.bus_bridge import Bridge

PROXY_IDS, ACCOUNT_IDS = "prx_", "acc_"
"""Begin the ids of proxies, and of accounts."""
FLEET_TIMEOUT = 3.0
STATS_TIMEOUT = 1.0
REMEMBERED = 0.1
"""Seconds that a reply is cached, since requests may be many and each costs both sides time."""
REREAD = 300.0
"""Seconds after which all totals are asked for again; those of proxies that were deleted go by that."""

NO_STATS = ProxyStats()


def rates_of(bridge: Bridge, beginning: str) -> dict[str, int]:
    """Bytes per second now, by the ids that begin so; none while the collector does not reply."""
    reply = bridge.ask(METRICS, QueryRealtime(busy=beginning), STATS_TIMEOUT)
    return {each: use.rates[-1] for each, use in reply.recent.items()} if isinstance(reply, Realtime) else {}


def connections_of(bridge: Bridge, beginning: str) -> dict[str, int]:
    """Open connections of accounts, as `rates_of`."""
    reply = bridge.ask(METRICS, QueryOpen(beginning), STATS_TIMEOUT)
    return reply.connections if isinstance(reply, OpenOfAccounts) else {}


class RuntimeQueries:
    """Queries of the supervisor and the collector. Thread-safe.

    A reply is cached for `remembered` seconds, but not beyond a change that was sent to the supervisor.
    """

    def __init__(self, bridge: Bridge, remembered: float = REMEMBERED) -> None:
        self.remembered = remembered
        self._bridge = bridge
        self._asking = threading.Lock()
        self._changes = 0
        self._whole: tuple[float, int, RuntimeReport | None] = (-math.inf, 0, None)
        self._stats = _StatsMirror(bridge)
        self._asleep: dict[str, Runtime] = {}
        self._asleep_step = 0

    def changed(self) -> None:
        """A change was sent to the supervisor: earlier replies are no longer used."""
        self._changes += 1

    def whole(self) -> RuntimeReport | None:
        """Everything that has a process, as of a moment ago; None when the supervisor doesn't reply."""
        found = self._whole
        if not self._is_good(found):
            with self._asking:
                found = self._whole
                if not self._is_good(found):
                    changes = self._changes  # one that comes meanwhile may not be in the reply
                    found = self._whole = (time.monotonic(), changes, self._describe())
        return found[2]

    def runtimes(self) -> dict[str, Runtime] | None:
        """By proxy id, the runtime of those that have one; None when the supervisor doesn't reply."""
        fleet = self.whole()
        return None if fleet is None else fleet.proxies

    def pools_in_use(self) -> tuple[str, ...] | None:
        """The names of the pools that a proxy which is active may use; None when the supervisor doesn't reply."""
        fleet = self.whole()
        return None if fleet is None else fleet.pools

    def stats(self) -> Mapping[str, ProxyStats]:
        """By proxy id, the totals of those that have any; empty when the collector doesn't reply."""
        return self._stats.get(self.remembered)

    def totals(self, proxy_ids: tuple[str, ...] = ()) -> dict[str, ProxyStats] | None:
        """All totals of these proxies, of all when none is named; None when the collector doesn't reply."""
        reply = self._bridge.ask(METRICS, QueryStats(proxy_ids, detailed=True), STATS_TIMEOUT)
        return reply.proxies if isinstance(reply, Stats) else None

    def system(self) -> SystemMetrics | None:
        """The metrics of the system; None when the collector doesn't reply."""
        reply: Any = self._bridge.ask(METRICS, QuerySystem(), STATS_TIMEOUT)
        return reply if isinstance(reply, SystemMetrics) else None

    def _is_good(self, reply: tuple[float, int, RuntimeReport | None]) -> bool:
        asked, changes, _ = reply
        return changes == self._changes and time.monotonic() - asked < self.remembered

    def _describe(self) -> RuntimeReport | None:
        query = QueryRuntime((), stopped=False, asleep_since=self._asleep_step)
        reply = self._bridge.ask(SUPERVISOR, query, FLEET_TIMEOUT)
        return self._with_sleepers(reply) if isinstance(reply, RuntimeReport) else None

    def _with_sleepers(self, report: RuntimeReport) -> RuntimeReport:
        """Thousands may sleep, so only those are read that have changed since the last report."""
        if report.asleep_all:
            self._asleep.clear()
        for each in report.woken:
            self._asleep.pop(each, None)
        for each, found in report.asleep.items():
            self._asleep[each] = asleep_runtime(*found)
        self._asleep_step = report.asleep_step
        return replace(report, proxies={**self._asleep, **report.proxies})


class _StatsMirror:
    """The totals of all proxies, of which only the changed ones are read again. Thread-safe."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self._asking = threading.Lock()
        self._asked = self._read_whole = -math.inf
        self._as_of = 0.0
        self._known: dict[str, ProxyStats] = {}
        self._replied = False

    def get(self, remembered: float) -> Mapping[str, ProxyStats]:
        """By proxy id; empty when the collector does not reply."""
        if time.monotonic() - self._asked >= remembered:
            with self._asking:
                if time.monotonic() - self._asked >= remembered:
                    self._ask()
        return self._known if self._replied else {}

    def _ask(self) -> None:
        began = time.monotonic()
        whole = began - self._read_whole >= REREAD
        reply = self._bridge.ask(METRICS, QueryStats((), since=0.0 if whole else self._as_of), STATS_TIMEOUT)
        self._replied = isinstance(reply, Stats)
        if isinstance(reply, Stats):
            self._as_of = reply.as_of
            if whole:
                self._known, self._read_whole = reply.proxies, began
            else:
                self._known.update(reply.proxies)
        self._asked = began
