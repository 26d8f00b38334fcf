"""Totals: restarts of a proxy's process, of the collector and of both never step them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from actors.metrics.totals import FOLDED_AFTER, LIVE_FOR, CounterTotals
from tests.kit.clocks import Clock
from tests.kit.standin_actors import counters


@pytest.fixture
def clock() -> Clock:
    return Clock(100.0)


@pytest.fixture
def totals(tmp_path: Path, clock: Clock) -> Iterator[CounterTotals]:
    made = CounterTotals(tmp_path / "metrics", clock)
    yield made
    made.close()


def requests(totals: CounterTotals, proxy_id: str = "a") -> int:
    return totals.stats((proxy_id,))[proxy_id]["requests"]


def test_reports_of_one_process_replace_each_other(totals: CounterTotals) -> None:
    for count in (1, 5, 5, 9):
        totals.update(counters("a", 1, count))
    assert requests(totals) == 9


def test_a_new_process_counts_on_top_of_the_old_one_even_if_they_report_in_turns(totals: CounterTotals) -> None:
    totals.update(counters("a", 1, 10, bytes_in=100))
    totals.update(counters("a", 2, 1, bytes_in=10))
    totals.update(counters("a", 1, 12, bytes_in=120))
    totals.update(counters("a", 2, 3, bytes_in=30))
    assert requests(totals) == 15
    assert totals.stats(("a",))["a"]["bytes_in"] == 150


def test_a_restart_of_the_collector_loses_and_doubles_nothing(
    totals: CounterTotals, tmp_path: Path, clock: Clock
) -> None:
    totals.update(counters("a", 1, 10))
    totals.update(counters("b", 1, 7, last_request=5.0))
    totals.save()
    again = CounterTotals(tmp_path / "metrics", clock)
    assert (requests(again), requests(again, "b")) == (10, 7)
    again.update(counters("a", 1, 11))
    assert requests(again) == 11
    assert again.stats(("b",))["b"].last_request == 5.0
    again.close()


def test_active_connections_of_a_process_that_is_silent_do_not_count(totals: CounterTotals, clock: Clock) -> None:
    totals.update(counters("a", 1, 1, active_connections=4))
    totals.update(counters("a", 2, 1, active_connections=3))
    assert totals.stats(("a",))["a"].active_connections == 7
    clock.now += LIVE_FOR
    totals.update(counters("a", 2, 1, active_connections=2))
    assert totals.stats(("a",))["a"].active_connections == 2


def test_old_processes_are_folded_without_a_step(totals: CounterTotals, tmp_path: Path, clock: Clock) -> None:
    for instance in range(1, 6):
        totals.update(counters("a", instance, 10))
    totals.save()
    clock.now += FOLDED_AFTER + 1
    totals.update(counters("a", 6, 1))
    totals.save()
    assert requests(totals) == 51
    again = CounterTotals(tmp_path / "metrics", clock)
    assert requests(again) == 51
    again.close()


def test_a_deleted_proxy_is_forgotten_on_disk_too(totals: CounterTotals, tmp_path: Path, clock: Clock) -> None:
    totals.update(counters("a", 1, 10))
    totals.save()
    totals.forget("a")
    assert totals.stats() == {}
    again = CounterTotals(tmp_path / "metrics", clock)
    assert again.stats() == {}
    again.close()


def test_the_total_is_over_all_proxies_and_unknown_ones_are_left_out(totals: CounterTotals) -> None:
    totals.update(counters("a", 1, 10, errors=1))
    totals.update(counters("b", 1, 5, errors=2))
    assert (totals.total()["requests"], totals.total()["errors"]) == (15, 3)
    assert set(totals.stats(("b", "unknown"))) == {"b"}


def test_the_file_is_private(totals: CounterTotals, tmp_path: Path) -> None:
    totals.update(counters("a", 1, 1))
    totals.save()
    assert {file.stat().st_mode & 0o777 for file in (tmp_path / "metrics").iterdir()} == {0o600}


def test_refusals_by_reason_and_lost_records_add_up_over_processes_and_restarts(
    totals: CounterTotals, tmp_path: Path, clock: Clock
) -> None:
    refused = {"client_denied": 2, "destination_denied": 1}
    totals.update(counters("a", 1, 10, refusals=refused, records_dropped=3, internal_errors=1))
    totals.update(counters("a", 2, 1, refusals={"client_denied": 1}, reported={"client_denied": 4}))
    totals.update(counters("a", 2, 1, refusals={"client_denied": 5}, reported={"client_denied": 4}))
    totals.save()
    again = CounterTotals(tmp_path / "metrics", clock)
    again.update(counters("a", 3, 0, refusals={"client_denied": 1}, records_dropped=1, internal_errors=1))
    for each, client_denied, dropped, internal in ((totals, 7, 3, 1), (again, 8, 4, 2)):
        stats = each.stats(("a",))["a"]
        assert stats.refusals == {"client_denied": client_denied, "destination_denied": 1}
        assert (stats.reported, stats["records_dropped"]) == ({"client_denied": 4}, dropped)
        assert stats["internal_errors"] == internal
    again.close()


def test_refusals_are_folded_with_their_process_and_forgotten_with_their_proxy(
    totals: CounterTotals, tmp_path: Path, clock: Clock
) -> None:
    for instance in range(1, 4):
        totals.update(counters("a", instance, 1, refusals={"client_denied": 1}))
    totals.save()
    clock.now += FOLDED_AFTER + 1
    totals.update(counters("a", 4, 1, refusals={"client_denied": 1}))
    totals.save()
    again = CounterTotals(tmp_path / "metrics", clock)
    assert again.stats(("a",))["a"].refusals == {"client_denied": 4}
    again.forget("a")
    assert again.total().refusals == {"client_denied": 4}, "the total of everything never falls"
    once_more = CounterTotals(tmp_path / "metrics", clock)
    assert once_more.stats() == {}
    assert once_more.total().refusals == {"client_denied": 4}
    again.close()
    once_more.close()


def test_a_file_from_before_there_were_refusals_is_read(totals: CounterTotals, tmp_path: Path, clock: Clock) -> None:
    totals.update(counters("a", 1, 10))
    totals.save()
    totals._database.execute("DROP TABLE tallies")
    again = CounterTotals(tmp_path / "metrics", clock)
    assert (requests(again), again.stats(("a",))["a"].refusals) == (10, {})
    again.close()


def test_what_has_not_changed_since_is_left_out_unless_connections_are_open(
    totals: CounterTotals, clock: Clock
) -> None:
    totals.update(counters("quiet", 1, 10))
    totals.update(counters("busy", 1, 10, active_connections=1))
    totals.update(counters("changed", 1, 10))
    clock.now += 1.0
    as_of = totals.now
    assert set(totals.stats(since=as_of)) == {"busy"}
    clock.now += 1.0
    totals.update(counters("changed", 1, 11))
    totals.update(counters("quiet", 1, 10))
    assert set(totals.stats(since=as_of)) == {"busy", "changed"}
    assert set(totals.stats()) == {"quiet", "busy", "changed"}


def test_connections_of_a_silent_process_cease_to_count_in_a_query_for_changes(
    totals: CounterTotals, clock: Clock
) -> None:
    totals.update(counters("a", 1, 10, active_connections=3))
    as_of = totals.now
    clock.now += LIVE_FOR + 1.0
    assert totals.stats(since=as_of)["a"].active_connections == 0


def test_a_partial_report_leaves_the_counts_of_rules_that_it_does_not_have(
    totals: CounterTotals, tmp_path: Path, clock: Clock
) -> None:
    totals.update(counters("a", 1, 2, decisions={"office/a": 1, "office/b": 1}))
    totals.update(counters("a", 1, 3, decisions={"office/b": 2}, statuses={"200": 3}, partial=True))
    totals.update(counters("a", 1, 3, statuses={"200": 3}, partial=True))
    assert totals.stats(("a",))["a"].decisions == {"office/a": 1, "office/b": 2}
    totals.save()
    again = CounterTotals(tmp_path / "metrics", clock)
    again.update(counters("a", 1, 4, decisions={"office/c": 1}, statuses={"200": 4}, partial=True))
    assert again.stats(("a",), detailed=True)["a"].decisions == {"office/a": 1, "office/b": 2, "office/c": 1}
    assert again.stats(("a",), detailed=True)["a"].statuses == {"200": 4}
    again.update(counters("a", 1, 5, decisions={"office/c": 2}, statuses={"200": 5}))
    assert again.stats(("a",))["a"].decisions == {"office/c": 2}, "a full one has all that there is"
    again.close()
