"""The pulse: a page of memory in which every actor shows that its loop still turns.

A heartbeat by message costs two processes a dozen system calls and four switches; two hundred idle actors spent most
of their time on it. Here an actor counts up a number in its own slot of a page that all of them share, and the
supervisor reads all slots in one go. What tells a living actor from a stuck one is that its number *changes*: not its
value, nor anybody's clock.

The page is an anonymous file (memfd) that the supervisor makes and the zygote inherits; its size is sealed, so that
nobody can take it away under another's feet.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os

_SLOT_SIZE = 8
SLOTS = 128 * 1024
"""Actors that can be alive at a time. Pages of the file that nobody touches take no memory."""


class PulsePage:
    """The supervisor's side: gives slots away and reads them. `descriptor` is for the zygote to inherit."""

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("pulse", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.descriptor, SLOTS * _SLOT_SIZE)
        fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        self._beats = memoryview(mmap.mmap(self.descriptor, 0, prot=mmap.PROT_READ)).cast("Q")
        self._free: list[int] = []
        self._used = 0

    def take(self) -> int:
        """A slot that nobody has. Raises `OSError` (ENOSPC) when there is none."""
        if self._free:
            return self._free.pop()
        if self._used >= SLOTS:
            raise OSError(errno.ENOSPC, "no place is left for the pulse of another process")
        self._used += 1
        return self._used - 1

    def give(self, slot: int) -> None:
        """Whoever had it has ended."""
        self._free.append(slot)

    def beats(self, slot: int) -> int:
        """A number that changes as long as whoever has the slot is alive."""
        return self._beats[slot]

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self.descriptor)


class Pulse:
    """An actor's side: one slot."""

    def __init__(self, beats: memoryview[int], slot: int) -> None:
        self._beats = beats
        self._slot = slot

    def beat(self) -> None:
        """Say: alive."""
        self._beats[self._slot] = (self._beats[self._slot] + 1) % (1 << 64)


def open_page(descriptor: int) -> memoryview[int]:
    """All slots, to be written; what is forked afterwards has them too."""
    return memoryview(mmap.mmap(descriptor, 0)).cast("Q")
