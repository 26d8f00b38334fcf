"""Alerts: high error rates begin at one threshold and end below another, proxy by proxy, over a window."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from actors.bus.messages.metrics import ProxyStats
from actors.metrics.alerts import HIGH, RECOVERED, ErrorRateAlerts
from config.settings.groups import Alerts as Settings
from tests.kit.clocks import Clock
from tests.kit.standin_actors import stats_of


class Watch:
    """Alerts over proxies whose counters are set by hand."""

    def __init__(self, folder: Path, settings: Settings | None = None) -> None:
        self.clock = Clock(1000.0)
        self.folder = folder
        self.counted: dict[str, tuple[int, int]] = {}
        self.settings = settings or Settings()
        self.alerts = ErrorRateAlerts(folder, self.settings, self.clock)

    def serve(self, requests: int, errors: int, proxy_id: str = "p") -> list[str]:
        """Ten seconds with so many more requests and errors; the types of the events."""
        before = self.counted.get(proxy_id, (0, 0))
        self.counted[proxy_id] = before[0] + requests, before[1] + errors
        self.clock.now += 10
        events = [kind for kind, _data in self.alerts.evaluate(self.stats())]
        self.alerts.save()
        return events

    def stats(self) -> dict[str, ProxyStats]:
        return {each: stats_of(requests=requests, errors=errors) for each, (requests, errors) in self.counted.items()}

    def restart(self) -> None:
        self.alerts.close()
        self.alerts = ErrorRateAlerts(self.folder, self.settings, self.clock)
        self.alerts.begin(self.stats())


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watch]:
    made = Watch(tmp_path / "m")
    yield made
    made.alerts.close()


def test_ten_percent_of_twenty_requests_is_high_and_reported_once(watch: Watch) -> None:
    assert watch.serve(19, 19) == []
    assert watch.serve(1, 0) == [HIGH]
    assert watch.serve(20, 20) == []


def test_less_than_ten_percent_is_not_high(watch: Watch) -> None:
    assert watch.serve(1000, 99) == []
    assert watch.serve(0, 1) == [HIGH]


def test_it_recovers_below_five_percent_and_not_before(watch: Watch) -> None:
    assert watch.serve(100, 10) == [HIGH]
    assert watch.serve(100, 0) == []  # 10 of 200: five percent
    assert watch.serve(1, 0) == [RECOVERED]
    assert watch.serve(20, 0) == []


def test_only_what_is_within_the_window_counts(watch: Watch) -> None:
    assert watch.serve(20, 20) == [HIGH]
    events = [watch.serve(0, 0) for _ in range(31)]
    assert [RECOVERED] in events
    assert events.index([RECOVERED]) in (29, 30)
    assert watch.serve(19, 0) == []


def test_errors_of_five_minutes_are_added_up(watch: Watch) -> None:
    assert [watch.serve(1, 1) for _ in range(19)] == [[]] * 19
    assert watch.serve(1, 0) == [HIGH]


def test_each_proxy_is_evaluated_by_itself(watch: Watch) -> None:
    assert watch.serve(1000, 0, "healthy") == []
    assert watch.serve(20, 20, "failing") == [HIGH]


def test_what_was_counted_before_the_start_is_no_alert_and_an_active_one_ends_after_it(watch: Watch) -> None:
    assert watch.serve(100, 100) == [HIGH]
    watch.restart()
    assert watch.serve(1, 1) == []
    assert watch.serve(99, 0) == [RECOVERED]
    watch.restart()
    assert watch.serve(5, 0) == []


def test_a_deleted_proxy_is_forgotten_without_an_event(watch: Watch) -> None:
    assert watch.serve(100, 100) == [HIGH]
    del watch.counted["p"]
    assert watch.alerts.evaluate({}) == []
    watch.restart()
    assert watch.alerts.evaluate({}) == []


def test_thresholds_are_those_of_the_settings(tmp_path: Path) -> None:
    watch = Watch(tmp_path / "m", Settings(error_rate=50, error_rate_recovered=50, min_requests=2, window=10))
    assert watch.serve(3, 1) == []
    assert watch.serve(2, 1) == [HIGH]
    assert watch.serve(3, 1) == [RECOVERED]
    watch.alerts.close()
