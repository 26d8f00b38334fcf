"""What was measured, as rows of a table: ours beside each peer, with the ratio and what is to be reached."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

OURS = "proxyfleet"

HEADINGS = ("measure", "unit", "ours", "peer", "its", "ratio", "to reach", "reached", "beside it", "ours", "its")
NUMERIC = {2, 4, 5, 6, 9, 10}

Figure = dict[str, float]
"""Figures of one subject by what they are, such as `cpu` and `rate`."""


@dataclass(frozen=True, slots=True)
class Bar:
    """What is to be reached: a limit in the row's unit, or a factor of the peer's figure; from above or from below."""

    limit: float | None = None
    factor: float | None = None
    at_least: bool = False

    def value(self, peer: float | None) -> float | None:
        """The figure of ours that just reaches it; None when it hangs on a peer that was not measured."""
        if self.factor is None:
            return self.limit
        return None if peer is None else self.factor * peer

    def __str__(self) -> str:
        sign = ">=" if self.at_least else "<="
        return f"{sign} {self.factor:.1f} x" if self.factor is not None else f"{sign} {number(self.limit)}"


@dataclass(frozen=True, slots=True)
class Beside:
    """A second figure of the same run that is printed and not judged, such as the throughput beside the CPU."""

    unit: str
    ours: float | None
    peer: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One line. `ours` is None when the product was not measured, `peer` when there is none or it was left out."""

    measure: str
    unit: str
    ours: float | None
    peer_name: str = ""
    peer: float | None = None
    bar: Bar | None = None
    beside: Beside | None = None

    @property
    def ratio(self) -> float | None:
        """Ours divided by the peer's."""
        return self.ours / self.peer if self.ours is not None and self.peer else None

    @property
    def reached(self) -> bool | None:
        """Whether ours reaches the bar; None where there is no bar or nothing to judge by."""
        limit = self.bar.value(self.peer) if self.bar else None
        if self.bar is None or limit is None or self.ours is None:
            return None
        return self.ours >= limit if self.bar.at_least else self.ours <= limit


@dataclass(frozen=True, slots=True)
class Comparison:
    """How the figures of one measure become rows: which one is judged, by which peers, and which is printed beside
    it."""

    measure: str
    what: str
    unit: str
    bars: Mapping[str, Bar] = field(default_factory=dict)
    beside: tuple[str, str] | None = None
    """What and unit of the figure that is printed beside."""

    def rows(self, results: Mapping[str, Figure], only: Collection[str] = ()) -> list[Row]:
        """A row for each peer, or for those in `only`; the peers of the bars come first.

        A peer that is asked for and was left out has a row without figure.
        """
        others = [name for name in results if name not in self.bars and name != OURS]
        ours = results.get(OURS)
        made = [self._row(ours, name, results.get(name)) for name in (only or [*self.bars, *others])]
        return made or [self._row(ours, "", None)]

    def _row(self, ours: Figure | None, name: str, peer: Figure | None) -> Row:
        beside = None
        if self.beside is not None:
            what, unit = self.beside
            beside = Beside(unit, _get(ours, what), _get(peer, what))
        bar = self.bars.get(name)
        return Row(self.measure, self.unit, _get(ours, self.what), name, _get(peer, self.what), bar, beside)


def _get(figure: Figure | None, what: str) -> float | None:
    return None if figure is None else figure[what]


def cpu_rows(
    measure: str, unit: str, results: Mapping[str, Figure], bars: Mapping[str, Bar], rate: tuple[str, str]
) -> list[Row]:
    """`cpu`, that of all processes, judged and with the rate beside it; then `actor`, what of ours forwarding takes."""
    alone = Comparison(f"{measure}, CPU of the actor alone", "actor", unit)
    return [
        *Comparison(f"{measure}, CPU", "cpu", unit, bars, rate).rows(results),
        *alone.rows(results, only=bars),
    ]


def plain(rows: Sequence[Row]) -> str:
    """The rows in columns, numbers to the right."""
    cells = [HEADINGS, *map(_cells, rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(HEADINGS))]
    lines = [
        "  ".join(
            text.rjust(width) if column in NUMERIC else text.ljust(width)
            for column, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in cells
    ]
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])


def markdown(rows: Sequence[Row]) -> str:
    """The rows as a table of Markdown."""
    rule = ["--:" if column in NUMERIC else "---" for column in range(len(HEADINGS))]
    return "\n".join("| " + " | ".join(line) + " |" for line in [HEADINGS, rule, *map(_cells, rows)])


def _cells(row: Row) -> tuple[str, ...]:
    beside = row.beside or Beside("", None)
    missing = row.peer_name != "" and row.peer is None
    return (
        row.measure,
        row.unit,
        number(row.ours),
        row.peer_name,
        "left out" if missing else number(row.peer),
        "" if row.ratio is None else f"{row.ratio:.2f}",
        "" if row.bar is None else str(row.bar),
        {True: "yes", False: "NO", None: ""}[row.reached],
        beside.unit,
        number(beside.ours),
        number(beside.peer),
    )


def number(value: float | None) -> str:
    """Three digits that count, or all before the point."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def save(rows: Sequence[Row], about: Mapping[str, object], file: Path) -> None:
    """As JSON: what `about` says of the run, and `rows` with `ratio`, `reached` and the bar's `value` computed."""
    listed = [
        asdict(row)
        | {"ratio": row.ratio, "reached": row.reached, "bar_value": row.bar.value(row.peer) if row.bar else None}
        for row in rows
    ]
    file.write_text(json.dumps({**about, "rows": listed}, indent=2) + "\n")
