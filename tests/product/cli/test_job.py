"""A command in the foreground: its exit status, the signals that it gets, and what it finds of ours in /proc."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from api.cli.job import run_job
from tests.kit.folders import ROOT
from tests.kit.tables import table
from tests.product.cli.jobs import PYTHON
from tests.product.cli.shell import Terminal

RUN = """
import os, sys
from api.cli.job import hide_from_job, run_job
hide_from_job("SECRET_", "--key")
sys.exit(run_job(sys.argv[1:], os.environ))
"""
OTHER = 65534
"""A user without rights."""


def started(*command: str, **env: str) -> subprocess.Popen[str]:
    """A process that runs the command, in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", RUN, *command],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **env},
        start_new_session=True,
    )


@table(
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


@table("name", ["TERM", "INT", "HUP", "QUIT", "USR1", "USR2"])
def test_a_signal_for_us_reaches_the_command_which_decides(name: str) -> None:
    script = f"trap 'exit 9' {name}; echo ready; while :; do sleep 0.05; done"
    process = started("sh", "-c", script)
    assert process.stdout is not None
    with process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(getattr(signal, f"SIG{name}"))
        assert process.wait(60) == 9


def test_ctrl_c_is_for_the_command_alone() -> None:
    """It may end before this process has seen the signal, which must not end this one afterwards."""
    code = RUN.replace("sys.exit(", "print('status', ").replace("os.environ))", "os.environ), flush=True)")
    for _ in range(10):
        script = "echo $((30+1)); exec sleep 600"
        with Terminal([sys.executable, "-c", code, "sh", "-c", script], dict(os.environ)) as terminal:
            terminal.until("31")
            terminal.type("\x03")
            assert terminal.end() == 0
            assert "status 130" in terminal.text


def test_signals_are_as_they_were_before_and_after() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    script = "import signal; print(signal.pthread_sigmask(signal.SIG_BLOCK, ()), signal.getsignal(signal.SIGINT))"
    process = started(sys.executable, "-c", script)
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


def test_a_command_of_the_same_user_can_not_read_our_memory() -> None:
    """Root is no such user: from it nothing is hidden."""
    script = "echo $PPID; cat /proc/$PPID/environ /proc/$PPID/mem"
    as_user: dict[str, Any] = {"user": OTHER, "group": OTHER, "extra_groups": ()} if os.geteuid() == 0 else {}
    ended = subprocess.run(
        [PYTHON, "-c", RUN, "sh", "-c", script],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"], "SECRET_KEY": "pf_12345"},
        timeout=60,
        **as_user,
    )
    assert (ended.stdout.strip().isdecimal(), ended.stderr.count("Permission denied")) == (True, 2), ended


def test_what_a_command_has_left_behind_can_not_read_our_memory_either() -> None:
    """Then the key is still used, to revoke the credential."""
    later = "os.system('cat /proc/$PPID/environ /proc/$PPID/mem')"
    code = RUN.replace("sys.exit(run_job(sys.argv[1:], os.environ))", f"run_job(['true'], os.environ); {later}")
    as_user: dict[str, Any] = {"user": OTHER, "group": OTHER, "extra_groups": ()} if os.geteuid() == 0 else {}
    ended = subprocess.run(
        [PYTHON, "-c", code],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"], "SECRET_KEY": "pf_12345"},
        timeout=60,
        **as_user,
    )
    assert (ended.stdout, ended.stderr.count("Permission denied")) == ("", 2), ended


def test_a_caller_that_ignores_the_end_of_its_children_gets_the_status() -> None:
    """As some supervisors do; the kernel keeps no status then (wait(2), SIGCHLD)."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert run_job(["sh", "-c", "exit 7"], os.environ) == 7
        assert signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_variables_are_wiped_out_of_what_proc_shows_of_us() -> None:
    process = started("sh", "-c", "cat /proc/$PPID/environ; exit 0", SECRET_KEY="pf_12345")
    assert "pf_12345" not in process.communicate(timeout=60)[0]


def test_a_key_that_came_as_an_argument_is_wiped_too() -> None:
    """Any user may read arguments; those of the command are copies."""
    keys = ("--key", "pf_12345", "--key=pf_12345", "--keys", "other")
    process = started("sh", "-c", "tr '\\0' ' ' </proc/$PPID/cmdline; echo; echo $*", "sh", *keys)
    ours, given = process.communicate(timeout=60)[0].splitlines()[-2:]
    assert ours.endswith("sh --key xxxxxxxx --key=xxxxxxxx --keys other ")
    assert given == " ".join(keys)
