"""Liveness in shared memory: each actor writes its liveness deadline, which the supervisor reads instead of heartbeats.

A heartbeat wakes an actor only to report that it lives. By message it costs two processes a dozen system calls and four
switches; and the wake-up alone, in a process whose memory has long left every cache, costs 170 µs. Instead an actor
that is about to wait writes when it will wake at the latest, and writes the time at which it woke: its *deadline*, by
the monotonic clock that all processes share. An actor past its deadline is busy, and has been since then; too long, and
it hangs. One that waits needs no wake-up: the kernel wakes it. (A process that was stopped by a signal only seems to
wait; its state in /proc differs.)

The page is an anonymous file (memfd) that the supervisor makes and the zygote inherits; its size is sealed, so that no
process can shrink it while another one uses it.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
from collections.abc import Callable
from functools import partial

_SLOT_SIZE = 8
SLOTS = 128 * 1024
"""Actors that can be alive at a time. Untouched pages of the file take no memory."""


class LivenessPage:
    """The supervisor's side: assigns the slots and reads them. `descriptor` is for the zygote to inherit."""

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("pulse", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.descriptor, SLOTS * _SLOT_SIZE)
        fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        self._deadlines = open_page(self.descriptor)
        self._free: list[int] = []
        self._used = 0

    def acquire(self) -> int:
        """A free slot, with 0 in it. Raises `OSError` (ENOSPC) when there is none."""
        if self._free:
            slot = self._free.pop()
            self._deadlines[slot] = 0.0
            return slot
        if self._used >= SLOTS:
            raise OSError(errno.ENOSPC, "no slot is left on the liveness page")
        self._used += 1
        return self._used - 1

    def release(self, slot: int) -> None:
        """The process with this slot has ended."""
        self._free.append(slot)

    def deadline(self, slot: int) -> float:
        """Until when the process with this slot may be silent; 0 when it has written nothing yet."""
        return self._deadlines[slot]

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self.descriptor)


def open_page(descriptor: int) -> memoryview[float]:
    """All deadlines, shared with processes that are forked afterwards."""
    return memoryview(mmap.mmap(descriptor, 0)).cast("d")


def deadline_writer(page: memoryview[float], slot: int) -> Callable[[float], None]:
    """A function that writes the deadline of the actor with this slot."""
    return partial(page.__setitem__, slot)
