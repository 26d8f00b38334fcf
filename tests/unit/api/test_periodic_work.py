"""What periodic work logs of its failures."""

from __future__ import annotations

import logging
import threading

import pytest

from api import periodic_work
from api.periodic_work import LoopThread, PeriodicWork
from api.store import LedgerError
from config import OperatorError


class Tidying(PeriodicWork):
    """Raises `error` if there is one."""

    error: OperatorError | None = None

    def act(self) -> None:
        if self.error is not None:
            raise self.error


@pytest.fixture
def work() -> Tidying:
    return Tidying("tidying", "tidy up", 1.0, 1.0)


def lines_of(work: Tidying, caplog: pytest.LogCaptureFixture, *errors: OperatorError | None) -> list[tuple[str, str]]:
    """What a run with each of these logs."""
    caplog.set_level(logging.INFO)
    for each in errors:
        work.error = each
        work.run_once()
    return [(each.levelname, each.getMessage()) for each in caplog.records]


def test_a_failure_that_lasts_is_logged_once_and_its_end(work: Tidying, caplog: pytest.LogCaptureFixture) -> None:
    full = OperatorError("the disk is full")
    assert lines_of(work, caplog, None, full, full, full, None, None) == [
        ("ERROR", "cannot tidy up: the disk is full"),
        ("INFO", "cannot tidy up: recovered"),
    ]


def test_an_outage_of_the_fleets_database_is_no_failure_of_the_work(
    work: Tidying, caplog: pytest.LogCaptureFixture
) -> None:
    assert lines_of(work, caplog, LedgerError("db: gone"), None) == []


def test_a_fault_ends_one_run_and_not_the_thread(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(periodic_work, "AFTER_FAULT", 0.0)
    runs, again = iter([{}, {"pause": 60.0}]), threading.Event()

    def run() -> float:
        pause = next(runs)["pause"]
        again.set()
        return pause

    thread = LoopThread("tidying", run)
    thread.start()
    assert again.wait(10)
    thread.close()
    assert [each.getMessage() for each in caplog.records] == ["a run of tidying has failed"]
