"""A bench for parts of the bus: a loop, a context, and a short run directory."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import zmq

from actors.bus.loop import Loop
from config.files.paths import RunDir, open_run_dir
from tests.kit.folders import FOLDERS


class Bench:
    """One loop with everything in it; `until` turns it until a condition holds."""

    def __init__(self) -> None:
        self.run_dir: RunDir = open_run_dir(Path(tempfile.mkdtemp(prefix="pf-", dir=FOLDERS)))
        self.context: zmq.Context[Any] = zmq.Context()
        self.loop = Loop()
        self._closing: list[Callable[[], object]] = []

    def keep(self, thing: Any) -> Any:
        """Close it at the end."""
        self._closing.append(thing.close)
        return thing

    def until(self, condition: Callable[[], object], what: str, seconds: float = 120.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
            self.loop.turn(0.05)

    def close(self) -> None:
        for close in reversed(self._closing):
            close()
        self.context.destroy(linger=0)
        self.loop.close()
        shutil.rmtree(self.run_dir.path, ignore_errors=True)
