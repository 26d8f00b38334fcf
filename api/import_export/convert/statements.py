"""Lines of configuration files, and finding the files that they name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from glob import escape, has_magic, iglob
from ipaddress import ip_address
from itertools import accumulate, islice
from pathlib import Path

FILE_MAX = 64 * 1024 * 1024
"""Bytes of one file, and of all together."""
READS_MAX = 2_000
"""Files that are read for one configuration: those that include one another double with each level."""
PATTERNS_MAX = 2
MOST = 40
"""Characters of a statement in the name of a rule."""
_UNFIT = re.compile(r"[\x00-\x1f\x7f-\x9f]")


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where a statement is."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Statement:
    """One directive with its parameters."""

    place: Place
    name: str
    words: tuple[str, ...]

    @property
    def text(self) -> str:
        """As it was written, with single blanks."""
        return " ".join((self.name, *self.words))


class Accepted:
    """The lines of which may be left out what can't be carried over: numbers of the main file's, or `FILE:LINE`."""

    def __init__(self, main: Path, lines: Sequence[str] = ()) -> None:
        self._main = main
        self._unused = dict.fromkeys(lines)
        self._lines = frozenset(lines)

    def has(self, place: Place) -> bool:
        """Whether it is one of these lines."""
        names = {str(place), f"{place.file.rpartition('/')[2]}:{place.line}"}
        if place.file == str(self._main):
            names.add(str(place.line))
        found = names & self._lines
        for each in found:
            self._unused.pop(each, None)
        return bool(found)

    @property
    def unused(self) -> list[str]:
        """Those that no line was asked for."""
        return list(self._unused)

    def option(self, place: Place) -> str:
        """How to accept a line."""
        return f"--accept {place.line if place.file == str(self._main) else place}"


class UnreadableFile(Exception):
    """A file can't be read; the text says why."""


class Files:
    """The files of one configuration. Absolute paths are searched below `root` first, if there is one."""

    def __init__(self, root: Path | None = None) -> None:
        self._root = root
        self._reads = 0
        self._left = FILE_MAX

    def find(self, name: str, beside: Path) -> Path:
        """The path of a file that another names; `beside` is the directory of that one."""
        path = Path(name)
        if not path.is_absolute():
            return beside / path
        moved = None if self._root is None else self._root / path.relative_to("/")
        return moved if moved is not None and moved.exists() else path

    def expand(self, pattern: str, beside: Path) -> list[Path]:
        """The files that a pattern of a shell names, sorted. Raises `UnreadableFile`: some would walk a disk."""
        given = Path(pattern)
        if sum(map(has_magic, given.parts)) > PATTERNS_MAX:
            raise UnreadableFile(f"{pattern}: more than {PATTERNS_MAX} of its folders are patterns")
        whole = str(given if given.is_absolute() else Path(escape(str(beside))) / given)
        moved = [] if self._root is None else _matching(f"{escape(str(self._root))}/{whole.lstrip('/')}")
        return [Path(each) for each in moved or _matching(whole)]

    def read(self, path: Path) -> str:
        """The text of a file. Raises `UnreadableFile`."""
        self._reads += 1
        if self._reads > READS_MAX:
            raise UnreadableFile(f"{path}: more than {READS_MAX} files are named")
        try:
            if not path.is_file():
                raise UnreadableFile(f"{path}: no such file" if not path.exists() else f"{path}: is no file")
            with path.open("rb") as file:
                content = file.read(self._left + 1)
            if len(content) > self._left:
                raise UnreadableFile(f"{path}: with it there are more than {FILE_MAX} bytes")
            self._left -= len(content)
            return content.decode("utf-8", "replace")
        except OSError as error:
            raise UnreadableFile(f"{path}: {error.strerror or error}") from error


def _matching(pattern: str) -> list[str]:
    return sorted(islice(iglob(pattern), READS_MAX + 1))


def joined(words: Sequence[str], most: int = 60) -> str:
    """Words in one text, cut at `most` characters."""
    text = " ".join(words)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def named(statement: Statement, main: Path | None = None) -> str:
    """The name of a rule that was made of a statement: its line, and what it says; the file's name unless it is `main`.

    Words that would make it too long are counted.
    """
    place = statement.place
    where = "line " if main is not None and place.file == str(main) else f"{place.file.rpartition('/')[2]}:"
    words = [each.removeprefix("\x00") for each in statement.words]
    if statement.name != "http_access":
        words.insert(0, statement.name)
    kept = [word for word, size in zip(words, accumulate(len(each) + 1 for each in words), strict=True) if size <= MOST]
    more = f" +{len(words) - len(kept)}" if len(kept) < len(words) else ""
    return f"{where[-MOST:]}{place.line}: {' '.join(kept)}{more}"


def printable(word: str) -> str:
    """Without control characters, which no field of a document may have."""
    return _UNFIT.sub("\ufffd", word)


def is_address(word: str) -> bool:
    """Whether it is an IP address, without a zone."""
    try:
        ip_address(word)
    except ValueError:
        return False
    return "%" not in word
