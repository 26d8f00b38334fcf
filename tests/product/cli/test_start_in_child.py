"""What a start reads is read by a child of it, which may end in any way."""

from __future__ import annotations

import subprocess
import sys

import pytest

BEGIN = """
import os, signal
from api.cli.errors import CommandError
from api.cli.local.serve import _in_child
"""


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", BEGIN + code], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.strip()


def test_what_it_has_read_comes_back_also_where_the_end_of_children_is_ignored() -> None:
    assert run("signal.signal(signal.SIGCHLD, signal.SIG_IGN); print(_in_child(lambda: {'a': 7}))") == "{'a': 7}"


@pytest.mark.parametrize(
    ("work", "why"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "The start has failed: a process of it was ended by signal 9"),
        ("os._exit(3)", "The start has failed: what is above says why"),
    ],
)
def test_how_it_has_ended_is_said(work: str, why: str) -> None:
    code = f"""
try:
    _in_child(lambda: {work})
except CommandError as error:
    print(error)
"""
    assert run(code) == why
