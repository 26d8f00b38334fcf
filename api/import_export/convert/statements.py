"""The files of a configuration, their statements, and the report: for each of these that was not carried over as it is,
why, and what to do instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from glob import escape, has_magic, iglob
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

FILE_MAX = 64 * 1024 * 1024
"""Bytes of one file, and of all together."""
READS_MAX = 2_000
"""Files that are read for one configuration: those that include one another double with each level."""
PATTERNS_MAX = 2
FILE = "\x00file:"
"""Precedes the name of a file that has the parameters, in the words of a statement."""
_UNFIT = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class UnreadableFile(Exception):
    """A file can't be read; the text says why."""


class Files:
    """The files of one configuration. Absolute paths are searched below `root` first, if there is one."""

    def __init__(self, root: Path | None = None) -> None:
        self._root = root
        self._reads = 0
        self._left = FILE_MAX

    def find(self, name: str, beside: str) -> Path:
        """The path of a file that the file `beside` names."""
        path = Path(name)
        if not path.is_absolute():
            return Path(beside).parent / path
        moved = None if self._root is None else self._root / path.relative_to("/")
        return moved if moved is not None and moved.exists() else path

    def expand(self, pattern: str, beside: str) -> list[Path]:
        """The files that a pattern of a shell names, sorted. Raises `UnreadableFile`: some would walk a disk."""
        given = Path(pattern)
        if sum(map(has_magic, given.parts)) > PATTERNS_MAX:
            raise UnreadableFile(f"{pattern}: more than {PATTERNS_MAX} of its folders are patterns")
        whole = str(given if given.is_absolute() else Path(escape(str(Path(beside).parent))) / given)
        moved = [] if self._root is None else _matching(f"{escape(str(self._root))}/{whole.lstrip('/')}")
        found = moved or _matching(whole)
        if not found and not has_magic(pattern):
            raise UnreadableFile(f"{pattern}: no such file")
        return list(map(Path, found))

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
        except OSError as error:
            raise UnreadableFile(f"{path}: {error.strerror or error}") from error
        if len(content) > self._left:
            raise UnreadableFile(f"{path}: with it there are more than {FILE_MAX} bytes")
        self._left -= len(content)
        return content.decode("utf-8", "replace")


def _matching(pattern: str) -> list[str]:
    return sorted(islice(iglob(pattern), READS_MAX + 1))


def printable(word: str) -> str:
    """Without control characters, which no field of a document may have."""
    return _UNFIT.sub("\ufffd", word)


def plain(word: str) -> str:
    """A word that is no file: quotation marks only kept it together."""
    return word.removeprefix(FILE)


def passes(check: Callable[[str], object], word: str) -> bool:
    """Whether `check` raises no `ValueError`."""
    try:
        check(word)
    except ValueError:
        return False
    return True


def is_port(word: str) -> bool:
    """Whether it is the number of a port."""
    return word.isdecimal() and 1 <= int(word) <= 65535


MOST = 40
"""Characters of a statement in the name of a rule, and of a file's name."""


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
    def first(self) -> str:
        """The first parameter, empty without one."""
        return self.words[0] if self.words else ""


class Effect(StrEnum):
    """What became of a line, the gravest first."""

    REFUSES = "refuses"
    ACCEPTED = "accepted"
    LOST = "lost"
    DIFFERS = "differs"
    UNNEEDED = "unneeded"


MEANINGS = {
    Effect.REFUSES: "The converted rules refuse more than these lines did, since what they check can't be checked",
    Effect.ACCEPTED: "Accepted by --accept: the converted rules allow more than these lines did",
    Effect.LOST: "Not carried over",
    Effect.DIFFERS: "Carried over, with a difference",
    Effect.UNNEEDED: "Of no meaning here",
}


@dataclass(frozen=True, slots=True)
class Remark:
    """One line of the report. `place` None: it is about the whole."""

    effect: Effect
    place: Place | None
    directive: str
    why: str
    instead: str

    def data(self) -> dict[str, Any]:
        """For programs."""
        file, line = (None, None) if self.place is None else (self.place.file, self.place.line)
        more = {"directive": self.directive, "why": self.why, "instead": self.instead}
        return {"effect": self.effect.value, "file": file, "line": line, **more}

    def text(self) -> str:
        """For people."""
        where = "" if self.place is None else f"{self.place}: "
        return f"{where}{self.directive}: {self.why}" + (f" → {self.instead}" if self.instead else "")


class ConversionReport:
    """All remarks, each once."""

    def __init__(self) -> None:
        self._remarks: dict[Remark, None] = {}

    def add(self, effect: Effect, statement: Statement | None, why: str, instead: str = "", about: str = "") -> None:
        """Add a remark on a statement, or on the whole; `about` replaces the directive's name."""
        place = None if statement is None else statement.place
        name = about or ("" if statement is None else statement.name)
        self._remarks.setdefault(Remark(effect, place, name, why, instead))

    @property
    def remarks(self) -> list[Remark]:
        """The gravest first, in the order of the lines."""
        order = list(Effect)
        return sorted(self._remarks, key=lambda each: (order.index(each.effect), each.place or Place("", 0)))

    def counts(self) -> dict[str, int]:
        """How many remarks of each effect there are."""
        return {effect.value: sum(each.effect is effect for each in self._remarks) for effect in Effect}

    @property
    def complete(self) -> bool:
        """Whether everything was carried over as it is."""
        return all(each.effect is Effect.UNNEEDED for each in self._remarks)

    def data(self) -> dict[str, Any]:
        """For programs."""
        return {"summary": self.counts(), "remarks": [each.data() for each in self.remarks]}

    def lines(self) -> Iterator[str]:
        """For people: the remarks by effect."""
        for effect in Effect:
            found = [each for each in self.remarks if each.effect is effect]
            if found:
                yield f"{MEANINGS[effect]}:"
                yield from (f"  {each.text()}" for each in found)
        if not self._remarks:
            yield "Everything was carried over."


def named(statement: Statement, main: Path) -> str:
    """The name of a rule that was made of a statement: its line, and what it says; the file's name unless it is `main`.

    Words that would make it too long are counted.
    """
    place = statement.place
    where = "line " if place.file == str(main) else f"{place.file.rpartition('/')[2]}:"
    words = [each.removeprefix("\x00") for each in statement.words]
    if statement.name != "http_access":
        words.insert(0, statement.name)
    kept = [word for word, size in zip(words, accumulate(len(each) + 1 for each in words), strict=True) if size <= MOST]
    more = f" +{len(words) - len(kept)}" if len(kept) < len(words) else ""
    return f"{where[-MOST:]}{place.line}: {' '.join(kept)}{more}"
