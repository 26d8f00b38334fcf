"""The process that becomes the API: what it does for a start, and how it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import NoReturn

import psutil
import pytest

from config import OperatorError
from tests.kit.folders import ROOT
from tests.kit.wait import wait_until

BEGIN = f"""
import os, signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # as it may be inherited
from actors.supervision.processes.api_process import ApiProcess
from actors.supervision.processes.liveness import LivenessPage
from config import OperatorError
process = ApiProcess(LivenessPage(), {__name__ + ":Starter"!r})
"""


class Starter:
    """What it does here in place of the API."""

    def share(self, text: str) -> tuple[list[str], list[str]]:
        one = [text]
        return one, one

    def refuse(self) -> NoReturn:
        raise OperatorError("the disk is full")

    def end(self, status: int) -> NoReturn:
        if status < 0:
            os.kill(os.getpid(), -status)
        os._exit(status)

    def environment(self) -> list[str]:
        return [name for name in os.environ if name.startswith(("PROXYFLEET_", "LISTEN_"))]

    def sockets(self) -> int:
        found = map(os.path.realpath, (f"/proc/self/fd/{each}" for each in os.listdir("/proc/self/fd")))
        return sum("socket:" in each for each in found)

    def work(self) -> NoReturn:
        while True:
            time.sleep(1)


def python(code: str, **env: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", BEGIN + code]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env={**os.environ, **env})


def printed(code: str, **env: str) -> str:
    """What it prints, and it ends well with `ApiProcess.end`."""
    with python(f"{code}\nprocess.end()", **env) as process:
        assert process.stdout is not None
        text = process.stdout.read().strip()
    assert process.returncode == 0
    return text


def test_what_it_returns_comes_with_what_is_shared_in_it() -> None:
    assert printed("one, other = process.call('share', 'a'); print(one, one is other)") == "['a'] True"


@pytest.mark.parametrize(
    ("call", "why"),
    [
        ("'refuse'", "the disk is full"),
        ("'end', -signal.SIGKILL", "The start has failed: a process of it was ended by signal 9"),
        ("'end', 3", "The start has failed: what is above says why"),
    ],
)
def test_what_it_refuses_and_how_it_has_ended_is_said_and_the_start_ends(call: str, why: str) -> None:
    code = f"""
try:
    process.call({call})
except OperatorError as error:
    print(error)
"""
    assert printed(code) == why


def test_it_has_no_settings_and_no_sockets_of_the_supervisor() -> None:
    secret = {"PROXYFLEET_ADMIN_PASSWORD": "secret", "LISTEN_FDS": "1"}
    assert printed("print(process.call('environment'))", **secret) == "[]"
    opened = "import socket; opened = socket.create_server(('127.0.0.1', 0))"
    command = [sys.executable, "-c", f"{opened}{BEGIN}print(process.call('sockets'))"]
    ran = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    assert ran.stdout == "1\n"  # that of its requests


def test_a_start_closes_as_many_descriptors_as_there_are_whatever_their_limit() -> None:
    of_older_kernels = """
closed, close_all = [], os.closerange
def closerange(*numbers):  # of a kernel without close_range(2)
    closed.extend(range(*numbers))
    close_all(*numbers)
os.sysconf, os.closerange = {"SC_OPEN_MAX": 1 << 20}.get, closerange
"""
    begin = BEGIN.replace("process =", f"{of_older_kernels}Starter.closed = lambda self: len(closed)\nprocess =")
    command = [sys.executable, "-c", f"from {__name__} import Starter{begin}print(process.call('closed'))"]
    ran = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    assert int(ran.stdout) < 100


def test_it_ends_with_the_supervisor_in_the_midst_of_its_work() -> None:
    with python("print(process.pid, flush=True); process.call('work')") as supervisor:
        assert supervisor.stdout is not None
        pid = int(supervisor.stdout.readline())
        supervisor.send_signal(signal.SIGTERM)
    wait_until(lambda: not psutil.pid_exists(pid), "it has ended")


def test_it_ends_when_nothing_becomes_of_the_start() -> None:
    assert not psutil.pid_exists(int(printed("print(process.pid)")))
