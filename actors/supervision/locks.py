"""One instance per directory: a lock file that holds the process id of its owner.

The lock is `flock`'s, so it is gone with its last holder, however that ended. The supervisor lets its actors inherit
the descriptor: when it is killed, the next start waits for the last orphan, and two processes never write the same
store.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

ORPHANS_END_WITHIN = 5.0


class LockedError(Exception):
    """Another process has the directory; the text names it."""


def lock(file: Path, what: str, patience: float = ORPHANS_END_WITHIN) -> int:
    """Acquire the lock and return its descriptor, to be kept open for as long as the lock is needed.

    Raises `LockedError` at once when its owner lives, and after `patience` seconds when only the owner's orphans do.
    """
    deadline = time.monotonic() + patience
    while (descriptor := _acquired(file, what, deadline)) is None:
        continue  # its last owner removed it, and this was that one
    owner = f"{os.getpid()}\n"
    os.pwrite(descriptor, owner.encode(), 0)  # over the older one: on a full disk there is room for no other
    os.ftruncate(descriptor, len(owner))
    return descriptor


def _acquired(file: Path, what: str, deadline: float) -> int | None:
    """The lock on `file`; None when that has been removed meanwhile. Raises `LockedError`."""
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    while not _try(descriptor):
        owner = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
        if _lives(owner) or time.monotonic() > deadline:
            os.close(descriptor)
            raise LockedError(f"{what} {file.parent} is in use by process {owner or 'unknown'}")
        time.sleep(0.02)
    if os.fstat(descriptor).st_nlink:
        return descriptor
    os.close(descriptor)
    return None


def holder(file: Path) -> int | None:
    """The process that holds the lock now; None without one, and without permission to read the file."""
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        owner = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
        return int(owner) if not _try(descriptor) and _lives(owner) else None
    finally:
        os.close(descriptor)


def _try(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _lives(owner: str) -> bool:
    """True if the process lives; a zombie doesn't."""
    if not owner.isascii() or not owner.isdigit():
        return False
    try:
        status = Path(f"/proc/{owner}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] not in ("Z", "X")
