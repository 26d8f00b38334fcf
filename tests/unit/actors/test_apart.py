"""Work in a process of its own: its result comes back, its error too, and nothing else of it stays."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import os, signal
from actors.apart import apart
from api.cli.errors import CommandError

def fail():
    raise CommandError("no", "try again")

seen = []
print(apart(lambda: [seen.append(1), len(seen)][1]), seen)
try:
    apart(fail)
except CommandError as error:
    print(error, error.hint)
try:
    apart(lambda: os.kill(os.getpid(), signal.SIGKILL))
except ChildProcessError as error:
    print(error)
try:
    os.waitpid(-1, 0)
except ChildProcessError:
    print("no process is left")
"""

NO_FORK = """
import errno, os
from actors.apart import apart

def no_fork():
    raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

os.fork = no_fork
before = set(os.listdir("/proc/self/fd"))
try:
    apart(lambda: 1)
except OSError as error:
    print(error.errno == errno.EAGAIN, set(os.listdir("/proc/self/fd")) == before)
"""

MEMORY = """
from actors.apart import apart

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

def work():
    made = [[str(number)] for number in range(400_000)]
    return made[::1000]

before = resident()
kept = apart(work)
print(len(kept), resident() - before < 4_000_000)
"""

ENDLESS = """
import os, time
from actors.apart import apart

apart(lambda: [os.write(1, b"working\\n"), time.sleep(60)])
"""


def run(program: str) -> list[str]:
    """In a process without other threads."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=300)
    return done.stdout.splitlines()


def test_the_result_and_the_error_come_back_and_a_process_that_dies_is_an_error() -> None:
    assert run(PROGRAM) == [
        "1 []",
        "no try again",
        "a process that was to work for this one ended with -9",
        "no process is left",
    ]


def test_no_descriptor_is_left_when_there_can_be_no_process() -> None:
    assert run(NO_FORK) == ["True True"]


def test_memory_that_the_work_takes_for_a_moment_is_not_the_callers() -> None:
    assert run(MEMORY) == ["400 True"]


def test_the_process_ends_with_the_one_that_it_works_for() -> None:
    with subprocess.Popen([sys.executable, "-c", ENDLESS], stdout=subprocess.PIPE) as caller:
        assert caller.stdout is not None
        assert caller.stdout.readline() == b"working\n"
        caller.kill()
        assert caller.stdout.read() == b""  # which returns when no process has the other end any more
