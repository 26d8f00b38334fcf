"""Files that several processes map: how one is made, and known again.

A file begins with a mark of its format, its kind and the boot of the machine, since its times are of the monotonic
clock, which all processes share. No process sees one before it is complete. All its blocks are allocated when it is
made: a hole on a full file system would end the process that touches it. One of another boot, kind or size is none.
"""

from __future__ import annotations

import hashlib
import mmap
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

from config.files.paths import boot_id

Words: TypeAlias = "memoryview[int]"
"""Numbers of 64 bits without a sign, aligned: each is written at once, so no reader sees half of one."""

MARK: Final = 24
"""Bytes of a mark."""


def mark(magic: bytes, kind: bytes = b"") -> bytes:
    """The mark of a file of this boot; `magic` are eight bytes that name the format."""
    return magic + hashlib.blake2b(kind + (boot_id() or b""), digest_size=MARK - len(magic)).digest()


def make_file(path: Path, size: int, fill: Callable[[memoryview], None]) -> memoryview:
    """The bytes of a new file in the place of any that is there, zeros but for what `fill` writes. Raises `OSError`."""
    hidden = path.with_name(f".{path.name}")
    descriptor = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, size)
        raw = memoryview(mmap.mmap(descriptor, size))
        fill(raw)
        hidden.rename(path)
    except OSError:
        hidden.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)
    return raw


def map_file(path: Path, fits: Callable[[int], bool], writes: bool = True) -> memoryview | None:
    """The bytes of the file as it is; None without one whose size `fits`. Raises `OSError`."""
    try:
        descriptor = os.open(path, (os.O_RDWR if writes else os.O_RDONLY) | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        size = os.fstat(descriptor).st_size
        access = mmap.ACCESS_WRITE if writes else mmap.ACCESS_READ
        return memoryview(mmap.mmap(descriptor, size, access=access)) if fits(size) else None
    finally:
        os.close(descriptor)
