"""Walks through a decision list: which region of requests each line decides, in an order in which rules may stand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from api.import_export.convert.regions import EVERYTHING, PLAIN, TUNNEL, Region, is_within, meet
from api.import_export.convert.report import Effect, Report
from api.import_export.convert.statements import Accepted, Statement
from config.model.fields import user_name

USER_NAME_MAX = 128
STEPS_MAX = 50_000
"""Lines that are visited for one list; with many negations each may be for every hole of those before it."""


@dataclass(frozen=True, slots=True)
class Condition:
    """What an access list matches: all of `regions`, and, where `unclear` says why, perhaps more of `most`."""

    regions: tuple[Region, ...]
    unclear: str = ""
    most: tuple[Region, ...] = (EVERYTHING,)
    nearest: tuple[Region, ...] = ()
    """In place of all, where it is accepted that this is not the same."""

    def accepted(self) -> Condition:
        """The same without what is unclear."""
        return Condition(self.nearest or self.regions) if self.unclear else self

    def widest(self) -> tuple[Region, ...]:
        """Regions that have all that it may match."""
        if not self.unclear:
            return self.regions
        return (*(each for each in self.regions if not any(is_within(each, wide) for wide in self.most)), *self.most)


ALWAYS, NEVER = Condition((EVERYTHING,)), Condition(())


def of_users(names: Iterable[str]) -> Condition:
    """A client of one of these user names. Names that none can have (a colon, RFC 7617) match no client."""
    possible = frozenset(filter(_is_user_name, names))
    return Condition((Region(users=possible),)) if possible else NEVER


def of_methods(methods: frozenset[str]) -> Condition:
    """Requests by one of these methods, those that open tunnels included."""
    plain = PLAIN if methods >= PLAIN else methods - TUNNEL
    both = plain == PLAIN and methods >= TUNNEL
    found = (EVERYTHING,) if both else (Region(methods=plain), Region(methods=methods & TUNNEL))
    return Condition(tuple(each for each in found if not each.empty))


def _is_user_name(text: str) -> bool:
    try:
        return len(user_name(text)) <= USER_NAME_MAX
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class Part:
    """A condition of a line, or its negation."""

    condition: Condition
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a list. `closed`: it may match more than it says, as one that denies; else only less."""

    statement: Statement
    closed: bool
    parts: tuple[Part, ...]


REVISE = "write that line so that it can be carried over, and convert again, or edit the rules that name it"


def accept(parts: tuple[Part, ...], statement: Statement, accepted: Accepted, report: Report) -> tuple[Part, ...]:
    """The parts of a line without what is unclear, if that is accepted."""
    unclear = [each.condition for each in parts if each.condition.unclear]
    if not unclear or not accepted.has(statement.place):
        return parts
    for each in unclear:
        paths = sorted(path for region in each.nearest for path in region.paths or ())
        kept = (
            f"it holds for the paths {', '.join(paths)}, and not by the query" if paths else "it counts as not matching"
        )
        report.add(Effect.ACCEPTED, statement, f"{each.unclear}; {kept}", "look at the rules of this line")
    return tuple(replace(each, condition=each.condition.accepted()) for each in parts)


def offered(line: Line, accepted: Accepted) -> str:
    """How to accept what is unclear about a line, for the report."""
    if not any(each.condition.unclear for each in line.parts):
        return ""
    near = any(each.condition.nearest for each in line.parts)
    kept = "carry it over as the nearest paths" if near else "leave out what can't be checked"
    return f"; or {kept}: {accepted.option(line.statement.place)}"


class TooManySteps(Exception):
    """The list has too many negations, one within the other."""


Leaf = Callable[[Region, Line | None], None]
"""Is called with each region and the line that decides it, None if none does."""
Unclear = Callable[[Line, str], None]
"""Is called with a line that was made wider or narrower, and why."""

APART = "a rule can't ask for a name and an address, or for two patterns of paths, at once"


class Walk:
    """One list, from a region on."""

    def __init__(
        self,
        lines: Sequence[Line],
        leaf: Leaf,
        unclear: Unclear,
        decided: list[Region],
        refuse: Callable[[Region], None] | None = None,
    ) -> None:
        """`decided` are regions that rules so far decide, by this or other walks; it grows.

        `refuse` is for lists whose lines may match more than they say and permit what they match: it gets what a line
        would match outside of the region that is walked through.
        """
        self._lines = lines
        self._leaf = leaf
        self._unclear = unclear
        self._decided = decided
        self._refuse = refuse
        self._steps = 0

    def run(self, region: Region = EVERYTHING, start: int = 0) -> None:
        """Decide all of `region` by the lines from `start` on. Raises `TooManySteps`."""
        if self._is_decided(region):
            return
        for index in range(start, len(self._lines)):
            self._steps += 1
            if self._steps > STEPS_MAX:
                raise TooManySteps
            line = self._lines[index]
            if self._visit(line, index, region):
                return
        self._decide(region, None)

    def _decide(self, region: Region, line: Line | None) -> None:
        self._leaf(region, line)
        self._decided.append(region)

    def _is_decided(self, region: Region) -> bool:
        return any(is_within(region, each) for each in self._decided)

    def _visit(self, line: Line, index: int, region: Region) -> bool:
        """Emit what the line decides of `region`; whether that is all of it."""
        holes = list(self._holes(line))
        for part in self._covered(line, region):
            if not self._decide_holes(line, index, part, holes):
                continue
            if not self._is_decided(part):
                self._decide(part, line)
            if part == region:
                return True
        return False

    def _covered(self, line: Line, region: Region) -> Iterator[Region]:
        """The parts of `region` that meet the line's conditions, but for its holes."""
        found = [region]
        for part in line.parts:
            wanted = self._wanted(line, part)
            if wanted is not None:
                found = [each for before in found for each in self._met(line, before, wanted)]
        yield from dict.fromkeys(found)

    def _wanted(self, line: Line, part: Part) -> tuple[Region, ...] | None:
        """The regions of one condition; None for one that makes holes."""
        condition = part.condition
        if condition.unclear:
            self._unclear(line, condition.unclear)
        if not part.negated:
            return condition.widest() if line.closed else condition.regions
        if condition.unclear and not line.closed:
            return () if EVERYTHING in condition.most else None
        others = condition.regions[0].others() if len(condition.regions) == 1 else None
        return None if others is None else (others,)

    def _holes(self, line: Line) -> Iterator[Region]:
        for part in line.parts:
            if part.negated and self._wanted(line, part) is None:
                yield from part.condition.regions if line.closed else part.condition.widest()

    def _met(self, line: Line, before: Region, wanted: Sequence[Region]) -> Iterator[Region]:
        for each in wanted:
            found = meet(before, each)
            if found is None:
                continue
            if not found[1]:
                self._unclear(line, APART)
                if not line.closed:
                    continue
                if self._refuse is not None:
                    self._refuse(found[0])
                    self._decided.append(found[0])
                    continue
            yield found[0]

    def _decide_holes(self, line: Line, index: int, part: Region, holes: Sequence[Region]) -> bool:
        """Have the lines behind decide what the line leaves out of `part`; whether the rest of it is the line's."""
        found = [met for each in holes if (met := meet(part, each)) is not None]
        if any(exact and region == part for region, exact in found):
            return False
        if not all(exact for _region, exact in found):
            self._unclear(line, APART)
            if not line.closed:
                return False
        for region, exact in found:
            if exact:
                self.run(region, index + 1)
        return True
