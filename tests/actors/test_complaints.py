"""Complaints: a lasting trouble is a line a minute, not a line a second."""

from __future__ import annotations

import logging

import pytest

from actors.throttled_log import PERIOD, ThrottledLog


def test_a_trouble_is_said_when_it_begins_when_it_changes_now_and_then_and_when_it_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = 0.0
    complaint = ThrottledLog(logging.getLogger("disk"), "the disk", clock=lambda: now)
    caplog.set_level(logging.INFO)

    def said() -> list[str]:
        lines = [record.getMessage() for record in caplog.records]
        caplog.clear()
        return lines

    complaint.over()
    assert said() == []
    for _ in range(int(PERIOD)):
        complaint.trouble("full")
        now += 1
    assert said() == ["the disk: full"]
    complaint.trouble("full")
    assert said() == [f"the disk: full ({int(PERIOD) - 1} times more since it was said last)"]
    complaint.trouble("gone")
    assert said() == ["the disk: gone"]
    complaint.over()
    complaint.over()
    assert said() == ["the disk: recovered"]
