"""The environment that this process was started with, as /proc shows it.

What is done to `os.environ` leaves `/proc/PID/environ` as it was: that file shows the memory where the kernel has put
the variables (proc(5)), for as long as the process lives. So secrets that came as variables are wiped out there;
`os.environ` keeps them for those who read the settings again, and for the next program at an upgrade.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

_START_FIELD = 50 - 3
"""`env_start` of proc(5), counted from the field behind the name of the process."""


def wipe(prefix: str) -> None:
    """Overwrite the values of all variables whose names begin so. Raises `OSError` when /proc doesn't show them."""
    environ = Path("/proc/self/environ").read_bytes()
    start = int(Path("/proc/self/stat").read_bytes().rpartition(b") ")[2].split()[_START_FIELD])
    if not environ or ctypes.string_at(start, len(environ)) != environ:
        return  # the memory is used for something else by now
    offset = 0
    for entry in environ.split(b"\0"):
        name, _, value = entry.partition(b"=")
        if name.startswith(os.fsencode(prefix)):
            _move(os.fsdecode(name))
            ctypes.memset(start + offset + len(name) + 1, 0, len(value))
        offset += len(entry) + 1


def _move(name: str) -> None:
    """Set it anew, which gives it memory of its own."""
    if name in os.environ:
        os.environ[name] = os.environ[name]
