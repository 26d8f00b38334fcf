"""Walks through a decision list: which region of requests each line decides, in an order in which rules may stand; and
writes the regions as rules of a policy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product
from typing import Any, Self

from api.import_export.convert.draft import Draft
from api.import_export.convert.regions import EVERYTHING, TUNNEL, Addresses, Names, Region, Regions, is_within, meet
from api.import_export.convert.statements import Effect, Statement, named
from config.model.shared_objects.policies import MATCHES_MAX, RULES_MAX

DENY: dict[str, Any] = {"use": "deny"}
LISTED = 100
"""Domains that a rule names itself; more of them become a list."""
STEPS_MAX = 50_000
"""Lines that are visited for one list; with many negations each may be for every hole of those before it."""
NAME_AND_ADDRESS = "a rule can't ask for a name and an address at once"
_REVISE = "write that line so that it can be carried over, and convert again, or edit the rules that name it"


@dataclass(frozen=True, slots=True)
class Condition:
    """What an access list matches: all of `regions`, and, where `unclear` says why, perhaps more. `negated`: a line is
    for what it does not match."""

    regions: Regions = ()
    unclear: str = ""
    negated: bool = False


ALWAYS = Condition((EVERYTHING,))


@dataclass(frozen=True, slots=True)
class DecisionLine:
    """A line of a list. `closed`: it may match more than it says, as one that denies; else only less."""

    statement: Statement
    closed: bool
    parts: tuple[Condition, ...]

    @property
    def unclear(self) -> list[str]:
        """Why it is not clear what it matches."""
        return [each.unclear for each in self.parts if each.unclear]

    @classmethod
    def of(cls, draft: Draft, statement: Statement, closed: bool, parts: Iterable[Condition]) -> Self:
        """A line, without what is unclear about it if that is accepted."""
        line = cls(statement, closed, tuple(parts))
        if not line.unclear or not draft.accepts(statement.place):
            return line
        for why in line.unclear:
            what = f"{why}; it counts as not matching"
            draft.report.add(Effect.ACCEPTED, statement, what, "look at the rules of this line")
        return replace(line, parts=tuple(replace(each, unclear="") for each in line.parts))


class TooManyRules(Exception):
    """A policy can't hold them, or the list has too many negations, one within the other."""


Leaf = Callable[[Region, DecisionLine | None, bool], None]
"""Is called with each region and the line that decides it, None if none does; and whether it does for certain: if
not, the region has requests outside of the one that is walked through, and must be refused."""


@dataclass(slots=True)
class Walk:
    """One list, from a region on. Lines that are made wider or narrower are reported.

    `decided` are regions that rules so far decide, by this or other walks; it grows.
    """

    draft: Draft
    lines: Sequence[DecisionLine]
    leaf: Leaf
    decided: list[Region]
    steps: int = 0

    def run(self, region: Region = EVERYTHING, start: int = 0) -> None:
        """Decide all of `region` by the lines from `start` on. Raises `TooManyRules`."""
        if self._is_decided(region):
            return
        for index in range(start, len(self.lines)):
            self.steps += 1
            if self.steps > STEPS_MAX:
                raise TooManyRules
            if self._visit(self.lines[index], index, region):
                return
        self._decide(region, None)

    def _decide(self, region: Region, line: DecisionLine | None, exact: bool = True) -> None:
        self.leaf(region, line, exact)
        self.decided.append(region)

    def _is_decided(self, region: Region) -> bool:
        return any(is_within(region, each) for each in self.decided)

    def _visit(self, line: DecisionLine, index: int, region: Region) -> bool:
        """Emit what the line decides of `region`; whether that is all of it."""
        found, holes = [region], list[Region]()
        for condition in line.parts:
            wanted = self._wanted(line, condition)
            if wanted is None:
                holes += condition.regions
            else:
                found = [each for before in found for each in self._met(line, before, wanted)]
        for part in dict.fromkeys(found):
            if not self._decide_holes(line, index, part, holes):
                continue
            if not self._is_decided(part):
                self._decide(part, line)
            if part == region:
                return True
        return False

    def _wanted(self, line: DecisionLine, condition: Condition) -> Regions | None:
        """The regions of one condition; None for one that makes holes."""
        if condition.unclear:
            self._report(line, condition.unclear)
        if not condition.negated:
            return (EVERYTHING,) if condition.unclear and line.closed else condition.regions
        if condition.unclear and not line.closed:
            return ()
        others = condition.regions[0].others() if len(condition.regions) == 1 else None
        return None if others is None else (others,)

    def _met(self, line: DecisionLine, before: Region, wanted: Sequence[Region]) -> Iterator[Region]:
        for found, exact in filter(None, (meet(before, each) for each in wanted)):
            if not exact:
                self._report(line, NAME_AND_ADDRESS)
                if line.closed:
                    self._decide(found, line, exact=False)
                continue
            yield found

    def _decide_holes(self, line: DecisionLine, index: int, part: Region, holes: Sequence[Region]) -> bool:
        """Have the lines behind decide what the line leaves out of `part`; whether the rest of it is the line's."""
        found = [met for each in holes if (met := meet(part, each)) is not None]
        if any(exact and region == part for region, exact in found):
            return False
        if not all(exact for _region, exact in found):
            self._report(line, NAME_AND_ADDRESS)
            if not line.closed:
                return False
        for region, exact in found:
            if exact:
                self.run(region, index + 1)
        return True

    def _report(self, line: DecisionLine, why: str) -> None:
        effect = "it holds for more requests than it did" if line.closed else "it holds for fewer requests than it did"
        effect = "what it may hold for is refused" if line.closed and why == NAME_AND_ADDRESS else effect
        offered = f"; or leave out what can't be checked: {self.draft.option(line.statement.place)}"
        self.draft.refuses(line.statement, f"{why}; {effect}", _REVISE + (offered if line.unclear else ""))


class RuleWriter:
    """The rules of one policy, in order, behind those for statements without which nothing may be allowed."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._rules: list[dict[str, Any]] = []
        self._names: Counter[str] = Counter()

    def add(self, name: str, region: Region, action: dict[str, Any]) -> None:
        """Do `action` with all requests of `region`. Raises `TooManyRules`."""
        for match in self._matches(region):
            if len(self._rules) == RULES_MAX:
                raise TooManyRules
            self._names[name] += 1
            number = "" if self._names[name] == 1 else f" #{self._names[name]}"
            self._rules.append({"name": f"{name}{number}", "match": match, "action": action})

    def rules(self, fill: Callable[[], None], statement: Statement | None) -> list[dict[str, Any]]:
        """The rules that `fill` adds. Too many: one that refuses everything, reported at `statement`."""
        try:
            for each in self._draft.blocks:
                reason = f"{each.name} in line {each.place.line} was not converted"
                self.add(f"not converted, {named(each, self._draft.main)}", EVERYTHING, {**DENY, "reason": reason})
            fill()
        except TooManyRules:
            why = "the lists have more lines or negations than a policy can hold"
            self._draft.refuses(statement, why, "write lists of domains and networks, and allow lines for what is left")
            return [{"name": "not converted: too many rules", "match": {}, "action": DENY}]
        return self._rules

    def _matches(self, region: Region) -> Iterator[dict[str, Any]]:
        """Conditions that together match the region: one, unless a list of one would be too long."""
        plain: dict[str, Any] = {}
        if region.methods == TUNNEL:
            plain["tunnel"] = True
        elif region.methods is not None:
            plain["methods"] = sorted(region.methods)
        lists = {
            "accounts": None if region.users is None else sorted(region.users),
            "destinations": self._destinations(region),
            "clients": None if region.clients is None else region.clients.networks(),
        }
        given = {name: entries for name, entries in lists.items() if entries is not None}
        for chunks in product(*(list(_chunks(entries)) for entries in given.values())):
            yield {**dict(zip(given, chunks, strict=True)), **plain}

    def _destinations(self, region: Region) -> list[str] | None:
        ports = None if region.ports is None else [_ports(low, high) for low, high in region.ports.ranges]
        if region.hosts is None:
            return ports
        hosts = self._hosts(region.hosts)
        return hosts if ports is None else [f"{_bracketed(host)}{each}" for host in hosts for each in ports]

    def _hosts(self, hosts: Addresses | Names) -> list[str]:
        if isinstance(hosts, Addresses):
            return hosts.networks()
        domains = hosts.domains() if len(hosts.domains()) > LISTED else frozenset[str]()
        lists = [f"list:{name}" for name in self._draft.list_of(domains)] if domains else []
        alone = hosts.entries - domains - {f"*.{each}" for each in domains}
        return [*lists, *sorted(alone, key=lambda entry: (entry.removeprefix("*."), entry.startswith("*")))]


def _chunks(entries: Sequence[str]) -> Iterator[list[str]]:
    waiting = iter(entries)
    while chunk := list(islice(waiting, MATCHES_MAX)):
        yield chunk


def _ports(low: int, high: int) -> str:
    return f":{low}" if low == high else f":{low}-{high}"


def _bracketed(host: str) -> str:
    """IPv6 before ports."""
    return f"[{host}]" if ":" in host and not host.startswith("list:") else host
