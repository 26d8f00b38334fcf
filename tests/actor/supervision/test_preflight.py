"""The next program is tried beside the one that runs: whatever it does, it is known whether it would start."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from actors.bus.loop import Loop
from actors.supervision.upgrade import OUTPUT_MAX, WOULD_START, Preflight
from tests.kit.clocks import Clock
from tests.kit.tables import table
from tests.kit.wait import wait_until


@pytest.fixture
def program(tmp_path: Path) -> Callable[[str], str]:
    """A shell script as the next program."""

    def write(text: str) -> str:
        file = tmp_path / "program"
        file.write_text(f"#!/bin/sh\n{text}\n")
        file.chmod(0o755)
        return str(file)

    return write


def outcome(
    command: str,
    meanwhile: Callable[[Preflight], None] = lambda _rehearsal: None,
    clock: Callable[[], float] = time.monotonic,
) -> str | None:
    """What is wrong, when it has ended."""
    loop, problem = Loop(clock), list[str | None]()
    rehearsal = Preflight(loop, [command], problem.append)

    def ended() -> bool:
        meanwhile(rehearsal)
        loop.turn(0.02)
        pid, status = os.waitpid(rehearsal.pid, os.WNOHANG) if not problem else (0, 0)
        return bool(problem) or (pid != 0 and rehearsal.reaped(pid, os.waitstatus_to_exitcode(status)))

    wait_until(ended, "it has ended")
    loop.close()
    return problem[0]


@table(
    ("script", "problem"),
    [
        (f"echo a warning >&2; echo '{WOULD_START}'", None),
        ("", "it did not report that it would: nothing at all"),
        ("printf '\\377\\376'; exit 3", "\ufffd\ufffd"),
        ("kill -9 $$", "it was killed by SIGKILL"),
    ],
    ids=["says so", "says nothing", "is no text", "kills itself"],
)
def test_a_program_would_start_if_it_says_so(program: Callable[[str], str], script: str, problem: str | None) -> None:
    assert outcome(program(script)) == problem


def test_the_last_words_of_a_program_that_prints_without_end_are_kept(program: Callable[[str], str]) -> None:
    problem = outcome(program("head -c 3000000 /dev/zero | tr '\\0' 'x'; echo the reason; exit 1"))
    assert problem is not None
    assert problem.endswith("xthe reason")
    assert len(problem) <= OUTPUT_MAX


def test_a_program_that_hangs_is_killed_with_all_that_it_has_started(
    program: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("actors.supervision.upgrade.TIMEOUT", 0.5)
    grandchildren: list[psutil.Process] = []
    clock = Clock(1_000.0)

    def remember_children(rehearsal: Preflight) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            grandchildren[:] = psutil.Process(rehearsal.pid).children() or grandchildren
        if grandchildren:
            clock.now += 0.1  # its time runs from when it has done what it is to do, however long that took

    problem = outcome(program("echo began; sleep 1000; true"), remember_children, clock)
    assert problem == "it took longer than 0.5 s: began"
    assert grandchildren
    wait_until(lambda: not any(alive(each) for each in grandchildren), "nothing of it is left")


def alive(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_program_that_can_not_be_executed_leaves_nothing_open(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    with pytest.raises(FileNotFoundError):
        Preflight(Loop(), [str(tmp_path / "nothing")], lambda _problem: None)
    assert len(os.listdir("/proc/self/fd")) <= len(before) + 1  # the loop's own
