"""A recurring error is a line a minute, not a line a second."""

from __future__ import annotations

import logging
import math

import pytest

from actors.log_lines import PERIOD, LogThrottle, ThrottledLog


def test_an_error_is_logged_when_it_begins_when_it_changes_once_per_period_and_when_it_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = 0.0
    errors = ThrottledLog(logging.getLogger("disk"), "the disk", clock=lambda: now)
    caplog.set_level(logging.INFO)

    def logged() -> list[str]:
        lines = [record.getMessage() for record in caplog.records]
        caplog.clear()
        return lines

    errors.recovered()
    assert logged() == []
    for _ in range(int(PERIOD)):
        errors.error("full")
        now += 1
    assert logged() == ["the disk: full"]
    errors.error("full")
    assert logged() == [f"the disk: full ({int(PERIOD) - 1} more since last logged)"]
    errors.error("gone")
    assert logged() == ["the disk: gone"]
    errors.recovered()
    errors.recovered()
    assert logged() == ["the disk: recovered"]


def test_errors_with_one_key_are_one_error_whatever_their_texts(caplog: pytest.LogCaptureFixture) -> None:
    errors = ThrottledLog(logging.getLogger("disk"), "refused", clock=lambda: 0.0, recovery="accepted again")
    caplog.set_level(logging.INFO)
    for text in ("first", "second"):
        errors.error(text, key="")
    errors.recovered()
    assert [record.getMessage() for record in caplog.records] == ["refused: first", "accepted again"]


def test_without_end_of_the_period_an_event_is_due_once_until_the_reset() -> None:
    throttle = LogThrottle(math.inf, clock=lambda: 0.0)
    assert [throttle.due(), throttle.due(), throttle.due("other")] == [True, False, True]
    assert [throttle.reset(), throttle.reset(), throttle.due()] == [True, False, True]
