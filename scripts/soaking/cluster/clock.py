"""A wall clock for a whole product, which a drill sets. It needs a C compiler; without one clocks are right."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

_SOURCE = Path(__file__).with_name("clock.c")


class NodeClock:
    """That of one node; the monotonic one goes on as ever."""

    def __init__(self, folder: Path) -> None:
        self._file, self._library = folder / "clock", folder / "clock.so"
        self._file.write_bytes(bytes(8))
        compiler = shutil.which("cc")
        self.may_be_set = compiler is not None
        if compiler is not None:
            subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", self._library, _SOURCE, "-ldl"], check=True)

    def set(self, offset: int) -> None:
        """So many seconds before the true time (negative: behind)."""
        with self._file.open("r+b") as file:
            file.write(struct.pack("@l", offset))

    def environment(self) -> dict[str, str]:
        """Of the product."""
        return {"LD_PRELOAD": str(self._library), "CLOCK_OFFSET": str(self._file)} if self.may_be_set else {}
