"""The pulse: a page of memory in which every actor says until when it may be silent.

A heartbeat wakes an actor only to say that it lives. By message it costs two processes a dozen system calls and four
switches; and the waking alone, in a process whose memory has long left every cache, costs 170 µs. So there is none.
An actor that is about to wait for something to do writes down when it will wake at the latest, and writes down the time
at which it woke: its *promise*, by the monotonic clock that all processes share. Whoever is past its promise is busy,
and has been since then; too long, and it hangs. One that waits needs no waking: the kernel will do that. (What looks
like waiting in a process that was stopped by a signal is told by its state in /proc.)

The page is an anonymous file (memfd) that the supervisor makes and the zygote inherits; its size is sealed, so that
nobody can take it away under another's feet.
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
"""Actors that can be alive at a time. Pages of the file that nobody touches take no memory."""


class LivenessPage:
    """The supervisor's side: gives slots away and reads them. `descriptor` is for the zygote to inherit."""

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("pulse", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.descriptor, SLOTS * _SLOT_SIZE)
        fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        self._promises = open_page(self.descriptor)
        self._free: list[int] = []
        self._used = 0

    def take(self) -> int:
        """A slot that nobody has, with no promise in it. Raises `OSError` (ENOSPC) when there is none."""
        if self._free:
            slot = self._free.pop()
            self._promises[slot] = 0.0
            return slot
        if self._used >= SLOTS:
            raise OSError(errno.ENOSPC, "no place is left for the pulse of another process")
        self._used += 1
        return self._used - 1

    def give(self, slot: int) -> None:
        """Whoever had it has ended."""
        self._free.append(slot)

    def promise(self, slot: int) -> float:
        """Until when whoever has the slot may be silent; 0 when nothing was promised yet."""
        return self._promises[slot]

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self.descriptor)


def open_page(descriptor: int) -> memoryview[float]:
    """All promises; what is forked afterwards shares them."""
    return memoryview(mmap.mmap(descriptor, 0)).cast("d")


def promiser(page: memoryview[float], slot: int) -> Callable[[float], None]:
    """What an actor calls with the time until which it may be silent."""
    return partial(page.__setitem__, slot)
