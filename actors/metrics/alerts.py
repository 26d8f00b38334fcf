"""Alerts: a proxy whose error rate is high, and when it has recovered.

A rate is of the growth of cumulative counters within the window. Two thresholds keep an alert from flickering: it
begins at `alerts.error_rate` and ends below `alerts.error_rate_recovered`. Active alerts are kept on disk, so that
their end is reported also after a restart of the collector.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from actors.bus.messages.metrics import ProxyStats
from actors.sqlite import open_database

if TYPE_CHECKING:
    from config.settings.groups import Alerts as Settings

EVALUATION_PERIOD = 10.0

HIGH, RECOVERED = "high_error_rate", "error_rate.recovered"

_SCHEMA = "CREATE TABLE IF NOT EXISTS alerts (proxy_id TEXT PRIMARY KEY) WITHOUT ROWID;"

AlertEvent = tuple[str, dict[str, Any]]
"""Type and data."""


@dataclass(frozen=True, slots=True)
class _Sample:
    when: float
    requests: int
    errors: int


class ErrorRateAlerts:
    """One file. `clock` is monotonic."""

    def __init__(self, folder: Path, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self.settings = settings
        self._clock = clock
        self._database = open_database(folder / "alerts.sqlite", _SCHEMA)
        self._active = {str(row[0]) for row in self._database.execute("SELECT proxy_id FROM alerts")}
        self._saved = set(self._active)
        self._samples: dict[str, deque[_Sample]] = {}

    def begin(self, stats: Mapping[str, ProxyStats]) -> None:
        """Ignore what was counted until now."""
        now = self._clock()
        self._samples = {each: deque([_Sample(now, has["requests"], has["errors"])]) for each, has in stats.items()}

    def evaluate(self, stats: Mapping[str, ProxyStats]) -> list[AlertEvent]:
        """The alerts that begin or end, given the totals of all proxies at this moment."""
        for gone in {*self._samples, *self._active} - stats.keys():
            self._samples.pop(gone, None)
            self._active.discard(gone)
        events = (self._evaluate(proxy_id, has) for proxy_id, has in stats.items())
        return [each for each in events if each is not None]

    def save(self) -> None:
        """Save which ones are active. Raises `sqlite3.Error`; what is not saved then, the next call saves."""
        for proxy_id in self._active - self._saved:
            self._database.execute("INSERT OR IGNORE INTO alerts VALUES (?)", (proxy_id,))
            self._saved.add(proxy_id)
        for proxy_id in self._saved - self._active:
            self._database.execute("DELETE FROM alerts WHERE proxy_id = ?", (proxy_id,))
            self._saved.discard(proxy_id)

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def _evaluate(self, proxy_id: str, has: ProxyStats) -> AlertEvent | None:
        requests, errors = self._within_window(proxy_id, has)
        rate = 100 * errors / requests if requests else 0.0
        enough = requests >= self.settings.min_requests
        data = {
            "proxy_id": proxy_id,
            "error_rate": round(rate, 2),
            "requests": requests,
            "errors": errors,
            "window": self.settings.window,
        }
        if proxy_id not in self._active:
            if enough and rate >= self.settings.error_rate:
                self._active.add(proxy_id)
                return HIGH, {**data, "threshold": self.settings.error_rate}
        elif (enough and rate < self.settings.error_rate_recovered) or errors == 0:
            self._active.discard(proxy_id)
            return RECOVERED, {**data, "threshold": self.settings.error_rate_recovered}
        return None

    def _within_window(self, proxy_id: str, has: ProxyStats) -> tuple[int, int]:
        """Requests and errors of the last `alerts.window` seconds, or since the first sample."""
        now = self._clock()
        samples = self._samples.setdefault(proxy_id, deque([_Sample(now, 0, 0)]))
        samples.append(_Sample(now, has["requests"], has["errors"]))
        while len(samples) > 1 and samples[1].when <= now - self.settings.window:
            samples.popleft()
        return has["requests"] - samples[0].requests, has["errors"] - samples[0].errors
