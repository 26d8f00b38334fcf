"""The file `columns` of one proxy: a line of eight words for each process that serves it, also for one that drains.

Each word has one writer at a time:

| word | meaning | writer |
|---|---|---|
| OWNER | instance of the process; 0: the line was never used | supervisor, before it starts the process |
| ALIVE | 1 while its counts are valid | the process sets 1 when its column is clean, the supervisor 0 at its end |
| OPEN | open connections | the process |
| SEEN | milliseconds of the monotonic clock of its last accept or end of a connection | the process |
| FILES | which files of the column exist | the process, when the file is whole |
| FULL | how often a key found no place | the process |
| ENDED | milliseconds when it had ended | supervisor |

A process that has died is out of every sum at once, by its ALIVE; nothing goes through what it had counted. The next
owner of the line cleans it.
"""

from __future__ import annotations

import os
import re
from operator import mul
from pathlib import Path
from typing import Final, NamedTuple

from actors.mapped_file import HEADER, FileKind, Words, make, open_existing

COLUMNS: Final = 128
"""Processes that count together; a further one counts for itself alone."""
NO_COLUMN: Final = -1
"""The column of a process that counts for itself."""

LINE: Final = 8
OWNER, ALIVE, OPEN, SEEN, FILES, FULL, ENDED = range(7)
"""Words of a line."""

KEYS, RATES, SESSIONS, USAGE = 1, 2, 4, 8
"""Bits of FILES."""

KIND: Final = FileKind("columns", LINE * COLUMNS)
NAME: Final = "columns"
_OF_COLUMN = re.compile(r"\.?\d+\.(keys|rates|sessions|usage)|\.columns")

_USED = 4
"""The word of the header that has the number of lines in use or used before; the supervisor writes it."""


class OpenCount(NamedTuple):
    """Open connections of all processes that live, and how many processes these are."""

    connections: int
    processes: int


class Columns:
    """The lines of one proxy."""

    __slots__ = ("words",)

    def __init__(self, words: Words) -> None:
        self.words = words

    def word(self, column: int, which: int) -> int:
        """One word of a line."""
        return self.words[HEADER + LINE * column + which]

    def all_of(self, which: int) -> list[int]:
        """One word of every line in use."""
        return self.words[HEADER + which : HEADER + LINE * self.words[_USED] : LINE].tolist()

    def open_connections(self) -> OpenCount:
        """Of the processes that live."""
        words, end = self.words, HEADER + LINE * self.words[_USED]
        alive = words[HEADER + ALIVE : end : LINE].tolist()
        return OpenCount(sum(map(mul, alive, words[HEADER + OPEN : end : LINE])), sum(alive))

    # --- for the process of a line ---

    def write(self, column: int, which: int, value: int) -> None:
        """Set one word of a line."""
        self.words[HEADER + LINE * column + which] = value

    # --- for the supervisor ---

    def assign(self, column: int, instance: int) -> None:
        """The line is for the process with this instance number, which is started now."""
        self.write(column, ALIVE, 0)
        self.write(column, OWNER, instance)
        self.words[_USED] = max(self.words[_USED], column + 1)

    def ended(self, column: int, milliseconds: int) -> None:
        """The process of this line has ended."""
        self.write(column, ENDED, milliseconds)
        self.write(column, ALIVE, 0)


def open_columns(folder: Path) -> Columns | None:
    """The file in the folder of a proxy; None without a valid one. Raises `OSError`."""
    words = open_existing(folder / NAME, KIND, writes=True)
    return None if words is None else Columns(words)


def remove_files(folder: Path) -> None:
    """Remove what workers have made in the folder of a proxy, and the folder if nothing else is there.

    Raises `OSError`.
    """
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return
    ours = [each for each in names if each == NAME or _OF_COLUMN.fullmatch(each)]
    for name in ours:
        (folder / name).unlink(missing_ok=True)
    if len(ours) == len(names):
        folder.rmdir()


def make_columns(folder: Path) -> Columns:
    """A new file, without lines in use. Raises `OSError`."""
    folder.parent.mkdir(mode=0o700, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    return Columns(make(folder / NAME, KIND))
