"""A wall clock for a whole product, by libfaketime."""

from __future__ import annotations

import glob
import time
from pathlib import Path

_LIBRARIES = glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1")
INSTALLED = bool(_LIBRARIES)
"""Whether the library is there."""


class FakedClock:
    """The wall clock of a product, which the test sets; the monotonic one goes on as ever."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._offset = 0
        self.set(0)

    def set(self, offset: int) -> None:
        """So many seconds before the true time (negative: behind)."""
        self._offset = offset
        fresh = self._file.with_suffix(".new")
        fresh.write_text(f"{offset:+d}\n")
        fresh.rename(self._file)

    def now(self) -> float:
        return time.time() + self._offset

    def environment(self) -> dict[str, str]:
        return {
            "LD_PRELOAD": _LIBRARIES[0],
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
