"""Compiled modules do with any input what their sources do: the same commands, bytes and values."""

from __future__ import annotations

import subprocess
import sys
from difflib import unified_diff

import pytest

from actors.compiled import runs_compiled
from tests.conformance.fuzzing.corpus import NAMES
from tests.kit.folders import ROOT

TRACES = [sys.executable, "-m", "tests.conformance.traces"]
SHOWN = 3
"""Inputs with another trace that are named."""


@pytest.mark.skipif(not runs_compiled(), reason="nothing is compiled here")
def test_each_input_has_the_trace_that_it_has_in_python() -> None:
    ours, theirs = (traces(*options) for options in ((), ("--pure",)))
    assert ours.keys() == theirs.keys()
    assert {name for name, _ in ours} == set(NAMES)
    others = [(name, data) for name, data in ours if ours[name, data] != theirs[name, data]]
    assert not others, f"{len(others)} of {len(ours)} differ, the first:\n" + "\n".join(map(difference, others[:SHOWN]))


def traces(*options: str) -> dict[tuple[str, str], str]:
    """The digest of each trace by the target and the input."""
    lines = printed(*options).splitlines()
    return {(name, data): digest for name, data, digest in (line.split(" ") for line in lines)}


def difference(which: tuple[str, str]) -> str:
    lines = (printed(*options, "--show", *which).splitlines() for options in ((), ("--pure",)))
    return f"{which}\n" + "\n".join(unified_diff(*lines, "compiled", "pure", lineterm="", n=0))


def printed(*options: str) -> str:
    return subprocess.run([*TRACES, *options], cwd=ROOT, check=True, capture_output=True, text=True).stdout
