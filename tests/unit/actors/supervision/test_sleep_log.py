"""Who knows which proxies slept at some step reads only what has changed since."""

from __future__ import annotations

from actors.supervision.proxies import sleepers
from actors.supervision.proxies.sleepers import SleepLog


def test_what_has_changed_since_a_step() -> None:
    log = SleepLog()
    for proxy_id in ("a", "b", "a"):
        log.note(proxy_id)
    assert log.step == 3
    assert [log.since(step) for step in (1, 2, 3)] == [{"a", "b"}, {"a"}, set()]


def test_of_a_step_that_is_unknown_everything_is_to_be_read() -> None:
    log = SleepLog()
    for number in range(sleepers.CHANGES_MAX + 2):
        log.note(str(number))
    assert [log.since(step) for step in (0, 1, log.step + 1)] == [None, None, None]
    oldest = log.since(2)
    assert oldest is not None
    assert len(oldest) == sleepers.CHANGES_MAX
