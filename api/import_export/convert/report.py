"""Statements of a file, and the report: for each that was not carried over as it is, why, and what to do instead."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from pathlib import Path
from typing import Any

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


class Report:
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
