"""curl, as a person in a shell uses it."""

from __future__ import annotations

import shutil
import subprocess

import pytest

SECONDS = 120
needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")


def curl(*arguments: str) -> tuple[int, str]:
    """Status and body of the last response; 0 where there is none, as from a proxy that refuses CONNECT."""
    command = ["curl", "-sS", "-m", str(SECONDS), "--noproxy", "", "-w", "\n%{http_code}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * SECONDS, check=False)
    body, _, status = done.stdout.rpartition("\n")
    return int(status), body
