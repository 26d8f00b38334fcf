"""The table: its rows (`rows.txt`) with what was measured, and how it is printed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.ours import OURS, PURE
from benchmarks.rounds import Results

HEADINGS = ("measure", "unit", "ours", "peer", "its", "ratio", "to reach", "reached")
NUMERIC = {2, 4, 5, 6}


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of a measure. A goal is a limit (`<= 4.5`) or a factor of a peer's figure (`<= 0.5 x`), by the peer's
    name; one without a peer has the empty name, one of the pure version beside the compiled one that of `PURE`."""

    measure: str
    what: str
    text: str
    unit: str
    goals: Mapping[str, str] = field(default_factory=dict)

    def lines(self, results: Results) -> Iterator[Line]:
        """A line for each peer that a goal names, or that was measured; none where the figure wasn't taken."""
        found = {name: figure[self.what] for name, figure in results.items() if self.what in figure}
        ours, pure = found.pop(OURS, None), found.pop(PURE, None)
        if ours is None and not found:
            return
        peers = {"": "", **dict.fromkeys(found, ""), **self.goals}
        if len(peers) > 1 and "" not in self.goals:
            del peers[""]
        for name, goal in peers.items():
            if name != PURE:
                yield Line(self.text, self.unit, ours, pure, name, found.get(name), goal)
            elif pure is not None:
                peer = next(iter(self.goals))
                yield Line(f"{self.text}, pure", self.unit, pure, None, peer, found.get(peer), goal)


@dataclass(frozen=True, slots=True)
class Line:
    """`ours` beside one peer; `pure` is ours without compiled modules, which is not judged."""

    text: str
    unit: str
    ours: float | None
    pure: float | None = None
    peer: str = ""
    its: float | None = None
    goal: str = ""

    @property
    def limit(self) -> float | None:
        """The figure that just reaches the goal; None when it hangs on a peer that was not measured."""
        if not self.goal:
            return None
        number, _, factor = self.goal[2:].strip().partition(" ")
        if not factor:
            return float(number.replace(",", ""))
        return None if self.its is None else float(number) * self.its

    @property
    def ratio(self) -> float | None:
        """Ours divided by the peer's."""
        return self.ours / self.its if self.ours is not None and self.its else None

    @property
    def reached(self) -> bool | None:
        """Whether ours reaches the goal; None where there is none, or nothing to judge by."""
        if self.limit is None or self.ours is None:
            return None
        return self.ours >= self.limit if self.goal.startswith(">=") else self.ours <= self.limit

    def cells(self) -> tuple[str, ...]:
        """As it is printed; the figure of the pure version in brackets."""
        its = "left out" if self.peer and self.its is None else number(self.its)
        ratio = "" if self.ratio is None else f"{self.ratio:.2f}"
        ours = number(self.ours) + (f" ({number(self.pure)})" if self.pure is not None else "")
        return self.text, self.unit, ours, self.peer, its, ratio, self.goal, _YES[self.reached]


_YES = {True: "yes", False: "NO", None: ""}


def lines_of(results: Mapping[str, Results]) -> list[Line]:
    """The lines of all measures, in the order of `ROWS`."""
    return [line for row in ROWS for line in row.lines(results.get(row.measure, {}))]


def markdown(lines: Sequence[Line]) -> str:
    """As a table of Markdown, numbers to the right."""
    sides = [">" if column in NUMERIC else "<" for column in range(len(HEADINGS))]
    rule = ["--:" if side == ">" else "---" for side in sides]
    rows = [HEADINGS, rule, *(line.cells() for line in lines)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "| " + " | ".join(f"{text:{side}{width}}" for text, side, width in zip(row, sides, widths, strict=True)) + " |"
        for row in rows
    )


def number(value: float | None) -> str:
    """Three digits that count, or all before the point."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def save(lines: Sequence[Line], about: Mapping[str, object], file: Path) -> None:
    """As JSON: what `about` says of the run, and `rows` with what is computed."""
    rows = [asdict(each) | {"ratio": each.ratio, "limit": each.limit, "reached": each.reached} for each in lines]
    file.write_text(json.dumps({**about, "rows": rows}, indent=2) + "\n")


def _rows() -> Iterator[Row]:
    for line in Path(__file__).with_name("rows.txt").read_text().splitlines():
        if not line.startswith("#"):
            measure, what, text, unit, goals = (each.strip() for each in line.split("|"))
            pairs = (goal.strip().partition(" ") for goal in goals.split(";") if goal)
            yield Row(measure, what, text, unit, {peer.replace("alone", ""): goal for peer, _, goal in pairs})


ROWS = tuple(_rows())
