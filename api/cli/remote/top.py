"""`proxyfleet top`: the current activity of all proxies, full screen, until `q`.

The rates of a proxy are differences of its counters between two polls. Polls keep the rate limit of the API: they are
as far apart as its remainder allows. While the API can't be reached, the last values stay, with the error above them.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from api.cli.commands import TOP, WATCH, Session, command
from api.cli.errors import CommandError, Status
from api.cli.options import flag, option
from api.cli.quantities import size, span_option
from api.cli.remote.proxies import address, state
from api.cli.terminal import (
    GAP,
    Column,
    cell_text,
    cell_width,
    fitting_columns,
    natural_widths,
    rich_table,
    safe,
    titled,
)
from config.text.formatting import counted

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


_TOP = {
    "interval": span_option("--interval", "How long it is between two polls.", "2s", 0.5),
    "sort": option(str, "--sort", f"One of {', '.join(SORTS)}.", default=SORTS[0]),
    "once": flag("--once", "Poll twice and print the table; for pipes."),
}


@command(TOP, "top", _TOP, rich_help_panel=WATCH)
def top(session: Session, interval: float, sort: str, once: bool) -> None:
    """Show the live activity of all proxies, full screen; q ends it."""
    if sort not in SORTS:
        raise CommandError(f"--sort {sort!r}: must be one of {', '.join(SORTS)}", status=Status.USAGE)
    view = TopView(sort=sort)
    if once:
        _once(session, view, interval)
        return
    if not session.out.terminal or not sys.stdin.isatty():
        raise CommandError(
            "There is no terminal to draw on", "proxyfleet top --once, or proxyfleet status", Status.USAGE
        )
    _live(session, view, interval)


@dataclass(slots=True)
class TopView:
    """The displayed values, which come from two polls, and how they are sorted and scrolled."""

    sort: str = SORTS[0]
    reverse: bool = False
    offset: int = 0
    now: Mapping[str, Any] = field(default_factory=dict)
    proxies: list[dict[str, Any]] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    history: deque[float] = field(default_factory=lambda: deque(maxlen=HISTORY))
    error: str | None = None
    pause: float = 0.0
    _updated: float = 0.0

    def update(self, now: Mapping[str, Any], proxies: list[dict[str, Any]], moment: float) -> None:
        """Set the values of a poll at `moment` of the monotonic clock."""
        before = {proxy["id"]: proxy["stats"] for proxy in self.proxies}
        seconds = moment - self._updated if self._updated else 0.0
        self.rows = [_row(proxy, before.get(proxy["id"]), seconds) for proxy in proxies]
        self.now, self.proxies, self._updated, self.error = now, proxies, moment, None
        self.history.append(float(now["requests_per_second"]))

    def pressed(self, key: bytes) -> bool:
        """Handle a key; False if it ends the command."""
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
        """The rows with the greatest first, or by name from A to Z; reversed if `reverse`."""
        by_name = self.sort == "name"
        key = "name" if by_name else self.sort
        return sorted(self.rows, key=lambda row: row[key], reverse=by_name == self.reverse)


def _row(proxy: dict[str, Any], before: Mapping[str, Any] | None, seconds: float) -> dict[str, Any]:
    stats = proxy["stats"]

    def rate(name: str) -> float:
        grown = stats[name] - before[name] if before is not None and seconds > 0 else 0
        return max(0.0, grown / seconds) if seconds > 0 else 0.0  # counters may start again

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
    Column("NAME", "name"),
    *titled("protocol", "address", spare=True),
    Column("STATE", "state"),
    *titled("connections", ("REQUESTS/S", "requests"), ("ERRORS/S", "errors"), right=True),
    *titled(("IN/S", lambda row: size(row["in"])), ("OUT/S", lambda row: size(row["out"])), right=True),
    Column("REQUESTS", "total", right=True, spare=True),
)
_NAME, _STATE = 0, 3
_SORTED_TITLES = dict(zip(SORTS, ("REQUESTS/S", "CONNECTIONS", "IN/S", "OUT/S", "ERRORS/S", "NAME"), strict=True))


def sparkline(values: Sequence[float], bars: str = BARS) -> str:
    """A bar for each value; the greatest has full height."""
    highest = max(values, default=0.0) or 1.0
    return "".join(bars[min(len(bars) - 1, int(value / highest * (len(bars) - 1) + 0.5))] for value in values)


def totals(now: Mapping[str, Any], width: int) -> list[str]:
    """Values of the product in lines of at most `width`; no value is split over two lines."""
    parts = (
        f"{cell_text(now['requests_per_second'])} requests/s",
        counted(now["active_connections"], "connection"),
        f"{cell_text(now['error_rate'])} % errors",
        f"{cell_text(now['response_time_avg'])} ms (p95 {cell_text(now['response_time_p95'])})",
        f"in {size(now['bandwidth_in'], per_second=True).text}",
        f"out {size(now['bandwidth_out'], per_second=True).text}",
        f"processor {cell_text(now['cpu_usage'])} %",
        f"memory {cell_text(now['memory_usage'])} %",
    )
    lines = [parts[0]]
    for part in parts[1:]:
        if len(lines[-1]) + 3 + len(part) <= width:
            lines[-1] += f"   {part}"
        else:
            lines.append(part)
    return lines


def _fetch(session: Session, view: TopView) -> None:
    """Poll the API, by one request. Raises `CommandError`."""
    data = session.api.get("/metrics/realtime", include="proxies")
    view.update(data["metrics"], data["proxies"], time.monotonic())


def _once(session: Session, view: TopView, interval: float) -> None:
    _fetch(session, view)
    time.sleep(interval)
    _fetch(session, view)
    rows = view.sorted_rows()
    plain = not session.out.terminal
    lines = ["\t".join(column.title for column in COLUMNS)]
    lines += ["\t".join(column.cell(row, plain) for column in COLUMNS) for row in rows]
    session.out.data({"metrics": view.now, "proxies": rows}, lambda: session.out.lines(lines))


def _live(session: Session, view: TopView, interval: float) -> None:
    """Draw until a key or signal ends it. A suspended command restores the terminal, and draws again afterwards."""
    session.api.waits = False  # the screen stays, and shows the error of a 429
    _poll(session, view, interval)  # an error of the first poll ends the command without a screen
    if view.error is not None and not view.rows:
        _fetch(session, view)
    while _suspended(session, view, interval):
        os.kill(os.getpid(), signal.SIGSTOP)


def _suspended(session: Session, view: TopView, interval: float) -> bool:
    """Draw until a key ends it; True if that key suspends. The terminal's mode is restored."""
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
            _poll(session, view, interval)


def _poll(session: Session, view: TopView, interval: float) -> None:
    """Poll, and set the pause until the next poll; keep an error to show above the last values."""
    try:
        _fetch(session, view)
    except CommandError as error:
        if error.status is Status.NOT_AUTHORISED:
            raise  # another attempt can't succeed
        view.error = f"{error.message}; trying again"
    view.pause = session.api.pause(interval)


def drawn(view: TopView, url: str, width: int, height: int, unicode: bool = True) -> RenderableType:
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


def _head(view: TopView, url: str, width: int, unicode: bool) -> list[Text]:
    head = _one_line(f"Proxyfleet at {safe(url)}   {time.strftime('%H:%M:%S')}   ", "bold")
    head.append(counted(len(view.rows), "proxy"), style="not bold")
    lines = [head]
    if view.now:
        lines += [_one_line(line) for line in totals(view.now, width)]
    history = sparkline(list(view.history)[-max(1, width - 11) :], BARS if unicode else ASCII_BARS)
    lines.append(_one_line("requests/s ").append(history, style="green"))
    slow = f"One poll in {view.pause:.0f} s: the rate limit allows no more" if view.pause > LONG_PAUSE else ""
    lines.append(_one_line(safe(view.error or slow), "red" if view.error else "yellow"))
    return lines


def _table(view: TopView, rows: Sequence[Mapping[str, Any]], width: int, unicode: bool) -> RenderableType:
    """The table; in a narrow terminal names, then reasons of states, are shortened rather than numbers."""
    up, down, cut = ("▲", "▼", "…") if unicode else ("^", "v", "~")
    sorted_, arrow = _SORTED_TITLES[view.sort], up if view.reverse else down
    titles = [f"{each.title} {arrow}" if each.title == sorted_ else each.title for each in COLUMNS]
    texts = [[column.cell(row) for column in COLUMNS] for row in rows]
    widths = natural_widths(titles, texts)
    widths[_NAME] = min(widths[_NAME], MOST)
    chosen = fitting_columns(widths, [each.spare for each in COLUMNS], width)
    others = sum(widths[at] + GAP for at in chosen[1:])
    widths[_NAME] = min(widths[_NAME], max(LEAST, len(titles[_NAME]), width - others))
    excess = max(0, widths[_NAME] + others - width)
    widths[_STATE] = min(widths[_STATE], max(LEAST, widths[_STATE] - excess))
    for row in texts:
        for at in (_NAME, _STATE):
            row[at] = shortened(row[at], widths[at], cut)
    return rich_table(COLUMNS, titles, texts, chosen, [{"no_wrap": True, "min_width": each} for each in widths])


LEAST, MOST = 8, 40
"""Cells that a name and a state have at least, and that a name may take before columns are left out for it."""


def shortened(text: str, width: int, mark: str = "…") -> str:
    """`text` in at most `width` cells of a terminal, with a mark if it was cut."""
    from rich.cells import set_cell_size

    return text if cell_width(text) <= width else set_cell_size(text, width - 1) + mark


LONG_PAUSE = 10.0
"""Seconds between two polls from which the reason is shown."""


# --- single keys, without echo and line editing ---------------------------------------------------------------------

ESCAPE = b"\x1b"
END = b""
"""Read from a terminal that has been closed."""
REST = 0.05
"""Seconds to wait for the rest of an arrow key, which may arrive after its escape over a slow line."""

_KEY = re.compile(rb"\x1b[\[O][0-9;]*[A-Za-z~]|.", re.DOTALL)

Pressed = Callable[[float], list[bytes]]
"""Waits up to so many seconds for keys; the keys that were pressed, none after a change of the window's size."""


def split(data: bytes) -> list[bytes]:
    """The keys in `data`; an arrow is one key of several bytes."""
    return _KEY.findall(data) or [END]


@contextlib.contextmanager
def keyboard() -> Iterator[Pressed]:
    """Read keys of standard input, which must be a terminal. Ctrl-Z is a key, Ctrl-C raises `KeyboardInterrupt`.

    The terminal's mode is restored however the program ends: SIGTERM and SIGHUP become `SystemExit`, so that the screen
    is released first.
    """
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    with _signals() as resized:
        try:
            tty.setcbreak(descriptor)
            _without_suspending(descriptor)
            yield lambda seconds: _wait(descriptor, resized, seconds)
        finally:
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _without_suspending(descriptor: int) -> None:
    import termios

    mode = termios.tcgetattr(descriptor)
    mode[6][termios.VSUSP] = b"\0"  # _POSIX_VDISABLE of Linux
    termios.tcsetattr(descriptor, termios.TCSANOW, mode)


def _wait(descriptor: int, resized: int, seconds: float) -> list[bytes]:
    readable, _, _ = select.select([descriptor, resized], [], [], seconds)
    if resized in readable:
        os.read(resized, 512)
    if descriptor not in readable:
        return []
    data = _read(descriptor)
    if data.endswith(ESCAPE) and select.select([descriptor], [], [], REST)[0]:
        data += _read(descriptor)
    return split(data)


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 64)
    except OSError:
        return END  # EIO: Linux reports a closed terminal so


@contextlib.contextmanager
def _signals() -> Iterator[int]:
    """A descriptor that is readable after a change of the window's size; SIGTERM and SIGHUP unwind the stack."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)

    def changed(_signal: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(BlockingIOError):  # the pipe is full of the same message
            os.write(writer, b"r")

    handlers = {signal.SIGWINCH: changed, signal.SIGTERM: _end, signal.SIGHUP: _end}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield reader
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(reader)
        os.close(writer)


def _end(number: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)
