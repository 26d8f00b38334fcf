"""What commands print, and what they read at a terminal.

For people on a terminal: tables, with colours unless NO_COLOR is set. In a pipe: the same cells, tab-separated under a
line of titles, never cut and never coloured, with plain numbers where people get units. With `-o json`: the data of the
API's response.

Texts come from elsewhere (a client chose the URL in an access record), so characters that a terminal would obey are
written as escapes.
"""

from __future__ import annotations

import codecs
import contextlib
import getpass
import io
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TextIO

from api.cli.errors import CommandError, Status
from api.cli.options import file_option, flag
from api.cli.quantities import Quantity, size, with_unit
from config.text.formatting import MANY, printable, printable_json

if TYPE_CHECKING:  # rich is loaded by the first table on a terminal
    from rich.table import Table

Format = Literal["table", "json"]
Row = Mapping[str, Any]

GOOD, BAD, DIM, WARN = "green", "red", "bright_black", "yellow"
WORDS = {
    **dict.fromkeys(("active", "running", "healthy", "up", "success", "delivered", "done", "allow"), GOOD),
    **dict.fromkeys(("failed", "unhealthy", "down", "error", "critical", "timeout", "deny", "disabled"), BAD),
    **dict.fromkeys(("degraded", "starting", "draining", "waiting", "warning"), WARN),
    **dict.fromkeys(("inactive", "stopped", "sleeping", "unknown", "debug"), DIM),
}
"""Colours of words for states."""


def style_of(cell: str) -> str:
    """The colour of a cell: that of its first word, without what follows in brackets; empty for other texts."""
    return WORDS.get(cell.partition(" (")[0], "")


GAP = 2
"""Spaces between two columns at a terminal."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its title, and the value of its cells: a key of the row, with dots for nested keys, or a function.

    On a terminal that is too narrow, `spare` columns are left out, the one with the highest number first. If that isn't
    enough, long texts are wrapped, except in `whole` columns.
    """

    title: str
    value: str | Callable[[Row], Any]
    right: bool = False
    spare: int = 0
    whole: bool = False

    def cell(self, row: Row, plain: bool = False) -> str:
        """The text of its cell in `row`; `plain` for programs."""
        return cell_text(self.value(row) if callable(self.value) else inside(row, self.value), plain)


def titled(*columns: Detail, **settings: Any) -> tuple[Column, ...]:
    """Columns of the same settings: each a field, whose name is the title in capital letters (`scope.accounts` is
    ACCOUNTS, `last_used_at` is LAST USED), or a title with a field or a function."""
    pairs = [
        (_plain_name(each.rpartition(".")[2]).upper(), each) if isinstance(each, str) else each for each in columns
    ]
    return tuple(Column(title, value, **settings) for title, value in pairs)


def with_node(columns: Sequence[Column], data: Mapping[str, Any]) -> tuple[Column, ...]:
    """With a column of the node that each row is of, if the response is of several nodes."""
    return (Column("NODE", "node"), *columns) if data.get("meta") else tuple(columns)


TRAFFIC = titled(("IN", lambda row: size(row["bytes_in"])), ("OUT", lambda row: size(row["bytes_out"])), right=True)
"""The columns of what was transferred."""


def _plain_name(field: str) -> str:
    return field.removesuffix("_at").replace("_", " ")


def inside(row: Row, path: str) -> Any:
    """The value at `a.b`; None if there is none."""
    value: Any = row
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


Detail = str | tuple[str, str | Callable[[Row], Any]]
"""A line about one thing: a field, under its own name in plain words; or a title with a dotted field or a function."""
Pairs = Sequence[tuple[str, Any]]


def pairs_of(row: Row, details: Sequence[Detail] | Callable[[Row], Pairs]) -> Pairs:
    """Names and values of one thing for people."""
    if callable(details):
        return details(row)
    titled = [(_plain_name(each), each) if isinstance(each, str) else each for each in details]
    return [(title, value(row) if callable(value) else inside(row, value)) for title, value in titled]


def cell_text(value: Any, plain: bool = False) -> str:
    """A value as a cell; sizes and spans of time are `plain` numbers for programs."""
    if value is None:
        return "-"
    if isinstance(value, Quantity):
        return value.plain if plain else value.text
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.2f}".rstrip("0").rstrip(".")
    if isinstance(value, (list, tuple)):
        return ", ".join(cell_text(each, plain) for each in value) or "-"
    if isinstance(value, Mapping):
        return safe(json.dumps(value, ensure_ascii=False))
    return safe(str(value)) or "-"


def fields_of(values: Mapping[str, Any]) -> Quantity:
    """`timeout 30 s, keep_alive no`: by the names that `--set` takes, without empty values and limits of 0."""
    given = [(name, value) for name, value in values.items() if value != [] and (value or isinstance(value, bool))]
    made = (", ".join(f"{name} {_with_unit(name, value, plain)}" for name, value in given) for plain in (False, True))
    return Quantity(*(each or "-" for each in made))


def _with_unit(name: str, value: Any, plain: bool) -> str:
    text = cell_text(with_unit(name, value), plain)
    return f"{text} s" if name in ("timeout", "sleep_after", "clients_window") and not plain else text


def safe(text: str) -> str:
    """`text` with escapes for characters that a terminal would obey or not display."""
    return printable(text)


def one_of(many: str) -> str:
    """`user` of `users`, as sections of documents are called."""
    return next((one for one, plural in MANY.items() if plural == many), many.removesuffix("s"))


def _harmless(text: str) -> str:
    """JSON or TOML of several lines, with escapes for characters that a terminal would obey (both read `\\u202e`)."""
    return "\n".join(printable_json(line) for line in text.split("\n"))


class Output:
    """Results go to `out`, notes and errors to `err`."""

    def __init__(self, format_: Format = "table", out: TextIO | None = None, err: TextIO | None = None) -> None:
        self.format = format_
        self.out = out or sys.stdout
        self.err = err or sys.stderr
        for stream in (self.out, self.err):
            if isinstance(stream, io.TextIOWrapper):  # a character that the encoding lacks must not fail the command
                stream.reconfigure(errors="backslashreplace")

    @property
    def terminal(self) -> bool:
        """True if results go to a terminal."""
        return self.out.isatty()

    @property
    def coloured(self) -> bool:
        """True if colours are printed; any text in NO_COLOR turns them off (https://no-color.org)."""
        return self.terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    # --- results ---

    def data(self, data: Any, view: Callable[[], None]) -> None:
        """Print the result: `data` as JSON for programs, else by calling `view`."""
        if self.format == "json":
            self.line(_harmless(json.dumps(data, indent=2, ensure_ascii=not self.unicode)))
        else:
            view()

    def done(self, data: Any, text: str) -> None:
        """The result of a change: `data` for programs, a sentence for people."""
        self.data(data, lambda: self.message(text))

    def table(self, columns: Sequence[Column], rows: Iterable[Row], nothing: str | None = None) -> None:
        """Print rows under titles; on a terminal the sentence `nothing` in place of a table without rows."""
        cells = [[column.cell(row, plain=not self.terminal) for column in columns] for row in rows]
        if not self.terminal:
            self.lines(["\t".join(column.title for column in columns), *("\t".join(row) for row in cells)])
        elif not cells and nothing:
            self.line(nothing)
        else:
            self._draw(columns, cells)

    def note_missing(self, data: Mapping[str, Any]) -> None:
        """Say which nodes are missing in a response, if one is."""
        for each in (data.get("meta") or {}).get("missing_nodes", ()):
            self.note(f"The node {each['node']} is missing: {each['reason']}")

    def details(self, pairs: Sequence[tuple[str, Any]]) -> None:
        """Print names and values, one pair on a line."""
        if not self.terminal:
            self.lines(f"{name}\t{cell_text(value, plain=True)}" for name, value in pairs)
            return
        width = max(len(name) for name, _ in pairs)
        for name, value in pairs:
            text = cell_text(value)
            self.line(f"{self.colour(name.ljust(width), DIM)}  {self.colour(text, style_of(text))}")

    def line(self, text: str) -> None:
        """Print a line of the result."""
        self.lines([text])

    def lines(self, texts: Iterable[str]) -> None:
        """Print several lines."""
        for text in texts:
            self.out.write(text + "\n")
        self.out.flush()

    def document(self, text: str) -> None:
        """Print a document, in UTF-8 whatever the locale is: an escape would be another text."""
        if self.terminal or not isinstance(self.out, io.TextIOWrapper):
            self.out.write(_harmless(text))
        else:
            self.out.flush()
            self.out.buffer.write(text.encode())
        self.out.flush()

    def stream(self, pieces: Iterable[bytes]) -> None:
        """Print a document in UTF-8 that comes in pieces."""
        decoder = codecs.getincrementaldecoder("utf-8")()
        for piece in pieces:
            self.document(decoder.decode(piece))

    def message(self, text: str) -> None:
        """Print what was done; not with `-o json`, where programs have the data."""
        if self.format != "json":
            self.line(safe(text))

    # --- the rest ---

    def note(self, text: str) -> None:
        """Print a line on standard error."""
        self.err.write(safe(text) + "\n")
        self.err.flush()

    def error(self, error: CommandError) -> None:
        """Print an error, its problems and its hint on standard error."""
        if self.format == "json":
            text = json.dumps({"error": error.as_data()}, ensure_ascii=not self.unicode)
            self.err.write(_harmless(text) + "\n")
            return
        bold = self.err.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        name = "\x1b[31mproxyfleet:\x1b[0m" if bold else "proxyfleet:"
        for line in error.message.splitlines():
            self.err.write(f"{name} {safe(line)}\n")
        for field, problem in error.problems:
            self.err.write(f"  {safe(f'{error.label(field)}: {problem}' if field else problem)}\n")
        if error.hint:
            self.err.write(f"  → {safe(error.hint)}\n" if self.unicode else f"  -> {safe(error.hint)}\n")

    def colour(self, text: str, name: str | None) -> str:
        """`text` in a colour, if colours are printed."""
        if not name or not self.coloured:
            return text
        return f"\x1b[{_CODES[name]}m{text}\x1b[0m"

    @property
    def unicode(self) -> bool:
        """True if `out` can encode every character."""
        return (getattr(self.out, "encoding", None) or "").lower().replace("-", "") == "utf8"

    def _draw(self, columns: Sequence[Column], cells: Sequence[Sequence[str]]) -> None:
        """Print a table at a terminal: leave columns out, then wrap long cells, until it fits."""
        from rich.console import Console

        room = Console(file=self.out).width
        titles = [column.title for column in columns]
        widths = natural_widths(titles, cells)
        chosen = fitting_columns(widths, [column.spare for column in columns], room)
        widths = wrapped_widths(widths, chosen, [column.right or column.whole for column in columns], room)
        options = [{"width": each, "overflow": "fold"} for each in widths]
        table = rich_table(columns, titles, cells, chosen, options)
        width = max(room, _wide(widths, chosen))
        Console(file=self.out, width=width, no_color=not self.coloured, highlight=False, emoji=False).print(table)
        left_out = [column.title for at, column in enumerate(columns) if at not in chosen]
        if left_out:
            self.note(f"Left out: {', '.join(left_out)} (the terminal is narrow).")


def cell_width(text: str) -> int:
    """Cells of a terminal that a text takes."""
    from rich.cells import cell_len

    return cell_len(text)


def natural_widths(titles: Sequence[str], cells: Sequence[Sequence[str]]) -> list[int]:
    """Widths in which nothing is wrapped."""
    return [max(map(cell_width, column)) for column in zip(titles, *cells, strict=True)]


def rich_table(
    columns: Sequence[Column],
    titles: Sequence[str],
    cells: Sequence[Sequence[str]],
    chosen: Sequence[int],
    options: Sequence[Mapping[str, Any]],
) -> Table:
    """A table of the columns that are kept; `options` are those of rich for each column."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, GAP, 0, 0))
    for at in chosen:
        table.add_column(titles[at], justify="right" if columns[at].right else "left", **options[at])
    for row in cells:
        table.add_row(*(Text(row[at], style=style_of(row[at])) for at in chosen))
    return table


def fitting_columns(widths: Sequence[int], spare: Sequence[int], room: int) -> list[int]:
    """Indices of the columns that are chosen: the highest `spare` is left out first, among equals the last column."""
    chosen = list(range(len(widths)))
    for at in sorted((at for at in chosen if spare[at]), key=lambda at: (spare[at], at), reverse=True):
        if _wide(widths, chosen) <= room:
            break
        chosen.remove(at)
    return chosen


def wrapped_widths(widths: Sequence[int], chosen: Sequence[int], fixed: Sequence[bool], room: int) -> list[int]:
    """Widths of the columns after the widest were narrowed until the table fits; `fixed` ones keep theirs."""
    made = list(widths)
    while _wide(made, chosen) > room:
        widest = max((at for at in chosen if not fixed[at]), key=lambda at: made[at], default=None)
        if widest is None or made[widest] <= NARROWEST:
            break
        made[widest] -= 1
    return made


NARROWEST = 8
"""Cells of a terminal to which a text is wrapped at most."""


def _wide(widths: Sequence[int], chosen: Sequence[int]) -> int:
    return sum(widths[at] for at in chosen) + GAP * (len(chosen) - 1)


_CODES = {GOOD: "32", BAD: "31", DIM: "90", WARN: "33"}


# --- progress ---

ReportProgress = Callable[[int, int | None], None]
"""Takes the bytes that are done, and the total if that is known."""


@contextlib.contextmanager
def progress(out: Output, what: str) -> Iterator[ReportProgress]:
    """Show a bar, titled `what`, on standard error during the block, if that is a terminal and the format is not JSON.

    Yields the function that moves it.
    """
    if not out.err.isatty() or out.format == "json":
        yield lambda _done, _total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(*columns, console=Console(file=out.err), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


# --- keys of the configuration with the sources of their values ---

DEFAULT, BY_API, BY_COMMAND_LINE = "default", "API", "command line"
_WORDS = {"api": BY_API, "command_line": BY_COMMAND_LINE}


def _value(row: Row) -> Any:
    """The value as in the file."""
    value = row["value"]
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def source_text(row: Row) -> str:
    """Where the value comes from: the place, else the name of the source."""
    return str(row["place"] or _WORDS.get(row["source"], row["source"]))


COLUMNS = (
    *titled("key", ("VALUE", _value), ("FROM", source_text)),
    Column("CHANGE", lambda row: row["change"].replace("_", " "), spare=1),
)
CHANGED = flag("--changed", "Only keys whose value is not the default.")


def print_sources(out: Output, name: str, rows: list[dict[str, Any]], changed: bool) -> None:
    """Print keys as a table, or as JSON below `name`; with `changed` those without their default."""
    rows = [each for each in rows if each["source"] != DEFAULT or not changed]
    out.data({name: rows}, lambda: out.table(COLUMNS, rows, "All keys have their defaults."))


# --- input: passwords and passphrases, from a prompt without an echo, standard input or a file ---
# No option has a password as its value: every user of the machine sees arguments (`ps`), and shells keep them.

PASSPHRASE_FILE = file_option("--passphrase-file", "Its first line is the passphrase; else it is asked for.")
PASSWORD_STDIN = flag("--password-stdin", "Read the password from the first line of standard input.")


def password(what: str, from_stdin: bool, twice: bool = False) -> str:
    """Read a password, `twice` to compare. Raises `CommandError` if there is neither a terminal nor
    `--password-stdin`."""
    if from_stdin:
        line = sys.stdin.readline().rstrip("\r\n")
        if not line:
            raise CommandError("The first line of standard input holds no password", status=Status.USAGE)
        return line
    return hidden(what, "--password-stdin reads it from standard input", twice)


def passphrase(what: str, file: Path | None, twice: bool) -> str:
    """The first line of `--passphrase-file`, else from a prompt. Raises `CommandError` if there is neither."""
    if file is None:
        return hidden(what, "--passphrase-file reads it from the first line of a file", twice)
    try:
        return file.read_text(encoding="utf-8").partition("\n")[0].rstrip("\r")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"--passphrase-file: {file}: {error}", status=Status.USAGE) from error


def hidden(what: str, otherwise: str, twice: bool = False) -> str:
    """What is typed in at a prompt that doesn't display it, `twice` to compare. Raises `CommandError` without a
    terminal; `otherwise` says how else it can be given."""
    if not sys.stdin.isatty():
        raise CommandError(f"{what} is needed, and there is no terminal to ask at", otherwise, Status.USAGE)
    first = _read_hidden(f"{what}: ")
    if twice and _read_hidden("Once more: ") != first:
        raise CommandError("The two entries differ; nothing was done")
    return first


def _read_hidden(prompt: str) -> str:
    try:
        return getpass.getpass(prompt, stream=sys.stderr)
    except EOFError as error:
        raise CommandError("Nothing was done") from error
