"""What commands have set up so far, and the services that were started with it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from api.import_export.convert.draft import Draft
from api.import_export.convert.report import Effect, Report
from api.import_export.convert.statements import Accepted, Files, Statement


@dataclass(slots=True)
class Entry:
    """An `allow` or `deny` with the `parent` lines behind it."""

    statement: Statement
    allow: bool
    parents: list[Statement] = field(default_factory=list)


@dataclass(slots=True)
class Service:
    """A service that becomes a proxy, with the entries and the kinds of `auth` at its start."""

    statement: Statement
    kind: str
    proxy: dict[str, Any]
    auth: tuple[str, ...]
    entries: list[Entry]


@dataclass(slots=True)
class State:
    """The state of the script, and what it has made."""

    main: Path
    draft: Draft
    report: Report
    files: Files
    accepted: Accepted
    auth: tuple[str, ...] = ("none",)
    entries: list[Entry] = field(default_factory=list)
    internal: str = ""
    external: list[str] = field(default_factory=list)
    maxconn: int | None = None
    serves_tls: bool = False
    tls: dict[str, str] = field(default_factory=dict)
    dns: dict[str, Any] = field(default_factory=dict)
    services: list[Service] = field(default_factory=list)
    users: list[tuple[Statement, str]] = field(default_factory=list)
    bandwidth: list[Statement] = field(default_factory=list)
    counters: list[Statement] = field(default_factory=list)
    refused_names: list[tuple[Statement, str]] = field(default_factory=list)
    blocks: list[Statement] = field(default_factory=list)

    def block(self, statement: Statement, why: str, instead: str) -> None:
        """Nothing may be allowed, since this command can't be carried over, unless that is accepted."""
        if self.accepted.has(statement.place):
            self.report.add(Effect.ACCEPTED, statement, f"{why}; it is left out", instead)
            return
        self.blocks.append(statement)
        more = "the first rules of each policy refuse everything until you delete the one that names this line"
        instead = f"{instead}; or leave it out: {self.accepted.option(statement.place)}"
        self.report.add(Effect.REFUSES, statement, f"{why}; {more}", instead)
