"""What was measured, as rows of a table: ours beside each peer, with the ratio and the bar."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

HEADINGS = ("measure", "unit", "ours", "peer", "", "ratio", "bar", "reached")


@dataclass(frozen=True, slots=True)
class Row:
    """One line. `ours` is None when the product was not measured, `peer` when there is none to compare with.

    `bar` is the greatest value of ours that reaches it, or None where nothing is asked.
    """

    measure: str
    unit: str
    ours: float | None
    peer_name: str = ""
    peer: float | None = None
    bar: float | None = None

    @property
    def ratio(self) -> float | None:
        """Ours divided by the peer's."""
        return self.ours / self.peer if self.ours is not None and self.peer else None

    @property
    def reached(self) -> bool | None:
        """Whether ours is at or below the bar; None where there is no bar or nothing was measured."""
        return self.ours <= self.bar if self.ours is not None and self.bar is not None else None


def against(measure: str, unit: str, ours: float | None, peers: dict[str, float], judged_by: str = "") -> list[Row]:
    """A row for each peer; the figure of the peer `judged_by` is the bar."""
    return [
        Row(measure, unit, ours, name, figure, figure if name == judged_by else None) for name, figure in peers.items()
    ] or [Row(measure, unit, ours)]


def table(rows: Sequence[Row]) -> str:
    """The rows in columns, numbers to the right."""
    cells = [HEADINGS, *map(_cells, rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(HEADINGS))]
    numeric = {2, 4, 5, 6}
    lines = [
        "  ".join(
            text.rjust(width) if column in numeric else text.ljust(width)
            for column, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in cells
    ]
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])


def _cells(row: Row) -> tuple[str, ...]:
    reached = {True: "yes", False: "NO", None: ""}[row.reached]
    ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
    return (
        row.measure,
        row.unit,
        _number(row.ours),
        row.peer_name,
        _number(row.peer),
        ratio,
        _number(row.bar),
        reached,
    )


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def save(rows: Sequence[Row], file: Path) -> None:
    """The rows as JSON, with `ratio` and `reached` computed."""
    listed = [asdict(row) | {"ratio": row.ratio, "reached": row.reached} for row in rows]
    file.write_text(json.dumps(listed, indent=2) + "\n")
