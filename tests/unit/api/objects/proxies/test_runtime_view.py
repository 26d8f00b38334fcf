"""What is really so: one response serves many requests, and none that came before a change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from actors.bus.messages.common import METRICS, SUPERVISOR, Unreachable
from actors.bus.messages.metrics import ProxyStats, Stats
from actors.bus.messages.supervision import Runtime, RuntimeReport
from api.objects.proxies import runtime_view as fleets
from api.objects.proxies.runtime_view import RuntimeQueries
from tests.kit.standin_actors import stats_of

RUNNING = Runtime("running", 7, 1.0, 0, None)


def stats(requests: int) -> ProxyStats:
    return stats_of(requests=requests)


class Both:
    """A supervisor and a collector; `received` are their messages."""

    def __init__(self) -> None:
        self.received: list[tuple[str, Any]] = []
        self.proxies = {"a": RUNNING}
        self.changed = {"a": stats(1)}
        self.sleep: dict[str, Any] = {}
        self.as_of = 1.0
        self.gone = False
        self.meanwhile: Any = lambda: None

    def ask(self, to: str, message: Any, timeout: float = 5.0) -> Any:
        self.received.append((to, message))
        if self.gone:
            return Unreachable(to, "it is not on the bus")
        if to == METRICS:
            self.as_of += 1.0
            return Stats(dict(self.changed), self.as_of)
        reply = replace(RuntimeReport(dict(self.proxies), {}, 1.0), **self.sleep)
        self.meanwhile()
        return reply

    def ask_all(self, requests: Mapping[str, Any], timeout: float = 5.0) -> dict[str, Any]:
        return {to: self.ask(to, message, timeout) for to, message in requests.items()}

    def publish(self, topic: str, message: Any) -> None:
        raise AssertionError("nothing is published here")

    def asked(self, whom: str) -> int:
        return sum(to == whom for to, _ in self.received)


def test_of_those_that_sleep_only_changes_are_read() -> None:
    both = Both()
    fleet = RuntimeQueries(both, remembered=0.0)
    both.sleep = {"asleep": {"b": (5.0, 2, 9.0), "c": (6.0, 0, 0.0)}, "asleep_step": 2}
    asleep = Runtime("sleeping", None, 5.0, 2, None, certificate_ends=9.0)
    assert fleet.runtimes() == {"a": RUNNING, "b": asleep, "c": Runtime("sleeping", None, 6.0, 0, None)}
    both.sleep = {"asleep": {"d": (7.0, 0, 0.0)}, "asleep_all": False, "woken": ("c",), "asleep_step": 4}
    assert fleet.runtimes() == {"a": RUNNING, "b": asleep, "d": Runtime("sleeping", None, 7.0, 0, None)}
    both.sleep = {"asleep_step": 1}  # of another supervisor: none sleeps
    assert fleet.runtimes() == {"a": RUNNING}
    asked = [message.asleep_since for to, message in both.received if to == SUPERVISOR]
    assert asked == [0, 2, 4]


def test_many_requests_share_a_reply() -> None:
    both = Both()
    fleet = RuntimeQueries(both, remembered=60.0)
    for _ in range(5):
        assert fleet.runtimes() == {"a": RUNNING}
        assert fleet.stats() == {"a": stats(1)}
    assert (both.asked(SUPERVISOR), both.asked(METRICS)) == (1, 1)


def test_after_a_change_the_supervisor_is_asked_anew() -> None:
    both = Both()
    fleet = RuntimeQueries(both, remembered=60.0)
    fleet.runtimes()
    both.proxies = {}
    fleet.changed()
    assert fleet.runtimes() == {}


def test_a_reply_from_before_a_concurrent_change_is_not_cached() -> None:
    both = Both()
    fleet = RuntimeQueries(both, remembered=60.0)
    both.meanwhile = fleet.changed
    assert fleet.runtimes() == {"a": RUNNING}
    both.meanwhile, both.proxies = lambda: None, {}
    assert fleet.runtimes() == {}


def test_only_totals_that_have_changed_are_asked_for_and_the_others_stay() -> None:
    both = Both()
    fleet = RuntimeQueries(both, remembered=0.0)
    both.changed = {"a": stats(1), "b": stats(1)}
    fleet.stats()
    both.changed = {"b": stats(2)}
    assert fleet.stats() == {"a": stats(1), "b": stats(2)}
    assert [message.since for _, message in both.received] == [0.0, 2.0]


def test_now_and_then_all_totals_are_read_and_those_of_deleted_proxies_go(monkeypatch: pytest.MonkeyPatch) -> None:
    both = Both()
    fleet = RuntimeQueries(both, remembered=0.0)
    fleet.stats()
    monkeypatch.setattr(fleets, "REREAD", 0.0)
    both.changed = {"b": stats(1)}
    assert fleet.stats() == {"b": stats(1)}


def test_without_supervisor_and_collector_nothing_is_known() -> None:
    both = Both()
    fleet = RuntimeQueries(both, remembered=0.0)
    fleet.stats()
    both.gone = True
    assert fleet.runtimes() is None
    assert fleet.stats() == {}
    both.gone = False
    assert fleet.stats() == {"a": stats(1)}
