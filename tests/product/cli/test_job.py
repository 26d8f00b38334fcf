"""A command in the foreground: its exit status, the signals that it gets, and what it finds of ours in /proc."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from api.cli.job import run_job

_RUN = "import os, sys; from api.cli.job import {names}; sys.exit({call})"


def started(call: str, *command: str, **env: str) -> subprocess.Popen[str]:
    """A process that does this with the command, in a process group of its own."""
    code = _RUN.format(names="hidden_from_job, run_job", call=call)
    return subprocess.Popen(
        [sys.executable, "-c", code, *command],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **env},
        start_new_session=True,
    )


RUN = "run_job(sys.argv[1:], os.environ)"


@pytest.mark.parametrize(
    ("script", "status"),
    [("exit 0", 0), ("exit 7", 7), ("kill -KILL $$", 137), ("kill -TERM $$", 143), ("kill -PIPE $$", 141)],
)
def test_the_exit_status_is_that_of_a_shell(script: str, status: int) -> None:
    assert run_job(["sh", "-c", script], os.environ) == status


def test_what_can_not_be_run_is_the_error_of_the_kernel(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(FileNotFoundError):
        run_job(["no-such-command"], os.environ)
    with pytest.raises(PermissionError):
        run_job([str(file)], os.environ)


@pytest.mark.parametrize("name", ["TERM", "INT", "HUP", "QUIT", "USR1", "USR2"])
def test_a_signal_for_us_reaches_the_command_which_decides(name: str) -> None:
    script = f"trap 'exit 9' {name}; echo ready; while :; do sleep 0.05; done"
    process = started(RUN, "sh", "-c", script)
    assert process.stdout is not None
    with process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(getattr(signal, f"SIG{name}"))
        assert process.wait(60) == 9


def test_signals_are_as_they_were_before_and_after() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    script = "import signal; print(signal.pthread_sigmask(signal.SIG_BLOCK, ()), signal.getsignal(signal.SIGINT))"
    process = started(RUN, sys.executable, "-c", script)
    assert process.communicate(timeout=60)[0].startswith("set() <built-in function default_int_handler>")
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before


def test_a_descriptor_is_inherited_by_its_number() -> None:
    reader, writer = os.pipe()
    try:
        assert run_job(["sh", "-c", f"echo there > /proc/self/fd/{writer}"], os.environ, [writer]) == 0
        assert os.read(reader, 100) == b"there\n"
    finally:
        os.close(reader)
        os.close(writer)


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is hidden from root")
def test_a_command_can_not_read_our_memory() -> None:
    hiding = "hidden_from_job('SECRET_').__enter__() or " + RUN
    process = started(hiding, "sh", "-c", "cat /proc/$PPID/environ; exit 0")
    assert process.communicate(timeout=60)[0] == ""


def test_variables_are_wiped_out_of_what_proc_shows_of_us() -> None:
    hiding = "hidden_from_job('SECRET_').__enter__() or " + RUN
    process = started(hiding, "sh", "-c", "cat /proc/$PPID/environ; exit 0", SECRET_KEY="pf_12345")
    assert "pf_12345" not in process.communicate(timeout=60)[0]
