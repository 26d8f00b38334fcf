"""The pure parts of the soak: lost changes, effects of faults, the plan."""

from __future__ import annotations

import time
from typing import Any

import pytest
from soaking.changes import GONE, Called, Ledger
from soaking.cluster.changes import FleetLedger
from soaking.cluster.drills import OF_DATABASE, OF_NODE
from soaking.cluster.faults import MAY, FleetJournal, unexplained_calls
from soaking.disturb import KILL_PERIOD, Plan
from soaking.faults import CUT, FAILED, GRACE, LATE, REFUSED, SUCCEEDED, WRONG, Fault, Journal, unexplained
from soaking.traffic import MOST_BYTES, Attempt, moved
from soaking.verdict import MB, growths, of_calls, of_traffic, table_of_findings

from tests.kit.tables import table

NOON = "2026-11-21T12:00:{:02d}.000Z"


@pytest.fixture
def journal() -> Journal:
    made = Journal()
    with made.fault("kill forwarding", "http") as fault:
        fault.begin = 100.0
    fault.end = 102.0
    return made


def test_a_successful_change_must_be_there_and_one_in_doubt_may_be_either() -> None:
    ledger = Ledger()
    ledger.record("users", "sure", "first", success=True)
    ledger.record("users", "sure", "second", success=True)
    ledger.record("users", "doubt", "first", success=True)
    ledger.record("users", "doubt", "second", success=False)
    ledger.record("users", "gone", "first", success=True)
    ledger.record("users", "gone", GONE, success=True)
    assert ledger.lost("users", {"sure": "second", "doubt": "first"}) == []
    assert ledger.lost("users", {"sure": "second", "doubt": "second"}) == []
    assert len(ledger.lost("users", {"sure": "first", "doubt": "third", "gone": "first"})) == 3
    assert ledger.lost("users", {"sure": "second", "doubt": "first", "new": 1}) == ["users new: 1, expected 'nothing'"]
    assert ledger.free("users") == ["sure"]


def test_what_never_had_a_response_may_be_missing() -> None:
    ledger = Ledger()
    ledger.record("proxies", "maybe", "first", success=False)
    assert ledger.lost("proxies", {}) == ledger.lost("proxies", {"maybe": "first"}) == []
    assert ledger.free("proxies") == []


@pytest.mark.parametrize(
    ("result", "target", "begin", "end", "explained"),
    [
        (CUT, "http", 99.0, 100.5, True),
        (CUT, "http", 102.0 + GRACE - 0.1, 110.0, True),
        (CUT, "http", 102.0 + GRACE + 0.1, 110.0, False),
        (CUT, "http", 90.0, 99.9, False),
        (CUT, "socks5", 99.0, 100.5, False),
        (REFUSED, "http", 99.0, 100.5, False),
        (FAILED, "http", 99.0, 100.5, False),
    ],
)
def test_only_a_cut_of_the_killed_process_at_that_time_follows_from_its_kill(
    journal: Journal, result: str, target: str, begin: float, end: float, explained: bool
) -> None:
    assert journal.explains(result, target, begin, end) is explained


def test_the_proxy_behind_a_killed_upstream_may_fail_but_never_refuse() -> None:
    fault = Fault("kill forwarding", "upstream")
    assert [fault.explains(each, "chain") for each in (CUT, FAILED, LATE, REFUSED)] == [True, True, True, False]


@pytest.mark.parametrize(("killed", "explained"), [("upstream", True), ("spare", True), ("http", False)])
def test_a_proxy_with_a_pool_may_fail_when_any_of_its_upstreams_dies(killed: str, explained: bool) -> None:
    assert Fault("kill forwarding", killed).explains(FAILED, "asleep") is explained


@pytest.mark.parametrize(("result", "explained"), [(CUT, True), (REFUSED, False), (LATE, False), (FAILED, False)])
def test_a_killed_worker_cuts_its_own_connections_and_delays_none(result: str, explained: bool) -> None:
    assert Fault("kill worker", "workers").explains(result, "workers") is explained


def test_usage_is_exact_but_for_attempts_that_broke() -> None:
    whole = Attempt("workers", SUCCEEDED, 1.0, 2.0, sent=10, received=100)
    cut = Attempt("workers", CUT, 1.0, 2.0, sent=7, received=3)
    assert moved([whole, whole]) == {"bytes_in": (20, 20), "bytes_out": (200, 200)}
    assert moved([whole, cut]) == {"bytes_in": (10, 17), "bytes_out": (100, 100 + MOST_BYTES)}


def test_other_faults_than_those_of_forwarding_and_the_supervisor_explain_nothing_of_the_traffic() -> None:
    for kind in (
        "kill api",
        "kill logs",
        "kill pools",
        "kill resolver",
        "disk full",
        "reload",
        "descriptors of api",
        "descriptors of supervisor",
    ):
        assert not any(Fault(kind).explains(each, "http") for each in (CUT, REFUSED, LATE, FAILED))


def test_wrong_bytes_and_refusals_have_rows_of_their_own(journal: Journal) -> None:
    attempts = [
        Attempt("http", SUCCEEDED, 1.0, 2.0),
        Attempt("http", CUT, 100.0, 101.0),
        Attempt("http", WRONG, 100.0, 101.0),
        Attempt("http", REFUSED, 100.0, 101.0),
        Attempt("socks4", LATE, 50.0, 70.0),
    ]
    assert [len(found) for found in of_traffic(attempts, journal).values()] == [1, 1, 1]


def line(message: str, second: int = 1, **more: Any) -> dict[str, Any]:
    return {"time": NOON.format(second), "level": "error", "logger": "x", "message": message, **more}


@table(
    ("entry", "explained"),
    [
        (line("api died: process 7 was killed by SIGKILL"), False),
        (line("forwarding.prx_1 died: process 7 was killed by SIGKILL"), True),
        (line("forwarding.prx_1 died: process 7 ended with status 1"), False),
        (line("cannot store access records: database or disk is full"), False),
        (line("something else"), False),
        ({**line("something else"), "level": "info"}, True),
        (line("forwarding.prx_1 died: process 7 was killed by SIGKILL", exception="Traceback\nKeyError: 1"), False),
        ({"level": "text", "message": "Traceback (most recent call last):"}, False),
        ({"level": "text", "message": "Proxyfleet 0.1.0 is running."}, True),
    ],
)
def test_a_serious_line_needs_a_fault_that_it_may_follow_from(entry: dict[str, Any], explained: bool) -> None:
    faults = [Fault("kill forwarding", "http", 0.0, 2.0)]
    noon = 1_795_262_400.0
    if "api" in entry["message"]:
        entry["message"] = entry["message"].replace("killed by SIGKILL", "killed by SIGSEGV")
    assert (unexplained([entry], faults, noon) == []) is explained


def test_a_line_long_after_its_fault_is_not_explained_by_it() -> None:
    faults = [Fault("kill forwarding", "http", -100.0, -90.0)]
    assert (
        len(unexplained([line("forwarding.prx_1 died: process 7 was killed by SIGKILL")], faults, 1_795_262_400.0)) == 1
    )


def test_only_growth_beyond_noise_is_a_leak() -> None:
    before = {"api": (40 * MB, 30), "logs": (8 * MB, 25)}
    assert growths(before, {"api": (50 * MB, 40), "logs": (12 * MB, 25)}) == []
    assert len(growths(before, {"api": (60 * MB, 50), "logs": (20 * MB, 25)})) == 3
    assert growths(before, {"api": (40 * MB, 30)}) == ["there is no logs any more"]


@pytest.mark.parametrize("minutes", [2, 5, 20, 60])
def test_every_plan_has_calm_at_both_ends_and_room_for_each_scarcity(minutes: float) -> None:
    plan = Plan(minutes * 60)
    disk, descriptors = plan.at(0.3), plan.at(0.65)
    assert 25 <= plan.begin < disk < disk + plan.scarce_for(0.22) <= descriptors
    assert descriptors + 3 * plan.scarce_for(0.1) <= plan.end <= plan.total - 50
    assert plan.scarce_for(1) <= 60
    assert (plan.end - plan.begin) / KILL_PERIOD > 2


def test_the_table_has_what_did_not_hold() -> None:
    text = table_of_findings({"a": [], "b": ["x", "y"]})
    assert text.splitlines()[2:] == ["| a | yes |", "| b | **no**: 2 |"]


def test_a_call_may_fail_during_a_fault_alone_and_only_as_a_fault_makes_it_fail(journal: Journal) -> None:
    during, before = (100.0, 101.0), (10.0, 11.0)
    for status, when, counts in (
        (200, before, [0, 0]),
        (503, during, [0, 0]),
        ("cut", during, [0, 0]),
        (503, before, [0, 1]),
        ("cut", before, [0, 1]),
        (400, during, [1, 0]),
    ):
        found = of_calls([Called("GET users", status, *when)], journal)
        assert [len(each) for each in found.values()] == counts, (status, when)


# --- a fleet ---


def test_what_a_restore_of_the_database_has_undone_may_be_as_before_if_a_node_names_it() -> None:
    ledger = FleetLedger()
    ledger.record("users", "before", "first", success=True)
    since = time.monotonic()
    ledger.record("users", "made", "new", success=True)
    ledger.record("users", "before", "second", success=True)
    ledger.rewind(since)
    assert ledger.lost("users", {"before": "first"}) == []
    assert ledger.lost("users", {"before": "second", "made": "new"}) == []
    assert len(ledger.lost("users", {"before": "third"})) == 1
    assert ledger.free("users") == []
    assert len(ledger.unnamed("users", {"before": "first"}, lambda _where, name: name == "made")) == 1
    assert ledger.unnamed("users", {"before": "second", "made": "new"}, lambda _where, _name: False) == []


def test_each_drill_says_what_it_may_cause() -> None:
    assert {*OF_DATABASE, *OF_NODE} == {*MAY}


@table(
    ("kind", "target", "what", "where", "status", "allowed"),
    [
        ("database killed", "", "POST plans", "one", 503, True),
        ("database killed", "", "POST plans", "one", 500, False),
        ("database killed", "", "GET logs", "one", 503, False),
        ("database killed", "", "POST sign-in", "one", 503, False),
        ("database killed", "", "POST accounts/credentials", "one", 503, False),
        ("node killed", "two", "GET logs", "two", "refused", True),
        ("node killed", "two", "GET logs", "one", "refused", False),
        ("node killed", "two", "POST plans", "one", 503, True),
        ("links cut", "two", "GET logs", "one", 503, False),
        ("older dump put in", "", "PATCH plans", "one", 404, True),
        ("database slow", "", "PATCH plans", "one", 404, False),
    ],
)
def test_a_drill_of_a_fleet_allows_what_stands_in_its_row(
    kind: str, target: str, what: str, where: str, status: int | str, allowed: bool
) -> None:
    journal = FleetJournal()
    with journal.fault(kind, target) as fault:
        pass
    call = Called(what, status, fault.begin, fault.begin + 1, "", where)
    assert (unexplained_calls([call], journal) == []) is allowed
    assert not journal.explains(WRONG, "two/http", fault.begin, fault.begin)
    assert journal.explains(CUT, "two/http", fault.begin, fault.begin) is (kind == "node killed")
    assert not journal.explains(CUT, "one/http", fault.begin, fault.begin)
