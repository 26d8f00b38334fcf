"""`proxyfleet logs`: access records of the proxies."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from shutil import get_terminal_size
from types import MappingProxyType
from typing import Any

from api.cli.commands import TOP, WATCH, Given, Session, command
from api.cli.documents import is_stream
from api.cli.errors import CommandError, Status
from api.cli.options import ACCOUNT, OF_LISTENING, OF_NODE, PROXY, choice, file_option, flag, number, text
from api.cli.quantities import SINCE, UNTIL, size
from api.cli.terminal import (
    BAD,
    DIM,
    GAP,
    TRAFFIC,
    WARN,
    Column,
    Output,
    Row,
    cell_width,
    fitting_columns,
    progress,
    titled,
    with_node,
)
from config.model.choices import OUTCOMES, LogLevel
from config.text.formatting import counted

RETRY_SECONDS = 1.0
"""Between attempts while the API can't be reached."""
POLL_SECONDS = 1.0
"""Between two requests while records arrive; one response has all of the time between."""
LONG_POLL_SECONDS = 20
"""How long the API waits for a record before it responds without one."""

_COLUMNS = (
    *titled(("TIME", "timestamp"), "level", ("CLIENT", "client_ip"), "user", "method", ("TARGET", "target_url")),
    *titled(("STATUS", "status_code"), ("MS", "duration"), right=True),
    *TRAFFIC,
    *titled("reason", ("UPSTREAM", "parent"), ("PROXY", "proxy_name")),
)
_RULE_COLUMNS = (Column("RULE", "value"), Column("RECORDS", "records", right=True))
_REPORTED = "reported"
"""The `reason` of all records of rules in report mode."""
RULES_COUNTED = 100


def _status(given: str) -> str:
    """`404` or `5xx`. Raises `CommandError`."""
    if not re.fullmatch(r"[1-5]([0-9]{2}|[xX]{2})", given, re.ASCII):
        raise CommandError(f"--status {given!r}: must be 100 to 599, or 1xx to 5xx", status=Status.USAGE)
    return given.lower()


_REASON = "Only with this reason, such as dns_error; reported: what rules in report mode would refuse, by rule."
FILTERS = {
    "search": text("--search", "Words that must all occur."),
    "proxy_id": text("--proxy", "Only of this proxy; a name or id.", of=PROXY),
    "level": choice("--level", "Exactly this level.", LogLevel),
    "min_level": choice("--min-level", "At least this level.", LogLevel),
    "client_ip": text("--client", "Only of this client address."),
    "user": text("--user", "Only of this user of a proxy."),
    "account": text("--account", "Only of this account; its user name or id.", of=ACCOUNT),
    "credential": text("--credential", "Only with this credential; its id."),
    "request_id": text("--request-id", "Only of the request with this id."),
    **OF_LISTENING,
    "target": text("--target", "Only with this text in the target."),
    "method": text("--method", "Only with this method; CONNECT of tunnels.", parse=lambda given: given.upper() or None),
    "status_code": text("--status", "Only with this status: 404, or 5xx.", parse=_status),
    "outcome": choice("--outcome", "Only of this outcome; origin_error is a status of the origin's own.", OUTCOMES),
    "reason": text("--reason", _REASON),
    **SINCE,
    **UNTIL,
    **OF_NODE,
}
"""Options by the API's parameter."""
_LOGS = {
    "follow": flag("--follow -f", "Continue with new records, until Ctrl-C."),
    **FILTERS,
    "limit": number("--limit -n", "The number of records at most.", default=100, min=1, max=1000),
    "export": file_option(
        "--export", "Write all into a file, a line of JSON each, newest first; - is standard output."
    ),
}


@command(TOP, "logs", _LOGS, {"status_class": "--status"}, rich_help_panel=WATCH)
def logs(session: Session, follow: bool, fields: Given, limit: int, export: Path | None) -> None:
    """Show access records, oldest first; with -o json --follow one object on each line."""
    if follow and export is not None:
        hint = "An export has the records of now; for new ones: proxyfleet logs -o json --follow"
        raise CommandError("--follow and --export don't go together", hint, Status.USAGE)
    query = dict(fields)
    if query["status_code"] is not None and not query["status_code"].isdigit():
        query["status_class"] = query.pop("status_code")
    if export is not None:
        _export(session, export, query)
    elif follow:
        _follow(session, query, limit)
    else:
        data = _latest(session, query, limit)
        if query["reason"] == _REPORTED:
            data["rules"] = session.api.get("/logs/values", **query, field="rule", limit=RULES_COUNTED)["values"]
        session.out.data(data, lambda: _print(session, data))
        session.out.note_missing(data)


def _latest(session: Session, query: dict[str, Any], limit: int) -> dict[str, Any]:
    """The last records of the query, oldest first."""
    data: dict[str, Any] = session.api.get("/logs", **query, limit=limit)
    data["logs"].reverse()
    return data


def _export(session: Session, file: Path, query: dict[str, Any]) -> None:
    """Write the whole export, or no file of this name: a part would look like all of it."""
    if is_stream(file):
        session.out.stream(session.api.stream("/logs/export", query))
        _note_missing(session)
        return
    part = file.with_name(f".{file.name}.part")
    count = 0
    try:
        with progress(session.out, "Exporting") as report, part.open("wb") as out:
            for piece in session.api.stream("/logs/export", query):
                out.write(piece)
                count += piece.count(b"\n")
                report(out.tell(), None)
        part.replace(file)
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror or error}") from error
    finally:
        part.unlink(missing_ok=True)
    data = {"file": str(file), "records": count}
    session.out.done(data, f"{file}: {counted(count, 'record')}")
    _note_missing(session)


def _note_missing(session: Session) -> None:
    """Say which nodes the export lacks."""
    if session.api.missing_nodes:
        session.out.note(f"Missing nodes, whose records are not in it: {session.api.missing_nodes}")


def _print(session: Session, data: dict[str, Any]) -> None:
    """Print the latest records for people, with a note if there are more."""
    if not session.out.terminal:
        session.out.table(with_node(_COLUMNS, data), data["logs"])
    elif data["logs"]:
        printer = RecordPrinter(session.out, get_terminal_size().columns, data)
        printer.add(data["logs"])
        printer.end()
    else:
        session.out.note("No record matches; --since 1d searches a whole day.")
    if data["has_more"]:
        total = f"{data['total']} or more" if data["total_is_lower_bound"] else str(data["total"])
        session.out.note(f"These are the last {len(data['logs'])} of {total}; --limit shows more.")
    if data.get("rules"):
        session.out.note("By rule:")
        session.out.table(_RULE_COLUMNS, data["rules"])


def _follow(session: Session, query: dict[str, Any], limit: int) -> None:
    """Print the latest records, then new ones until Ctrl-C."""
    data = _latest(session, query, limit)
    session.out.note_missing(data)
    printer = RecordPrinter(session.out, get_terminal_size().columns, data)
    printer.titles()
    printer.add(data["logs"])
    of_tail = {**query, "limit": 1000, "start_time": None, "end_time": None, "timeout": LONG_POLL_SECONDS}
    for entry in _new_records(session, of_tail, data["tail_cursor"]):
        printer.add([entry])


def _new_records(session: Session, query: dict[str, Any], cursor: str) -> Iterator[dict[str, Any]]:
    """Records as they are stored, each once and in this order; continues after a restart of the product."""
    failing, timeout = False, 2 * LONG_POLL_SECONDS
    while True:
        try:
            data = session.api.call("GET", "/logs/tail", query={**query, "cursor": cursor}, timeout=timeout)
        except CommandError as error:
            pause = _retry_after(error)
            if not failing:
                session.out.note(f"{error.message}; trying again")
            failing = True
            time.sleep(pause)
            continue
        failing = False
        yield from data["logs"]
        cursor = data["next_cursor"]
        if data["logs"]:
            time.sleep(session.api.pause(POLL_SECONDS))


def _retry_after(failure: CommandError) -> float:
    """Seconds until the next attempt. Raises `failure` if another attempt can't succeed."""
    error = failure.error or {}
    if error.get("code") == "RATE_LIMITED":
        return float(error.get("details", {}).get("retry_after", 60))
    if failure.status is Status.UNREACHABLE or error.get("code") in ("INTERNAL_ERROR", "UNAVAILABLE"):
        return RETRY_SECONDS
    raise failure


# --- lines at a terminal: aligned under titles, continued as records arrive ---
# The target is the last column and complete, so that it can be copied; a narrow terminal has fewer columns before it.


def _clock(entry: Row) -> str:
    """The time of a record of today, with the day of others."""
    day, _, clock = str(entry["timestamp"]).rstrip("Z").partition("T")
    return clock if day == time.strftime("%Y-%m-%d", time.gmtime()) else f"{day} {clock}"


def _target(entry: Row) -> str:
    via = f" via {entry['parent']}" if entry.get("parent") else ""
    reason = f" ({entry['reason']})" if entry["reason"] else ""
    return f"{entry['target_url'] or '-'}{reason}{via}"


LINES = (
    Column("TIME (UTC)", _clock),
    Column("CODE", "status_code", right=True),
    *titled(("PROXY", "proxy_name"), ("CLIENT", "client_ip"), "user", "method"),
    Column("MS", "duration", right=True, spare=1),
    Column("IN", lambda entry: size(entry["bytes_in"]), right=True, spare=3),
    Column("OUT", lambda entry: size(entry["bytes_out"]), right=True, spare=2),
    Column("TARGET", _target),
)
"""Columns of a line; spare ones are left out if there is too little room for the target."""
TARGET_ROOM = 30
"""Cells of a terminal that are kept for the target before spare columns are printed."""
_DIM = ("TIME (UTC)", "MS", "IN", "OUT")


class RecordPrinter:
    """Prints records as JSON, as lines at a terminal, or with tabs in a pipe under one line of titles.

    Widths of lines only grow, so that later ones stay aligned with printed ones as far as possible.
    """

    def __init__(self, out: Output, width: int, data: Mapping[str, Any] = MappingProxyType({})) -> None:
        """`data` is the first response."""
        self._out = out
        self._room = width
        self._columns, self._line_columns = with_node(_COLUMNS, data), with_node(LINES, data)
        self._widths = [len(column.title) for column in self._line_columns]
        self._chosen: list[int] = []

    def titles(self) -> None:
        """Print titles in a pipe; at a terminal they precede the first records."""
        if self._out.format != "json" and not self._out.terminal:
            self._out.line("\t".join(column.title for column in self._columns))

    def add(self, entries: list[dict[str, Any]]) -> None:
        """Print these records."""
        if self._out.format == "json":
            self._out.lines(json.dumps(entry) for entry in entries)
        elif self._out.terminal:
            self._out.lines(self.lines(entries))
        else:
            self._out.lines("\t".join(column.cell(entry, plain=True) for column in self._columns) for entry in entries)

    def end(self) -> None:
        """Print a note about columns that were left out."""
        if self.left_out:
            self._out.note(f"Left out: {', '.join(self.left_out)} (the terminal is narrow).")

    def lines(self, entries: Sequence[dict[str, Any]]) -> Iterator[str]:
        """The lines of these records, with titles before the first ones."""
        rows = [[column.cell(entry) for column in self._line_columns] for entry in entries]
        wide = [[cell_width(cell) for cell in row] for row in rows]
        self._widths = [max(found) for found in zip(self._widths, *wide, strict=True)]
        if not self._chosen:
            widths = [*self._widths[:-1], TARGET_ROOM]
            self._chosen = fitting_columns(widths, [column.spare for column in self._line_columns], self._room)
            yield self._out.colour(self._line([column.title for column in self._line_columns]), DIM)
        for entry, row in zip(entries, rows, strict=True):
            yield self._line(row, entry)

    @property
    def left_out(self) -> list[str]:
        """Titles of the columns that were left out."""
        return [column.title for at, column in enumerate(self._line_columns) if self._chosen and at not in self._chosen]

    def _line(self, cells: Sequence[str], entry: Row | None = None) -> str:
        """The cells in a line, in colours for an `entry`; the last is not padded."""
        padded = []
        for at in self._chosen:
            column, text = self._line_columns[at], cells[at]
            room = " " * (self._widths[at] - cell_width(text)) if at < len(self._widths) - 1 else ""
            if entry is not None:
                text = self._out.colour(text, _colour(column.title, entry))
            padded.append(room + text if column.right else text + room)
        return (" " * GAP).join(padded)


def _colour(title: str, entry: Row) -> str | None:
    code = entry["status_code"]
    if title == "CODE":
        return BAD if code >= 500 else WARN if code >= 400 else None
    if title == "TARGET":
        return WARN if entry["reason"] else None
    return DIM if title in _DIM else None
