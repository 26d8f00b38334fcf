"""Room for descriptors, in a process of its own whose limit can be lowered."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import os, resource, sys
from actors.supervision.fd_limit import require
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
used = len(os.listdir("/proc/self/fd")) - 1
opened = [os.dup(2) for _ in range(20)]
if sys.argv[2] == "holes":
    [os.close(each) for each in opened[:-1]]  # the highest stays in use
    used += 1
else:
    used += 20
resource.setrlimit(resource.RLIMIT_NOFILE, (used + int(sys.argv[1]), hard))
try:
    require(8)
except OSError as error:
    print(error.strerror)
else:
    print("room")
"""


@pytest.mark.parametrize(
    ("spare", "shape", "said"),
    [
        (0, "dense", "Too many open files"),
        (7, "dense", "Too many open files"),
        (40, "dense", "room"),
        (0, "holes", "Too many open files"),
        (7, "holes", "Too many open files"),
        (40, "holes", "room"),
    ],
)
def test_there_is_room_while_more_are_free_than_have_to_be_left(spare: int, said: str, shape: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(spare), shape], capture_output=True, text=True, timeout=60
    )
    assert (done.stdout.strip(), done.stderr) == (said, "")


def test_the_limit_is_distinguished_from_its_neighbour() -> None:
    outcomes = []
    for spare in range(6, 12):
        command = [sys.executable, "-c", PROGRAM, str(spare), "dense"]
        outcomes.append(subprocess.run(command, capture_output=True, text=True, timeout=180).stdout.strip())
    assert outcomes == sorted(outcomes)
    assert set(outcomes) == {"Too many open files", "room"}
