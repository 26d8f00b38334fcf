"""`acl`: collects the definitions, and makes conditions of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from api.import_export.convert.decisions import ALWAYS, NEVER, Condition
from api.import_export.convert.draft import Draft
from api.import_export.convert.regions import Region, meet
from api.import_export.convert.report import Effect, Report
from api.import_export.convert.squid.lexer import FILE, items_of
from api.import_export.convert.statements import Files, Place, Statement, UnreadableFile, joined

CONTENT_OPTIONS = frozenset({"-i", "+i", "-n", "-m", "-s", "--"})


@dataclass(frozen=True, slots=True)
class Value:
    """One value of an access list. `any_case`: letters of an expression are compared in either case."""

    text: str
    statement: Statement
    any_case: bool = False


@dataclass(slots=True)
class Acl:
    """An access list by its definitions. `unread` has files that can't be read."""

    name: str
    kind: str
    statement: Statement
    values: list[Value] = field(default_factory=list)
    lines: list[list[Value]] = field(default_factory=list)
    options: set[str] = field(default_factory=set)
    unread: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Listener:
    """The listener that rules are made for, as far as access lists may ask."""

    port: int = 0
    name: str = ""


BUILT_IN = {
    "all": ("src", ["all"]),
    "localhost": ("src", ["127.0.0.0/8", "::1"]),
    "to_localhost": ("dst", ["127.0.0.0/8", "0.0.0.0/32", "::1", "::"]),
    "to_linklocal": ("dst", ["169.254.0.0/16", "fe80::/10"]),
    "manager": ("manager", []),
    "CONNECT": ("method", ["CONNECT"]),
}
"""Access lists that squid defines itself."""


class Acls:
    """All access lists. Names are compared without regard to case, as by squid."""

    def __init__(self, draft: Draft, report: Report, files: Files) -> None:
        self._draft = draft
        self._report = report
        self._files = files
        self._known: dict[str, Acl] = {}
        self._built: dict[tuple[str, Listener], Condition] = {}
        self.used: set[str] = set()
        nowhere = Place("", 0)
        for name, (kind, values) in BUILT_IN.items():
            self.add(Statement(nowhere, "acl", (name, kind, *values)))

    def add(self, statement: Statement) -> None:
        """Add a line `acl NAME TYPE VALUES…`."""
        if len(statement.words) < 2:
            self._report.add(Effect.LOST, statement, "has neither a name nor a type", "remove the line")
            return
        name, kind = statement.words[0], statement.words[1]
        acl = self._known.setdefault(name.lower(), Acl(name, kind, statement))
        if acl.statement.place.file == "" and statement.place.file:
            acl.statement = statement
        if acl.kind != kind:
            why = f"{name} has the type {acl.kind} already"
            self._report.add(Effect.LOST, statement, why, "rename one of the two")
            acl.unread.append(why)
            return
        values = list(self._values(acl, statement))
        acl.values += values
        acl.lines.append(values)

    def _values(self, acl: Acl, statement: Statement) -> Iterator[Value]:
        any_case, options = False, True
        for word in statement.words[2:]:
            if word.startswith(FILE):
                yield from self._of_file(acl, statement, word.removeprefix(FILE), any_case)
            elif options and (word in CONTENT_OPTIONS or word.startswith("-m=")):
                any_case = {"-i": True, "+i": False}.get(word, any_case)
                acl.options.add(word)
                options = word != "--"
            else:
                yield Value(word, statement, any_case)

    def _of_file(self, acl: Acl, statement: Statement, name: str, any_case: bool) -> Iterator[Value]:
        path = self._files.find(name, Path(statement.place.file).parent)
        try:
            text = self._files.read(path)
        except UnreadableFile as error:
            acl.unread.append(str(error))
            self._report.add(Effect.LOST, statement, str(error), "copy the file here, or name its place by --root")
            return
        for number, item in items_of(text):
            line = Statement(Place(str(path), number), "acl", (acl.name, acl.kind, item))
            for word in item.split() if acl.kind not in ("url_regex", "browser") else [item]:
                yield Value(word, line, any_case)

    def kind_of(self, name: str) -> str:
        """The type of an access list, empty if there is none of that name."""
        acl = self._known.get(name.lower())
        return "" if acl is None else acl.kind

    def find(self, name: str) -> Acl | None:
        """The access list of that name."""
        return self._known.get(name.lower())

    def defined(self) -> list[Acl]:
        """Those that the files define."""
        return [each for each in self._known.values() if each.statement.place.file]

    def condition(self, name: str, listener: Listener) -> Condition:
        """What an access list matches, for requests at one listener."""
        key = (name.lower(), listener)
        self.used.add(name.lower())
        if key not in self._built:
            self._built[key] = Condition((), f"{name} refers to itself")
            self._built[key] = self._make(name, listener)
        return self._built[key]

    def _make(self, name: str, listener: Listener) -> Condition:
        from api.import_export.convert.squid.acl_types import KINDS  # which makes conditions by means of this module

        acl = self._known.get(name.lower())
        if acl is None:
            return Condition((), f"there is no acl {name}")
        if acl.kind == "any-of":
            return self._any_of(acl.values, listener)
        if acl.kind == "all-of":
            return union([self._all_of(line, listener) for line in acl.lines])
        maker = KINDS.get(acl.kind)
        if maker is None:
            return Condition((), f"the type {acl.kind} of the acl {acl.name} is unknown")
        try:
            made = maker(acl, listener, self._report, self._draft)
        except ValueError as error:
            return Condition((), str(error))
        return Condition(made.regions, joined(acl.unread)) if acl.unread else made

    def _any_of(self, values: Sequence[Value], listener: Listener) -> Condition:
        return union([self._part(value, listener) for value in values])

    def _all_of(self, values: Sequence[Value], listener: Listener) -> Condition:
        found = ALWAYS
        for value in values:
            found = both(found, self._part(value, listener))
        return found

    def _part(self, value: Value, listener: Listener) -> Condition:
        condition = self.condition(value.text.removeprefix("!"), listener)
        return negated(condition, value.text) if value.text.startswith("!") else condition


def union(conditions: Sequence[Condition]) -> Condition:
    """What any of them matches."""
    regions = tuple(dict.fromkeys(region for each in conditions for region in each.regions))
    unclear = [each for each in conditions if each.unclear]
    most = tuple(dict.fromkeys(region for each in unclear for region in each.most))
    return (
        Condition(regions, "; ".join(dict.fromkeys(each.unclear for each in unclear)), most)
        if unclear
        else Condition(regions)
    )


def both(one: Condition, other: Condition) -> Condition:
    """What both match."""
    exact, apart = _met(one.regions, other.regions)
    unclear = "; ".join(dict.fromkeys(filter(None, (one.unclear, other.unclear, apart))))
    return Condition(exact, unclear, _met(one.widest(), other.widest(), wide=True)[0]) if unclear else Condition(exact)


def _met(one: Sequence[Region], other: Sequence[Region], wide: bool = False) -> tuple[tuple[Region, ...], str]:
    found, apart = [], ""
    for left in one:
        for right in other:
            met = meet(left, right)
            if met is not None and (wide or met[1]):
                found.append(met[0])
            if met is not None and not met[1]:
                apart = "it asks for a name and an address at once"
    return tuple(dict.fromkeys(found)), apart


def negated(condition: Condition, name: str) -> Condition:
    """What it does not match, where that is a region."""
    if not condition.unclear and not condition.regions:
        return ALWAYS
    others = condition.regions[0].others() if len(condition.regions) == 1 and not condition.unclear else None
    if others is None:
        return NEVER if condition == ALWAYS else Condition((), f"{name} stands inside of another acl")
    return Condition((others,))
