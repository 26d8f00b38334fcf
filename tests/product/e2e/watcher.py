"""The example program that shows live metrics."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.kit.folders import ROOT

PROGRAM = ROOT / "scripts" / "watch_metrics.py"


def watch(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(PROGRAM), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=180, stdin=subprocess.DEVNULL)


class Watcher:
    """The program with a key that it makes in `file`; `public` is its public part, for the configuration."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.public = watch("--new-key", str(file)).stdout.strip()
