"""What a forwarding actor has counted of its accounts, in a small file that outlives the process.

Each actor maps one file in the run directory and counts in it, so that what it had counted is there to the byte however
it died. It holds a lock on the file for as long as it lives; the metrics collector takes the last figures from a file
without a lock, and deletes it.

The file is records of 128 bytes: eight numbers of 64 bits in the machine's byte order (`NUMBERS`), then the account's
id. A number is written at once, so a reader never sees half of it. A record whose serial is 0 is free.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SERIAL, BYTES_IN, BYTES_OUT, REQUESTS, MILLISECONDS, REFUSALS = range(6)
"""Places of the numbers in a record."""

_RECORD = 128
_NUMBERS = 8
_WORDS = _RECORD // 8
_ID_MAX = _RECORD - 8 * _NUMBERS
_CHUNK = 16 * 1024
_HIDDEN = "."
"""Begins the name of a file that is not locked yet."""

Numbers = memoryview


class UsageSlot(NamedTuple):
    """A record: `numbers[at + BYTES_IN]`."""

    numbers: Numbers
    at: int


class FileRecord(NamedTuple):
    """What a record says; `numbers` are by the places above."""

    account_id: str
    numbers: tuple[int, ...]


def private_slot() -> UsageSlot:
    """A record in the memory of this process alone."""
    return UsageSlot(memoryview(bytearray(8 * _NUMBERS)).cast("Q"), 0)


class UsageFile:
    """The file of this process. Not to be opened before a fork, since a child would hold the lock."""

    def __init__(self, folder: Path, proxy_id: str, instance: int) -> None:
        """Raises `OSError`."""
        folder.mkdir(mode=0o700, exist_ok=True)
        self.path = folder / f"{proxy_id}.{instance}"
        hidden = folder / f"{_HIDDEN}{self.path.name}"
        self._descriptor = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self._free: list[UsageSlot] = []
        self._size = 0
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._grow()
            hidden.rename(self.path)
        except OSError:
            os.close(self._descriptor)
            hidden.unlink(missing_ok=True)
            raise

    def slot(self, account_id: str, serial: int) -> UsageSlot:
        """A record for this account with all figures at zero. Raises `OSError` when the file can't grow."""
        identifier = account_id.encode()
        if len(identifier) > _ID_MAX:
            return private_slot()
        if not self._free:
            self._grow()
        slot = self._free.pop()
        numbers, at = slot
        for place in range(_NUMBERS):
            numbers[at + place] = 0
        for place, word in enumerate(struct.unpack("=8Q", identifier.ljust(_ID_MAX, b"\0"))):
            numbers[at + _NUMBERS + place] = word
        numbers[at + SERIAL] = serial  # last: from now on the record counts
        return slot

    def release(self, slot: UsageSlot) -> None:
        """Free a record whose figures the collector has stored."""
        if len(slot.numbers) > _NUMBERS:
            slot.numbers[slot.at + SERIAL] = 0
            self._free.append(slot)

    def _grow(self) -> None:
        os.posix_fallocate(self._descriptor, self._size, _CHUNK)  # a hole on a full disk would end the process
        chunk = memoryview(mmap.mmap(self._descriptor, _CHUNK, offset=self._size)).cast("Q")
        self._size += _CHUNK
        self._free.extend(UsageSlot(chunk, at) for at in range(len(chunk) - _WORDS, -1, -_WORDS))


def process_of(path: Path) -> tuple[str, int] | None:
    """Proxy id and instance of the process that a file belongs to; None for another file."""
    proxy_id, _, instance = path.name.rpartition(".")
    return (proxy_id, int(instance)) if proxy_id and instance.isdecimal() else None


def files(folder: Path, proxy_id: str | None = None) -> Iterator[tuple[Path, str, int]]:
    """The files of processes, of one proxy or of all, with proxy id and instance."""
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return
    for name in names:
        process = None if name.startswith(_HIDDEN) else process_of(folder / name)
        if process is not None and proxy_id in (None, process[0]):
            yield folder / name, *process


def is_held(path: Path) -> bool:
    """Whether the process of the file lives. Raises `OSError`."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def read(path: Path) -> Iterator[FileRecord]:
    """What is counted in the file of a process that is gone. Raises `OSError`."""
    data = path.read_bytes()
    for start in range(0, len(data) - _RECORD + 1, _RECORD):
        numbers = struct.unpack_from(f"={_NUMBERS}Q", data, start)
        if numbers[SERIAL]:
            identifier = data[start + 8 * _NUMBERS : start + _RECORD].rstrip(b"\0")
            yield FileRecord(identifier.decode(errors="replace"), numbers)
