"""What was measured, as rows of a table: ours beside each peer, with the ratio and what is to be reached."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

OURS = "proxyfleet"
PURE = "proxyfleet-pure"
"""Ours without compiled modules, beside a product that has them."""

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
        return f"{sign} {number(self.factor)} x" if self.factor is not None else f"{sign} {number(self.limit)}"


@dataclass(frozen=True, slots=True)
class Beside:
    """A second figure of the same run that is printed and not judged, such as the throughput beside the CPU."""

    unit: str
    ours: float | None
    peer: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One line. `ours` is None when the product was not measured, `peer` when there is none or it was left out.

    `pure` is the figure of ours without compiled modules, where both were measured; it is not judged.
    """

    measure: str
    unit: str
    ours: float | None
    peer_name: str = ""
    peer: float | None = None
    bar: Bar | None = None
    beside: Beside | None = None
    pure: float | None = None

    @property
    def ratio(self) -> float | None:
        """Ours divided by the peer's."""
        return self.ours / self.peer if self.ours is not None and self.peer else None

    @property
    def pure_ratio(self) -> float | None:
        """That of the pure version."""
        return self.pure / self.peer if self.pure is not None and self.peer else None

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
    """By the peer's name; one without a peer has the empty name."""
    beside: tuple[str, str] | None = None
    """What and unit of the figure that is printed beside."""
    pure_bars: Mapping[str, Bar] = field(default_factory=dict)
    """What the pure version is to reach where it runs beside the compiled one, in rows of its own."""

    def rows(self, results: Mapping[str, Figure], only: Collection[str] = ()) -> list[Row]:
        """A row for each peer, or for those in `only`; the peers of the bars come first.

        A peer that is asked for and was left out has a row without figure.
        """
        others = [name for name in results if name not in self.bars and name not in (OURS, PURE)]
        made = [self._row(results, name) for name in (only or [*self.bars, *others])] or [self._row(results, "")]
        return [*made, *(self._pure_rows(results) if PURE in results else [])]

    def _row(self, results: Mapping[str, Figure], name: str) -> Row:
        ours, peer = results.get(OURS), results.get(name)
        beside = None
        if self.beside is not None:
            what, unit = self.beside
            beside = Beside(unit, _get(ours, what), _get(peer, what))
        figures = _get(ours, self.what), name, _get(peer, self.what)
        return Row(self.measure, self.unit, *figures, self.bars.get(name), beside, _get(results.get(PURE), self.what))

    def _pure_rows(self, results: Mapping[str, Figure]) -> list[Row]:
        pure = _get(results[PURE], self.what)
        return [
            Row(f"{self.measure}, pure", self.unit, pure, name, _get(results.get(name), self.what), bar)
            for name, bar in self.pure_bars.items()
        ]


def _get(figure: Figure | None, what: str) -> float | None:
    return None if figure is None else figure[what]


def cpu_rows(
    measure: str,
    unit: str,
    results: Mapping[str, Figure],
    bars: Mapping[str, Bar],
    rate: tuple[str, str],
    pure_bars: Mapping[str, Bar] | None = None,
) -> list[Row]:
    """`cpu`, that of all processes, judged and with the rate beside it; then `actor`, what of ours forwarding takes."""
    alone = Comparison(f"{measure}, CPU of the actor alone", "actor", unit)
    return [
        *Comparison(f"{measure}, CPU", "cpu", unit, bars, rate, pure_bars or {}).rows(results),
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
        _with_pure(number(row.ours), number(row.pure)),
        row.peer_name,
        "left out" if missing else number(row.peer),
        _with_pure(_ratio(row.ratio), _ratio(row.pure_ratio)),
        "" if row.bar is None else str(row.bar),
        {True: "yes", False: "NO", None: ""}[row.reached],
        beside.unit,
        number(beside.ours),
        number(beside.peer),
    )


def _with_pure(ours: str, pure: str) -> str:
    """The figure of the pure version in brackets."""
    return f"{ours} ({pure})" if pure else ours


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def number(value: float | None) -> str:
    """Three digits that count, or all before the point."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def save(rows: Sequence[Row], about: Mapping[str, object], file: Path) -> None:
    """As JSON: what `about` says of the run, and `rows` with the ratios, `reached` and the bar's `value` computed."""
    listed = [
        asdict(row)
        | {"ratio": row.ratio, "pure_ratio": row.pure_ratio, "reached": row.reached}
        | {"bar_value": row.bar.value(row.peer) if row.bar else None}
        for row in rows
    ]
    file.write_text(json.dumps({**about, "rows": listed}, indent=2) + "\n")
