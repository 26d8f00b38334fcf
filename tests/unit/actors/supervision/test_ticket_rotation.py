"""The root key of TLS session tickets: when there is one, and when another."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors.bus.loop import Loop
from actors.net.tls_tickets import ROOT_SIZE, Root, build, read_root, write_root
from actors.supervision import ticket_rotation
from actors.supervision.ticket_rotation import PERIOD, TicketRotation
from config.files.accounts_table import boot_id
from tests.kit.clocks import Clock

KEY = bytes(range(ROOT_SIZE))


@pytest.fixture
def loop() -> Iterator[Loop]:
    made = Loop()
    yield made
    made.close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tickets"


def checked(rotation: TicketRotation) -> None:
    """Wait for the process that checks, which is the only child that is asked for here."""
    pid = rotation._checking
    done, status = os.waitpid(pid, 0)
    assert rotation.reaped(done, os.waitstatus_to_exitcode(status))


def test_a_check_comes_before_the_first_root_key(loop: Loop, file: Path) -> None:
    rotation = TicketRotation(loop, file)
    rotation.begin()
    assert read_root(file) is None
    checked(rotation)
    root = read_root(file)
    assert root is not None
    assert (root.build, root.boot) == (build(), boot_id())
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_restart_keeps_the_root_key_and_checks_nothing(loop: Loop, file: Path) -> None:
    clock = Clock()
    write_root(file, Root(build(), boot_id(), clock(), KEY))
    rotation = TicketRotation(loop, file, clock)
    rotation.begin()
    assert not rotation._checking
    root = read_root(file)
    assert root is not None
    assert root.key == KEY


@pytest.mark.parametrize("other", [{"build": "CPython 2.7"}, {"boot": b"another"}])
def test_a_root_key_of_another_boot_or_build_is_gone_at_once(loop: Loop, file: Path, other: dict[str, object]) -> None:
    write_root(file, Root(build(), boot_id(), 0.0, KEY)._replace(**other))
    rotation = TicketRotation(loop, file)
    rotation.begin()
    assert not file.exists()
    checked(rotation)
    root = read_root(file)
    assert root is not None
    assert root.key != KEY


def test_the_root_key_is_replaced_when_its_time_is_up(loop: Loop, file: Path) -> None:
    clock = Clock()
    write_root(file, Root(build(), boot_id(), clock(), KEY))
    rotation = TicketRotation(loop, file, clock)
    rotation.begin()
    clock.now += PERIOD - 1
    rotation.replace_when_due()
    before = read_root(file)
    clock.now += 1
    rotation.replace_when_due()
    after = read_root(file)
    assert before is not None
    assert after is not None
    assert before.key == KEY != after.key


def test_without_a_good_check_there_is_no_root_key(
    loop: Loop, file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ticket_rotation, "PROGRAM", "import os; os.abort()")
    rotation = TicketRotation(loop, file)
    rotation.begin()
    checked(rotation)
    assert not file.exists()
    assert "SIGABRT" in caplog.text
    assert not rotation.reaped(os.getpid(), 0), "no other child is the check's"
