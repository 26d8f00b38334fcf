"""`proxyfleet logs`: what the proxies did."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from shutil import get_terminal_size
from typing import Annotated, Any, Literal

import typer

from api.cli.commands import WATCH, Session, command
from api.cli.errors import CommandError, Status
from api.cli.lookup import PROXY, find_id
from api.cli.quantities import Size
from api.cli.terminal.completion import proxy_names
from api.cli.terminal.output import Column
from api.cli.terminal.progress import progress
from api.cli.terminal.record_lines import RecordLines
from api.cli.time_options import PERIOD, SinceOption, UntilOption, ago

Level = Literal["debug", "info", "warning", "error", "critical"]

AGAIN = 1.0
"""Seconds between attempts while the API is away."""
BREATH = 1.0
"""Seconds between two requests while records come: what comes meanwhile is one response."""
PATIENCE = 20
"""Seconds that the API waits for a record before it says that there is none."""

_COLUMNS = (
    Column("TIME", "timestamp"),
    Column("LEVEL", "level"),
    Column("CLIENT", "client_ip"),
    Column("USER", "user"),
    Column("METHOD", "method"),
    Column("TARGET", "target_url"),
    Column("STATUS", "status_code", right=True),
    Column("MS", "duration", right=True),
    Column("IN", lambda row: Size(row["bytes_in"]), right=True),
    Column("OUT", lambda row: Size(row["bytes_out"]), right=True),
    Column("REASON", "reason"),
    Column("PARENT", "parent"),
    Column("PROXY", "proxy_name"),
)


_OPTIONS = {
    **PERIOD,
    "client_ip": "--client",
    "status_code": "--status",
    "status_class": "--status",
    "proxy_id": "--proxy",
}


def add_logs(app: typer.Typer) -> None:
    """Put `logs` into `app`."""
    command(app, "logs", _OPTIONS, rich_help_panel=WATCH)(logs)


def _one_or_the_other() -> CommandError:
    return CommandError(
        "--follow and --export don't go together",
        "An export has what is there now; for all that comes: proxyfleet logs -o json --follow",
        Status.USAGE,
    )


def logs(
    session: Session,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes, until Ctrl-C.")] = False,
    search: Annotated[str | None, typer.Option("--search", help="Words that must all occur.")] = None,
    proxy: Annotated[
        str | None, typer.Option("--proxy", help="Only of this proxy; a name or id.", autocompletion=proxy_names)
    ] = None,
    level: Annotated[Level | None, typer.Option("--level", help="Exactly this level.")] = None,
    min_level: Annotated[Level | None, typer.Option("--min-level", help="At least this level.")] = None,
    client: Annotated[str | None, typer.Option("--client", help="Only of this client address.")] = None,
    user: Annotated[str | None, typer.Option("--user", help="Only of this user of a proxy.")] = None,
    target: Annotated[str | None, typer.Option("--target", help="Only with this in the target.")] = None,
    method: Annotated[str | None, typer.Option("--method", help="Only with this method; CONNECT of tunnels.")] = None,
    status: Annotated[str | None, typer.Option("--status", help="Only with this status: 404, or 5xx.")] = None,
    reason: Annotated[str | None, typer.Option("--reason", help="Only with this reason, such as dns_error.")] = None,
    since: SinceOption = None,
    until: UntilOption = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="At most so many.")] = 100,
    export: Annotated[
        Path | None,
        typer.Option("--export", metavar="FILE", help="All of them into a file, a line of JSON each, newest first."),
    ] = None,
) -> None:
    """Show access records, oldest first; with -o json --follow one object on each line."""
    if follow and export is not None:
        raise _one_or_the_other()
    query = {
        "search": search,
        "proxy_id": find_id(session.api, PROXY, proxy) if proxy else None,
        "level": level,
        "min_level": min_level,
        "client_ip": client,
        "user": user,
        "target": target,
        "method": method.upper() if method else None,
        **_status(status),
        "reason": reason,
        "start_time": ago(since) if since else None,
        "end_time": ago(until, "--until") if until else None,
        "limit": limit,
    }
    if export is not None:
        _export(session, export, {name: value for name, value in query.items() if name != "limit"})
        return
    data = session.api.get("/logs", **query)
    data["logs"].reverse()
    if not follow:
        session.out.data(data, lambda: _show(session, data))
        return
    printer = _Printer(session)
    printer.titles()
    printer.add(data["logs"])
    of_tail = {**query, "limit": 1000, "start_time": None, "end_time": None, "timeout": PATIENCE}
    for entry in _following(session, of_tail, data["tail_cursor"]):
        printer.add([entry])


def _status(text: str | None) -> dict[str, str | None]:
    """The filter that `404` or `5xx` is. Raises `CommandError`."""
    if text is not None and not re.fullmatch(r"[1-5]([0-9]{2}|[xX]{2})", text, re.ASCII):
        raise CommandError(f"--status {text!r}: must be 100 to 599, or 1xx to 5xx", status=Status.USAGE)
    if text is None or text.isdigit():
        return {"status_code": text}
    return {"status_class": text.lower()}


def _export(session: Session, file: Path, query: dict[str, Any]) -> None:
    """Whole, or not at all under this name: a part of an export would be taken for all of it."""
    part = file.with_name(f".{file.name}.part")
    count = 0
    try:
        with progress(session.out, "Exporting") as told, part.open("wb") as out:
            for piece in session.api.stream("/logs/export", query):
                out.write(piece)
                count += piece.count(b"\n")
                told(out.tell(), None)
        part.replace(file)
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror or error}") from error
    finally:
        part.unlink(missing_ok=True)
    data = {"file": str(file), "records": count}
    session.out.data(data, lambda: session.out.message(f"{file}: {count} records"))


def _show(session: Session, data: dict[str, Any]) -> None:
    if not session.out.terminal:
        session.out.table(_COLUMNS, data["logs"])
    elif data["logs"]:
        printer = _Printer(session)
        printer.add(data["logs"])
        printer.end()
    else:
        session.out.note("There is no such record; --since 1d looks further back.")
    if data["has_more"]:
        total = f"{data['total']} or more" if data["total_is_lower_bound"] else str(data["total"])
        session.out.note(f"These are the last {len(data['logs'])} of {total}; --limit shows more.")


def _following(session: Session, query: dict[str, Any], cursor: str) -> Iterator[dict[str, Any]]:
    """Records that come, each once, in the order in which they are stored; also over a restart of the product."""
    told = False
    while True:
        try:
            data = session.api.call("GET", "/logs/tail", query={**query, "cursor": cursor}, timeout=2 * PATIENCE)
        except CommandError as trouble:
            pause = _until_again(trouble)
            if not told:
                session.out.note(f"{trouble.message}; trying again")
            told = True
            time.sleep(pause)
            continue
        told = False
        yield from data["logs"]
        cursor = data["next_cursor"]
        if data["logs"]:
            allowance = session.api.allowance
            time.sleep(allowance.pause(BREATH) if allowance else BREATH)


def _until_again(trouble: CommandError) -> float:
    """Seconds until it is worth trying again. Raises the trouble when it never is."""
    error = trouble.error or {}
    if error.get("code") == "RATE_LIMITED":
        return float(error.get("details", {}).get("retry_after", 60))
    if trouble.status is Status.UNREACHABLE or error.get("code") in ("INTERNAL_ERROR", "UNAVAILABLE"):
        return AGAIN
    raise trouble


class _Printer:
    """Prints records as they are wanted: JSON, lines at a terminal, or tabs in a pipe under one line of titles."""

    def __init__(self, session: Session) -> None:
        self._out = session.out
        self._lines = RecordLines(session.out, get_terminal_size().columns)

    def titles(self) -> None:
        """Where records follow in a pipe; a terminal has them above the first lines."""
        if self._out.form != "json" and not self._out.terminal:
            self._out.line("\t".join(column.title for column in _COLUMNS))

    def add(self, entries: list[dict[str, Any]]) -> None:
        """Print these."""
        if self._out.form == "json":
            self._out.lines(json.dumps(entry) for entry in entries)
        elif self._out.terminal:
            self._out.lines(self._lines.lines(entries))
        else:
            self._out.lines("\t".join(column.cell(entry, plain=True) for column in _COLUMNS) for entry in entries)

    def end(self) -> None:
        """Say what there was no room for."""
        if self._lines.left_out:
            self._out.note(f"Left out: {', '.join(self._lines.left_out)} (the terminal is narrow).")
