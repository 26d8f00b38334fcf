"""Conversion of the configuration of other proxies to a document that an import takes.

The access lists of squid and 3proxy are decision lists: the first line that matches decides. So are policies, but their
rules have no negation. `decisions.py` walks through the lines with the region
of requests (`regions.py`) that is still to be decided, and emits rules in order:

- A negated condition on ports, on tunnels and on plain HTTP, is a condition on the others. Any other one is a
  hole in the line's region: what lies in it is decided by the lines behind, in rules of its own before the line's.
- Whatever of a line can't be expressed makes it wider if it denies and narrower if it allows. So a converted rule
  never allows what the line denied, and the report (`statements.py`) names the line.

`squid.py` and `threeproxy.py` have a table each with a row for a directive: what carries it over to the `Draft`
(`draft.py`), which is the document in the making, or why it isn't. `decisions.py` also writes the regions as rules, and
`comparison.py` replays a log of squid against them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from api.import_export.convert import squid, threeproxy
from api.import_export.convert.draft import Draft, problems_of
from api.import_export.convert.statements import ConversionReport, Files, UnreadableFile

Format = Literal["squid", "3proxy"]


@dataclass(frozen=True, slots=True)
class Converted:
    """The document, the report, and what an import would refuse of the document."""

    document: dict[str, Any]
    report: ConversionReport
    problems: list[tuple[str, str]]
    needless: list[str]
    """Lines that were accepted, and have nothing to accept."""


def guessed_format(path: Path) -> Format:
    """Which program a file is for, by its directives. Raises `UnreadableFile`."""
    first = [words[0] for line in Files().read(path).splitlines() if (words := line.split(maxsplit=1))]
    of_squid, of_3proxy = (sum(word in table for word in first) for table in (squid.TABLE, threeproxy.TABLE))
    if of_squid == of_3proxy:
        raise UnreadableFile(f"{path}: it is not clear whether the file is for squid or for 3proxy: say --format")
    return "squid" if of_squid > of_3proxy else "3proxy"


def converted(path: Path, format_: Format, root: Path | None = None, accept: Sequence[str] = ()) -> Converted:
    """Convert a file; of the lines in `accept` is left out what can't be carried over. Raises `UnreadableFile`."""
    draft = Draft(path, Files(root), accept)
    (squid if format_ == "squid" else threeproxy).convert(draft)
    if not draft.proxies:
        draft.lost(None, "no listener could be carried over, so there is no proxy", "add one", "listeners")
    why = f"{format_} connects to private and loopback addresses where its rules allow them, a proxy here doesn't"
    instead = "name internal targets in proxy.egress_allow, internal name servers in proxy.dns_allow"
    draft.differs(None, why, instead, "egress guard")
    document = draft.document()
    return Converted(document, draft.report, problems_of(document), list(draft.needless))
