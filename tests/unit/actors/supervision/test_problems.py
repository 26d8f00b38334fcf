"""What the supervisor makes of reports of problems: the state of an actor, events and lines of the log."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from actors.bus.messages.common import Problem, ReportProblems
from actors.bus.messages.events import Event
from actors.bus.messages.supervision import Runtime
from actors.supervision.proxies.proxy_events import SUBJECTS_MAX, SUBJECTS_WITHIN, ProblemBook, ProxyEventPublisher
from tests.kit.clocks import Clock
from tests.kit.standin_actors import spec

EXPIRED = Problem("certificate", "the certificate ended", 5.0)
NONE_UP = Problem("upstreams_unreachable", "no upstream can be reached (2 in all)", 6.0, serves=False)
RUNS = Runtime("running", 7, 1.0, 0, None)


def test_an_actor_that_runs_with_problems_is_degraded_and_its_error_is_all_of_them() -> None:
    book = ProblemBook()
    assert book.applied("one", [1], RUNS) == RUNS
    book.put("one", ReportProblems(1, (EXPIRED, NONE_UP), certificate_ends=9.0))
    runtime = book.applied("one", [1], RUNS)
    assert (runtime.state, runtime.error, runtime.certificate_ends) == (
        "degraded",
        "the certificate ended; no upstream can be reached (2 in all)",
        9.0,
    )
    assert (runtime.runs, runtime.serves) == (True, False)
    assert book.applied("one", [1], Runtime("failed", None, 1.0, 0, "died")).state == "failed"
    book.put("one", ReportProblems(1, ()))
    assert book.applied("one", [1], RUNS) == RUNS


def test_a_problem_is_news_once_and_again_when_it_is_over() -> None:
    book = ProblemBook()
    book.put("one", ReportProblems(1, (EXPIRED,)))
    assert book.changes("one", [1]) == ([EXPIRED], [])
    assert book.changes("one", [1]) == ([], [])
    good = Problem("certificate", "the certificate is good", 5.0)
    book.put("one", ReportProblems(1, (), (good,)))
    assert book.changes("one", [1]) == ([], [good])


def test_a_new_process_with_the_same_problem_is_no_news_and_one_without_it_ends_it() -> None:
    book = ProblemBook()
    book.put("one", ReportProblems(1, (EXPIRED, NONE_UP)))
    book.changes("one", [1])
    assert book.changes("one", [2]) == ([], []), "it has not reported yet"
    assert book.applied("one", [2], RUNS).state == "degraded"
    book.put("one", ReportProblems(2, (EXPIRED,)))
    begun, over = book.changes("one", [2])
    assert (begun, [each.reason for each in over]) == ([], ["upstreams_unreachable"])


def test_of_several_workers_a_problem_is_news_once_and_over_when_the_last_one_is_without_it() -> None:
    book = ProblemBook()
    book.put("one", ReportProblems(1, (EXPIRED,), certificate_ends=9.0))
    book.put("one", ReportProblems(2, (EXPIRED, NONE_UP), certificate_ends=9.0))
    assert book.changes("one", [1, 2]) == ([EXPIRED, NONE_UP], [])
    runtime = book.applied("one", [1, 2], RUNS)
    assert (runtime.problems, runtime.certificate_ends, runtime.serves) == ((EXPIRED, NONE_UP), 9.0, False)
    good = Problem("certificate", "the certificate is good", 5.0)
    book.put("one", ReportProblems(1, (), (good,)))
    assert book.changes("one", [1, 2]) == ([], [])
    book.put("one", ReportProblems(2, (), (good, NONE_UP)))
    assert book.changes("one", [1, 2]) == ([], [good, NONE_UP])


def test_nothing_is_over_while_a_worker_has_not_reported_and_none_serves() -> None:
    book = ProblemBook()
    book.put("one", ReportProblems(1, (EXPIRED,)))
    book.put("one", ReportProblems(2, (NONE_UP,)))
    book.changes("one", [1, 2])
    assert book.changes("one", [1, 3]) == ([], [])
    assert book.changes("one", []) == ([], [])
    book.put("one", ReportProblems(3, ()))
    assert [each.reason for each in book.changes("one", [1, 3])[1]] == ["upstreams_unreachable"]


def test_what_the_supervisor_has_found_itself_is_a_problem_like_others() -> None:
    book = ProblemBook()
    lost = Problem("process", "1 of 2 workers runs", 7.0)
    book.put("one", ReportProblems(1, ()))
    assert book.changes("one", [1], [lost]) == ([lost], [])
    assert book.changes("one", [1], [lost]) == ([], [])
    assert [each.reason for each in book.changes("one", [1])[1]] == ["process"]


class Published:
    def __init__(self) -> None:
        self.events: list[Event] = []

    def publish(self, _topic: str, event: Event) -> None:
        self.events.append(event)

    @property
    def published(self) -> list[tuple[str, Any, Any]]:
        return [(event.type, event.data["error"], event.data.get("upstream")) for event in self.events]


def down(name: str) -> Problem:
    return Problem("upstream_down", f"the upstream {name} is down", 1.0, name)


def announcer(events: Published, clock: Clock) -> ProxyEventPublisher:
    forwarder: Any = SimpleNamespace(publish=events.publish)
    return ProxyEventPublisher(forwarder, lambda _id: spec("one", 3128), clock)


def test_a_change_is_one_event_and_one_line_that_names_the_proxy(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    events = Published()
    say = announcer(events, Clock())
    say.problems("office (3128)", "one", [down("p1"), NONE_UP], [])
    up = Problem("upstream_down", "the upstream p1 is up again", 1.0, "p1")
    say.problems("office (3128)", "one", [], [up])
    assert events.published == [
        ("proxy.error", "upstream_down", "p1"),
        ("proxy.error", "upstreams_unreachable", None),
        ("proxy.recovered", "upstream_down", "p1"),
    ]
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [
        ("WARNING", "office (3128): the upstream p1 is down"),
        ("ERROR", "office (3128): no upstream can be reached (2 in all)"),
        ("INFO", "office (3128): the upstream p1 is up again"),
    ]


def test_of_hundreds_of_upstreams_only_some_are_said_in_a_minute_and_only_those_are_said_to_be_over() -> None:
    events, clock = Published(), Clock()
    say = announcer(events, clock)
    many = [down(f"p{number}") for number in range(SUBJECTS_MAX + 5)]
    say.problems("one", "one", many, [])
    assert len(events.events) == SUBJECTS_MAX
    say.problems("one", "one", [], many)
    assert len(events.events) == 2 * SUBJECTS_MAX
    clock.now += SUBJECTS_WITHIN + 1
    say.problems("one", "one", [down("late")], [])
    assert events.published[-1] == ("proxy.error", "upstream_down", "late")
