"""The outbox: an event is stored once and survives a crash."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.bus.events import new_event
from actors.webhooks import outbox
from actors.webhooks.outbox import Outbox


def test_an_event_is_stored_once(tmp_path: Path) -> None:
    box = Outbox(tmp_path / "webhooks")
    event = new_event("proxy.down", {"proxy_id": "x", "nested": {"list": [1, None]}})
    assert box.add(event)
    assert not box.add(event)
    assert box.waiting() == 1
    box.close()


def test_what_waits_is_there_after_a_restart_in_a_private_file(tmp_path: Path) -> None:
    box = Outbox(tmp_path / "webhooks")
    box.add(new_event("proxy.down", {}))
    again = Outbox(tmp_path / "webhooks")  # the first was never closed, as after SIGKILL
    assert again.waiting() == 1
    assert {file.stat().st_mode & 0o777 for file in (tmp_path / "webhooks").iterdir()} == {0o600}
    again.close()
    box.close()


def test_the_oldest_go_when_there_are_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "EVENTS_MAX", 10)
    box = Outbox(tmp_path / "webhooks")
    for _ in range(25):
        box.add(new_event("proxy.down", {}))
    assert box.waiting() == 10
    assert box.lost() == 15
    box.fan_out([(number, []) for number, _ in box.unfanned()], 0.0)
    for _ in range(10):
        box.add(new_event("proxy.up", {}))
    assert box.lost() == 15, "no delivery waited for them"
    box.close()
