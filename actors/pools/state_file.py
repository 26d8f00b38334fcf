"""The file with the state of one pool's upstreams, which every process maps that uses or checks them.

There is one file per pool, in the folder `pools` of the run directory, and not one for all: a pool changes alone, so a
change of one costs the users of another nothing; a process maps the pools that it uses; and a deleted pool is a deleted
file.

The file is a header of sixteen words, a digest of 16 bytes for the identity of each upstream, then a slot of `SLOT`
words for each in the same order (`actors.pools.slot` has the places). A word is a number of 64 bits, aligned.

- The set of upstreams in a file never changes. For other upstreams there is a new file, renamed over the old one;
  slots of upstreams that stay are copied. Then the header of the old one says so (`REPLACED`), and processes
  that map it map the new one at their next use. Which layout is newer is decided by the revision of the pool. Making a
  file is done under a lock; using one takes none.
- It belongs to one boot of the machine (`actors.mapped_file`). A file of another boot or another format is replaced by
  an empty one.

What can be lost. A word is written at once, so no reader sees half of one. Two processes that write the same word in
the same microsecond lose one of the two updates: one failure not counted, one measurement missing in the mean, one
doubling of a cool-down omitted. The words of a slot are not written together: a reader between two writes may see an
upstream that is down with the error before. A text that two write at once may be a mixture of both. A write to a file
in the moment of its replacement is lost. Nothing of that lasts: the next use or check writes again. A ban is written
by one process only, the API, while it holds the lock, so none is lost.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeAlias

from actors.mapped_file import MARK, make_file, map_file, mark

_FORMAT, _BOOT, _BOOT_END, REVISION, COUNT, REPLACED, *_SPARE, CHECKS, CHECKS_FAILED, BANS = range(11)
"""Words of the header. `REPLACED` is not 0 when there is a newer file. The last three are counters of the pool, which
outlive its upstreams: the process that checks counts checks, the API bans."""

_MAGIC = b"pfpool\0\1"
_HEADER = 128
_DIGEST = 16
SLOT = 40
"""Words of a slot."""
_LOCK = ".lock"
_NUMBER_MAX = 2.0**53
"""Up to here a float is a whole number."""

Words: TypeAlias = "memoryview[float]"
"""The numbers of a file, by word."""


class Layout(NamedTuple):
    """Which upstreams a file is for: digests of their identities, joined, and the revision of their pool."""

    digests: bytes
    revision: int

    @property
    def upstreams(self) -> int:
        """How many upstreams."""
        return len(self.digests) // _DIGEST

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return _HEADER + self.upstreams * (_DIGEST + 8 * SLOT)

    def places(self) -> dict[bytes, int]:
        """The first word of each upstream's slot."""
        first = (_HEADER + len(self.digests)) // 8
        return {
            self.digests[_DIGEST * index : _DIGEST * (index + 1)]: first + SLOT * index
            for index in range(self.upstreams)
        }


class StateFile:
    """One mapped file; `raw` are its bytes, `words` its numbers. Without a file it is memory of this process alone."""

    def __init__(self, memory: memoryview | bytearray) -> None:
        self.raw = memoryview(memory)
        self.words = self.raw.cast("d")

    @property
    def layout(self) -> Layout:
        """Which upstreams it is for."""
        count = int(self.words[COUNT])
        return Layout(bytes(self.raw[_HEADER : _HEADER + _DIGEST * count]), int(self.words[REVISION]))

    def column(self, place: int) -> list[float]:
        """This word of all slots, in the order of the file."""
        count = int(self.words[COUNT])
        first = (_HEADER + _DIGEST * count) // 8
        values: list[float] = list(self.words[first + place :: SLOT])
        return values

    def is_valid(self) -> bool:
        """Whether it is of this format and this boot, and whole."""
        if len(self.raw) < _HEADER or bytes(self.raw[:MARK]) != mark(_MAGIC):
            return False
        numbers = self.words[COUNT], self.words[REVISION]
        return all(0 <= each < _NUMBER_MAX for each in numbers) and self.layout.size == len(self.raw)


def digests_of(identities: Sequence[object]) -> bytes:
    """Digests of these values, joined, by their representations."""
    return b"".join(hashlib.blake2b(repr(each).encode(), digest_size=_DIGEST).digest() for each in identities)


def digest_at(digests: bytes, index: int) -> bytes:
    """One of them."""
    return digests[_DIGEST * index : _DIGEST * (index + 1)]


def private_file(layout: Layout) -> StateFile:
    """State that no other process has."""
    return _filled(StateFile(bytearray(layout.size)), layout)


def open_existing(path: Path) -> StateFile | None:
    """The file as it is; None without a valid one. Raises `OSError`."""
    raw = map_file(path, lambda size: size >= _HEADER and size % 8 == 0)
    found = None if raw is None else StateFile(raw)
    return found if found is not None and found.is_valid() else None


def open_for(path: Path, layout: Layout, decides: bool = False) -> StateFile:
    """The file for these upstreams, made if there is none, or if that has other upstreams and is of an older revision.

    With `decides` the revision doesn't matter: after a restore it may be a smaller one. Raises `OSError`.
    """
    found = open_existing(path)
    if found is not None and _serves(found, layout, decides):
        return found
    path.parent.mkdir(mode=0o700, exist_ok=True)
    with locked(path):
        found = open_existing(path)
        if found is not None and _serves(found, layout, decides):
            return found
        fresh = _make(path, layout, found)
        if found is not None:
            found.words[REPLACED] = 1.0
        return fresh


def remove(path: Path) -> None:
    """Delete the file of a pool that is gone. Raises `OSError`."""
    path.unlink(missing_ok=True)


def _serves(found: StateFile, wanted: Layout, decides: bool) -> bool:
    known = found.layout
    if known.digests == wanted.digests:
        found.words[REVISION] = float(wanted.revision if decides else max(known.revision, wanted.revision))
        return True
    return known.revision > wanted.revision and not decides


def _make(path: Path, layout: Layout, former: StateFile | None) -> StateFile:
    def fill(raw: memoryview) -> None:
        fresh = _filled(StateFile(raw), layout)
        if former is not None:
            _copy(former, fresh)

    return StateFile(make_file(path, layout.size, fill))


def _filled(fresh: StateFile, layout: Layout) -> StateFile:
    fresh.raw[:MARK] = mark(_MAGIC)
    fresh.words[REVISION] = float(layout.revision)
    fresh.words[COUNT] = float(layout.upstreams)
    fresh.raw[_HEADER : _HEADER + len(layout.digests)] = layout.digests
    return fresh


def _copy(former: StateFile, fresh: StateFile) -> None:
    for counter in (CHECKS, CHECKS_FAILED, BANS):
        fresh.words[counter] = former.words[counter]
    known = former.layout.places()
    for digest, place in fresh.layout.places().items():
        if digest in known:
            source = 8 * known[digest]
            fresh.raw[8 * place : 8 * (place + SLOT)] = former.raw[source : source + 8 * SLOT]


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """No file takes the place of this one until its end. Raises `OSError`."""
    descriptor = os.open(path.with_name(_LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
