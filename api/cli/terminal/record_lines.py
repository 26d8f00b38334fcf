"""Access records at a terminal: aligned lines under titles, continued as records arrive.

The target is the last column and complete, so that it can be copied; a narrow terminal has fewer columns before it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

from api.cli.quantities import decimal
from api.cli.terminal.output import BAD, DIM, GAP, WARN, Output, safe

Entry = dict[str, Any]

TITLES = ("TIME (UTC)", "CODE", "PROXY", "CLIENT", "USER", "METHOD", "MS", "IN", "OUT", "TARGET")
_RIGHT = frozenset({"CODE", "MS", "IN", "OUT"})
_SPARE = ("IN", "OUT", "MS")
"""Left out first if there is too little room for the target."""
TARGET_ROOM = 30
"""Cells of a terminal that are kept for the target before spare columns are printed."""


class RecordLines:
    """Makes lines of records. Widths only grow, so that later lines stay aligned with printed ones as far as
    possible."""

    def __init__(self, out: Output, width: int) -> None:
        self._out = out
        self._room = width
        self._widths = [len(title) for title in TITLES]
        self._kept: list[int] = []
        self._today = time.strftime("%Y-%m-%d", time.gmtime())

    def lines(self, entries: Sequence[Entry]) -> Iterable[str]:
        """The lines of these records, with titles before the first ones."""
        rows = [self._cells(entry) for entry in entries]
        self._widths = [
            max(found) for found in zip(self._widths, *([_wide(cell) for cell in row] for row in rows), strict=True)
        ]
        if not self._kept:
            self._kept = self._fitting_columns()
            yield self._out.colour(self._line(TITLES), DIM)
        for entry, row in zip(entries, rows, strict=True):
            yield self._line(row, _colours(entry))

    @property
    def left_out(self) -> list[str]:
        """Titles of the columns that were left out."""
        return [title for at, title in enumerate(TITLES) if self._kept and at not in self._kept]

    def _fitting_columns(self) -> list[int]:
        kept = list(range(len(TITLES)))
        for title in _SPARE:
            if sum(self._widths[at] + GAP for at in kept[:-1]) + TARGET_ROOM <= self._room:
                break
            kept.remove(TITLES.index(title))
        return kept

    def _cells(self, entry: Entry) -> list[str]:
        day, _, clock = str(entry["timestamp"]).rstrip("Z").partition("T")
        via = f" via {entry['parent']}" if entry.get("parent") else ""
        reason = f" ({entry['reason']})" if entry["reason"] else ""
        cells = (
            clock if day == self._today else f"{day} {clock}",
            entry["status_code"],
            entry["proxy_name"],
            entry["client_ip"],
            entry["user"] or "-",
            entry["method"] or "-",
            entry["duration"],
            decimal(entry["bytes_in"]),
            decimal(entry["bytes_out"]),
            f"{entry['target_url'] or '-'}{reason}{via}",
        )
        return [safe(str(cell)) for cell in cells]

    def _line(self, cells: Sequence[str], colours: Sequence[str | None] = ()) -> str:
        texts = [self._out.colour(cells[at], colours[at] if colours else None) for at in self._kept]
        rooms = [" " * (self._widths[at] - _wide(cells[at])) for at in self._kept[:-1]]
        pairs = zip(texts, rooms, [TITLES[at] in _RIGHT for at in self._kept[:-1]], strict=False)
        return (" " * GAP).join([*(room + text if right else text + room for text, room, right in pairs), texts[-1]])


def _colours(entry: Entry) -> list[str | None]:
    code = entry["status_code"]
    bad = BAD if code >= 500 else WARN if code >= 400 else None
    dim = {"TIME (UTC)": DIM, "MS": DIM, "IN": DIM, "OUT": DIM, "CODE": bad}
    return [dim.get(title) for title in TITLES[:-1]] + [WARN if entry["reason"] else None]


def _wide(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)
