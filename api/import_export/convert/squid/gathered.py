"""What the directives of a squid.conf say, gathered before anything is made of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from api.import_export.convert.draft import Draft
from api.import_export.convert.report import Effect, Report
from api.import_export.convert.squid.acls import Acls, Listener
from api.import_export.convert.squid.sources import Source
from api.import_export.convert.statements import Accepted, Files, Statement
from config.model.accounts import BANDWIDTH_MIN


@dataclass(slots=True)
class Peer:
    """A `cache_peer`, as an upstream; `modes` has its options that choose among several."""

    statement: Statement
    name: str
    upstream: dict[str, Any]
    modes: set[str]
    access: list[Statement] = field(default_factory=list)


@dataclass(slots=True)
class Port:
    """A `http_port` or `https_port`, as fields of a proxy."""

    statement: Statement
    proxy: dict[str, Any]
    listener: Listener


@dataclass(slots=True)
class DelayPool:
    """A delay pool: its class, the rates of its parameters, who is in it."""

    statement: Statement
    kind: int = 1
    rates: list[int] = field(default_factory=list)
    access: list[Statement] = field(default_factory=list)

    @property
    def aggregate(self) -> int:
        """Bytes per second of all its requests together, 0 for no limit."""
        rate = self.rates[0] if self.rates and self.kind < TAGGED else 0
        return max(rate, BANDWIDTH_MIN) if rate else 0


TAGGED = 5
"""The class of pools whose limits are of tags that programs set."""
ACCESS = ("http_access", "adapted_http_access", "miss_access", "http_reply_access")
"""Lists that all have to allow a request."""


@dataclass(slots=True)
class Gathered:
    """One configuration. `blocks` are statements without which nothing may be allowed, each with the reason."""

    main: Path
    draft: Draft
    report: Report
    files: Files
    acls: Acls
    accepted: Accepted
    lists: dict[str, list[Statement]] = field(default_factory=dict)
    ports: list[Port] = field(default_factory=list)
    peers: dict[str, Peer] = field(default_factory=dict)
    delay_pools: dict[str, DelayPool] = field(default_factory=dict)
    limited: list[DelayPool] = field(default_factory=list)
    """Delay pools that rules apply, for some requests only."""
    sources: list[Source] = field(default_factory=list)
    source: Source | None = None
    """Of requests that none of `sources` is for."""
    switches: dict[str, str] = field(default_factory=dict)
    fields: dict[str, Any] = field(default_factory=dict)
    """Of every proxy."""
    set_headers: dict[str, str] = field(default_factory=dict)
    removed_headers: dict[str, None] = field(default_factory=dict)
    password_files: list[tuple[Statement, str]] = field(default_factory=list)
    schemes: set[str] = field(default_factory=set)
    """Of authentication."""
    blocks: list[tuple[Statement, str]] = field(default_factory=list)

    def block(self, statement: Statement, why: str, instead: str) -> None:
        """Nothing may be allowed, since this statement can't be carried over, unless that is accepted."""
        if self.accepted.has(statement.place):
            self.report.add(Effect.ACCEPTED, statement, f"{why}; it is left out", instead)
            return
        self.blocks.append((statement, why))
        more = "the first rules of the policy refuse everything until you delete the one that names this line"
        instead = f"{instead}; or leave it out: {self.accepted.option(statement.place)}"
        self.report.add(Effect.REFUSES, statement, f"{why}; {more}", instead)
