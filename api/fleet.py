"""What is really so, asked of those who know: the supervisor for processes, the collector for figures.

Neither is needed to read a configuration: without the supervisor `runtime` is None, without the collector all figures
are zero.
"""

from __future__ import annotations

import math
import threading
import time
from typing import Any

from actors.bus.messages import (
    METRICS,
    SUPERVISOR,
    DescribeFleet,
    ProxyStats,
    QueryStats,
    QuerySystem,
    Runtime,
    Stats,
    SystemFigures,
)
from actors.bus.messages import Fleet as FleetMessage
from api.bridge import Bridge

FLEET_TIMEOUT = 3.0
STATS_TIMEOUT = 1.0
REMEMBERED = 0.5
"""Seconds that the whole fleet is remembered: health is polled by anybody, and asking costs the supervisor time."""

NO_STATS = ProxyStats(0, 0, 0, 0, 0, 0, 0, 0, 0.0, 0.0)


class Fleet:
    """Questions to the supervisor and the collector. Thread-safe."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self._lock = threading.Lock()
        self._whole: tuple[float, FleetMessage | None] = (-math.inf, None)

    def whole(self) -> FleetMessage | None:
        """The whole fleet as it was a moment ago; None when the supervisor doesn't answer."""
        with self._lock:
            asked, fleet = self._whole
            if time.monotonic() - asked > REMEMBERED:
                fleet = self._describe(())
                self._whole = (time.monotonic(), fleet)
            return fleet

    def runtimes(self, proxy_ids: tuple[str, ...]) -> dict[str, Runtime] | None:
        """The runtime of these proxies as far as they have one; None when the supervisor doesn't answer."""
        if not proxy_ids:
            return {}
        fleet = self._describe(proxy_ids)
        return None if fleet is None else fleet.proxies

    def stats(self, proxy_ids: tuple[str, ...]) -> dict[str, ProxyStats]:
        """The totals of these proxies, as far as there are any."""
        if not proxy_ids:
            return {}
        reply = self._bridge.ask(METRICS, QueryStats(proxy_ids), STATS_TIMEOUT)
        return reply.proxies if isinstance(reply, Stats) else {}

    def totals(self, proxy_ids: tuple[str, ...] = ()) -> dict[str, ProxyStats] | None:
        """All totals of these proxies, of all when none is named; None when the collector doesn't answer."""
        reply = self._bridge.ask(METRICS, QueryStats(proxy_ids, detailed=True), STATS_TIMEOUT)
        return reply.proxies if isinstance(reply, Stats) else None

    def system(self) -> SystemFigures | None:
        """The system's figures; None when the collector doesn't answer."""
        reply: Any = self._bridge.ask(METRICS, QuerySystem(), STATS_TIMEOUT)
        return reply if isinstance(reply, SystemFigures) else None

    def _describe(self, proxy_ids: tuple[str, ...]) -> FleetMessage | None:
        reply = self._bridge.ask(SUPERVISOR, DescribeFleet(proxy_ids), FLEET_TIMEOUT)
        return reply if isinstance(reply, FleetMessage) else None
