"""`proxyfleet top`: what all proxies do at this moment, full screen, until `q`.

Rates of a proxy are differences of its counters between two looks. The rate limit of the API is heeded: looks are as
far apart as what is left of it allows, and while the API doesn't answer the last figures stay with what is wrong above.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import typer

from api.cli.commands import WATCH, Session, command
from api.cli.errors import CommandError, Status
from api.cli.quantities import Size
from api.cli.remote.proxies import address, state
from api.cli.terminal.output import GAP, counted, fitting, safe, shown, style_of
from api.cli.terminal.terminal_input import END, ESCAPE, keyboard

if TYPE_CHECKING:  # rich is loaded when there is a terminal to draw on
    from rich.console import RenderableType
    from rich.text import Text

HISTORY = 60
BARS = "▁▂▃▄▅▆▇█"
ASCII_BARS = "_.:-=+*#"
SORTS = ("requests", "connections", "in", "out", "errors", "name")
KEYS = "q quit   s sort   r reverse   ↑ ↓ scroll"
SUSPEND = b"\x1a"
_ARROWS = {b"\x1b[A": -1, b"\x1b[B": 1, b"\x1bOA": -1, b"\x1bOB": 1, b"k": -1, b"j": 1, b"\x1b[5~": -10, b"\x1b[6~": 10}


def add_commands(app: typer.Typer) -> None:
    """Put it into `app`."""
    command(app, "top", rich_help_panel=WATCH)(top)


def top(
    session: Session,
    interval: Annotated[float, typer.Option("--interval", min=0.5, help="Seconds between two looks.")] = 2.0,
    sort: Annotated[str, typer.Option("--sort", help=f"One of {', '.join(SORTS)}.")] = SORTS[0],
    once: Annotated[bool, typer.Option("--once", help="Two looks, and print the table; for pipes.")] = False,
) -> None:
    """Show live what all proxies do, full screen; q ends it."""
    if sort not in SORTS:
        raise CommandError(f"--sort {sort!r}: must be one of {', '.join(SORTS)}", status=Status.USAGE)
    view = View(sort=sort)
    if once:
        _once(session, view, interval)
        return
    if not session.out.terminal or not sys.stdin.isatty():
        raise CommandError(
            "There is no terminal to draw on", "proxyfleet top --once, or proxyfleet status", Status.USAGE
        )
    _live(session, view, interval)


@dataclass(slots=True)
class View:
    """What is shown: figures of two looks, and how somebody wants to see them."""

    sort: str = SORTS[0]
    reverse: bool = False
    offset: int = 0
    now: Mapping[str, Any] = field(default_factory=dict)
    proxies: list[dict[str, Any]] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    history: deque[float] = field(default_factory=lambda: deque(maxlen=HISTORY))
    trouble: str | None = None
    pause: float = 0.0
    _seen: float = 0.0

    def look(self, now: Mapping[str, Any], proxies: list[dict[str, Any]], moment: float) -> None:
        """Take in new figures, seen at `moment` of the monotonic clock."""
        before = {proxy["id"]: proxy["stats"] for proxy in self.proxies}
        seconds = moment - self._seen if self._seen else 0.0
        self.rows = [_row(proxy, before.get(proxy["id"]), seconds) for proxy in proxies]
        self.now, self.proxies, self._seen, self.trouble = now, proxies, moment, None
        self.history.append(float(now["requests_per_second"]))

    def pressed(self, key: bytes) -> bool:
        """Do what a key means; False for the end."""
        if key in (b"q", b"Q", ESCAPE, END):
            return False
        if key == b"s":
            self.sort = SORTS[(SORTS.index(self.sort) + 1) % len(SORTS)]
        elif key == b"r":
            self.reverse = not self.reverse
        elif key in _ARROWS:
            self.offset = max(0, min(len(self.rows) - 1, self.offset + _ARROWS[key]))
        return True

    def sorted_rows(self) -> list[dict[str, Any]]:
        """Greatest first, names from A to Z; the other way round if somebody wants it."""
        by_name = self.sort == "name"
        key = "name" if by_name else self.sort
        return sorted(self.rows, key=lambda row: row[key], reverse=by_name == self.reverse)


def _row(proxy: dict[str, Any], before: Mapping[str, Any] | None, seconds: float) -> dict[str, Any]:
    stats = proxy["stats"]

    def rate(name: str) -> float:
        grown = stats[name] - before[name] if before is not None and seconds > 0 else 0
        return max(0.0, grown / seconds) if seconds > 0 else 0.0  # counters may begin anew

    return {
        "name": proxy["name"],
        "protocol": proxy["protocol"],
        "address": address(proxy),
        "state": state(proxy["runtime"]),
        "connections": stats["active_connections"],
        "requests": rate("total_requests"),
        "errors": rate("errors"),
        "in": rate("bytes_in"),
        "out": rate("bytes_out"),
        "total": stats["total_requests"],
    }


COLUMNS = (
    ("NAME", "name"),
    ("PROTOCOL", "protocol"),
    ("ADDRESS", "address"),
    ("STATE", "state"),
    ("CONNECTIONS", "connections"),
    ("REQUESTS/S", "requests"),
    ("ERRORS/S", "errors"),
    ("IN/S", "in"),
    ("OUT/S", "out"),
    ("REQUESTS", "total"),
)
_STATE = 3
_SIZES = ("in", "out")
_SPARE = ("protocol", "address", "total")
_NUMBERS = ("connections", "requests", "errors", "in", "out", "total")


def cells(row: Mapping[str, Any], plain: bool = False) -> list[str]:
    """The texts of a row; `plain` for programs."""
    return [shown(Size(row[key]) if key in _SIZES else row[key], plain) for _, key in COLUMNS]


def sparkline(values: Sequence[float], bars: str = BARS) -> str:
    """A small bar for each value, the greatest of them the highest."""
    highest = max(values, default=0.0) or 1.0
    return "".join(bars[min(len(bars) - 1, int(value / highest * (len(bars) - 1) + 0.5))] for value in values)


def figures(now: Mapping[str, Any], width: int) -> list[str]:
    """The product as a whole, in as many lines of `width` as it takes; a figure is never broken in two."""
    parts = (
        f"{shown(now['requests_per_second'])} requests/s",
        counted(now["active_connections"], "connection"),
        f"{shown(now['error_rate'])} % errors",
        f"{shown(now['response_time_avg'])} ms (p95 {shown(now['response_time_p95'])})",
        f"in {Size(now['bandwidth_in'], per_second=True).text}",
        f"out {Size(now['bandwidth_out'], per_second=True).text}",
        f"processor {shown(now['cpu_usage'])} %",
        f"memory {shown(now['memory_usage'])} %",
    )
    lines = [parts[0]]
    for part in parts[1:]:
        if len(lines[-1]) + 3 + len(part) <= width:
            lines[-1] += f"   {part}"
        else:
            lines.append(part)
    return lines


def _fetch(session: Session, view: View) -> None:
    """Look, by one request."""
    data = session.api.get("/metrics/realtime", include="proxies")
    view.look(data["metrics"], data["proxies"], time.monotonic())


def _once(session: Session, view: View, interval: float) -> None:
    _fetch(session, view)
    time.sleep(interval)
    _fetch(session, view)
    rows = view.sorted_rows()
    titles = "\t".join(title for title, _ in COLUMNS)
    data = {"metrics": view.now, "proxies": rows}
    session.out.data(
        data,
        lambda: session.out.lines([titles, *("\t".join(cells(row, plain=not session.out.terminal)) for row in rows)]),
    )


def _live(session: Session, view: View, interval: float) -> None:
    """Until somebody ends it. A suspended one gives the terminal back and draws anew when it is continued."""
    session.api.waits = False  # the screen goes on, and says that there were too many requests
    _look_or_tell(session, view, interval)  # what is wrong from the beginning is told without a screen
    if view.trouble is not None and not view.rows:
        _fetch(session, view)
    while _suspended(session, view, interval):
        os.kill(os.getpid(), signal.SIGSTOP)


def _suspended(session: Session, view: View, interval: float) -> bool:
    """Draw until a key ends it: True when it is to be suspended. The terminal is as it was afterwards."""
    from rich.console import Console
    from rich.live import Live

    console = Console(file=session.out.out, no_color=not session.out.coloured, highlight=False, emoji=False)
    with keyboard() as pressed, Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            until = time.monotonic() + view.pause
            while (left := until - time.monotonic()) > 0:
                screen = drawn(view, session.api.url, console.width, console.height, session.out.unicode)
                live.update(screen, refresh=True)
                for key in pressed(left):
                    if key == SUSPEND:
                        return True
                    if not view.pressed(key):
                        return False
            _look_or_tell(session, view, interval)


def _look_or_tell(session: Session, view: View, interval: float) -> None:
    """Look; if that fails, say so above the last figures and go on."""
    try:
        _fetch(session, view)
    except CommandError as trouble:
        if trouble.status is Status.NOT_AUTHORISED:
            raise  # waiting makes that no better
        view.trouble = f"{trouble.message}; trying again"
    allowance = session.api.allowance
    view.pause = allowance.pause(interval) if allowance else interval


def drawn(view: View, url: str, width: int, height: int, unicode: bool = True) -> RenderableType:
    """The whole screen."""
    from rich.console import Group

    lines = _head(view, url, width, unicode)
    room = max(1, height - len(lines) - 2)  # the table's titles, and the keys
    rows = view.sorted_rows()
    first = min(view.offset, max(0, len(rows) - 1))
    last = min(len(rows), first + room)
    keys = KEYS if unicode else KEYS.replace("↑ ↓", "up, down")
    if last - first < len(rows):
        keys += f"   {first + 1} to {last} of {len(rows)}"
    return Group(*lines, _table(view, rows[first:last], width, unicode), _one_line(keys, "bright_black"))


def _one_line(text: str, style: str = "") -> Text:
    from rich.text import Text

    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def _head(view: View, url: str, width: int, unicode: bool) -> list[Text]:
    head = _one_line(f"Proxyfleet at {safe(url)}   {time.strftime('%H:%M:%S')}   ", "bold")
    head.append(counted(len(view.rows), "proxy", "proxies"), style="not bold")
    lines = [head]
    if view.now:
        lines += [_one_line(line) for line in figures(view.now, width)]
    history = sparkline(list(view.history)[-max(1, width - 11) :], BARS if unicode else ASCII_BARS)
    lines.append(_one_line("requests/s ").append(history, style="green"))
    slow = f"One look in {view.pause:.0f} s, since the rate limit leaves no more" if view.pause > PATIENCE else ""
    lines.append(_one_line(safe(view.trouble or slow), "red" if view.trouble else "yellow"))
    return lines


def _table(view: View, rows: Sequence[Mapping[str, Any]], width: int, unicode: bool) -> RenderableType:
    """Names, then reasons of states, give way to figures where there isn't room for both."""
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    up, down, cut = ("▲", "▼", "…") if unicode else ("^", "v", "~")
    titles = [f"{title} {up if view.reverse else down}" if key == view.sort else title for title, key in COLUMNS]
    texts = [cells(row) for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(titles, *texts, strict=True)]
    widths[0] = min(widths[0], MOST)
    kept = fitting(widths, [key in _SPARE for _, key in COLUMNS], width)
    others = sum(widths[at] + GAP for at in kept[1:])
    widths[0] = min(widths[0], max(LEAST, len(titles[0]), width - others))
    excess = max(0, widths[0] + others - width)
    widths[_STATE] = min(widths[_STATE], max(LEAST, widths[_STATE] - excess))
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, GAP, 0, 0))
    for at in kept:
        right = COLUMNS[at][1] in _NUMBERS
        table.add_column(titles[at], justify="right" if right else "left", no_wrap=True, min_width=widths[at])
    for row in texts:
        for at in (0, _STATE):
            row[at] = shortened(row[at], widths[at], cut)
        table.add_row(*(Text(row[at], style=style_of(row[at])) for at in kept))
    return table


LEAST, MOST = 8, 40
"""Cells that a name and a state get in any case, and that a name may take before columns are left out for it."""


def shortened(text: str, width: int, mark: str = "…") -> str:
    """`text` in at most `width` cells of a terminal; what is cut off is marked."""
    from rich.cells import cell_len, set_cell_size

    return text if cell_len(text) <= width else set_cell_size(text, width - 1) + mark


PATIENCE = 10.0
"""Seconds between two looks from which it is said why."""
