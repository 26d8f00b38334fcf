"""The state of a proxy from those of its workers."""

from __future__ import annotations

from typing import Any

import pytest

from actors.bus.messages.common import PROCESS
from actors.bus.messages.supervision import Runtime
from actors.supervision.proxies.desired_proxies import worker_count
from actors.supervision.runtime_report import combined
from tests.kit.standin_actors import spec
from tests.kit.tables import table


def one(state: str, pid: int | None = 7, since: float = 1.0, restarts: int = 0, error: str | None = None) -> Runtime:
    return Runtime(state, pid, since, restarts, error)


RUNS, STARTS, FAILED = one("running"), one("starting"), one("failed", None, error="it died")
DRAINS, STOPPED = one("draining"), one("stopped", None)


@table(
    ("workers", "state"),
    [
        ((RUNS, RUNS), "running"),
        ((RUNS, STARTS), "running"),
        ((FAILED, RUNS), "running"),
        ((STARTS, FAILED), "starting"),
        ((FAILED, DRAINS), "failed"),
        ((DRAINS, STOPPED), "draining"),
        ((STOPPED, STOPPED), "stopped"),
    ],
)
def test_the_state_of_several(workers: tuple[Runtime, ...], state: str) -> None:
    assert combined(list(enumerate(workers))).state == state


def test_that_of_one_worker_is_as_it_is() -> None:
    assert combined([(0, FAILED)]) is FAILED


def test_a_worker_that_has_died_is_a_problem_with_which_clients_are_served() -> None:
    again = one("starting", 9, 6.0, 3, "it died")
    runtime = combined([(0, again), (1, one("running", 8, 4.0)), (2, one("running", 10, 5.0, 1))])
    (problem,) = runtime.problems
    assert (problem.reason, problem.detail, problem.since) == (PROCESS, "2 of 3 workers run: it died", 6.0)
    assert problem.serves
    assert (runtime.pid, runtime.since, runtime.restarts, runtime.error) == (8, 4.0, 4, None)
    assert [(each.index, each.pid, each.state) for each in runtime.workers] == [
        (0, 9, "starting"),
        (1, 8, "running"),
        (2, 10, "running"),
    ]


def test_a_worker_that_only_starts_or_drains_is_no_problem() -> None:
    assert combined([(0, RUNS), (1, STARTS), (2, DRAINS)]).problems == ()


def test_without_a_running_worker_the_error_is_that_of_the_first_that_failed() -> None:
    runtime = combined([(0, FAILED), (1, one("failed", None, error="it died, too"))])
    assert (runtime.error, runtime.pid) == ("it died", None)


def test_the_number_of_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: set(range(6)))
    counts: list[Any] = [worker_count(spec("a", 1, workers=number)) for number in (1, 3, 0)]
    assert counts == [1, 3, 6]
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: set(range(200)))
    assert worker_count(spec("a", 1, workers=0)) == 64
