"""The checkout, and the folder of the tests' files: in memory where possible, since tests mostly waited for the disk.

A store syncs each change and each new file, a few milliseconds each time on a disk; a thousand tests make one. What a
killed process leaves is the same in memory. The names are short, since paths of ipc sockets hold 107 bytes.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The checkout."""

MEMORY = Path("/dev/shm")
ENOUGH = 2 * 2**30
"""Bytes that must be free in it: containers often have 64 MB of it, and forbid to run programs there."""


def _usable(memory: Path) -> bool:
    if not (memory.is_dir() and os.access(memory, os.W_OK)) or os.statvfs(memory).f_flag & os.ST_NOEXEC:
        return False
    return shutil.disk_usage(memory).free >= ENOUGH


FOLDERS = str(MEMORY) if _usable(MEMORY) else "/tmp"
