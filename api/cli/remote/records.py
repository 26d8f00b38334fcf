"""`proxyfleet logs`: access records of the proxies."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from shutil import get_terminal_size
from typing import Annotated, Any

import typer

from api.cli.commands import WATCH, Session, command
from api.cli.errors import CommandError, Status
from api.cli.lookup import PROXY, account_id, find_id
from api.cli.quantities import Size
from api.cli.request_body import is_stream
from api.cli.terminal.completion import proxy_names
from api.cli.terminal.output import Column
from api.cli.terminal.progress import progress
from api.cli.terminal.record_lines import RecordLines
from api.cli.time_options import SinceOption, UntilOption, ago
from config.model.choices import LogLevel

RETRY_SECONDS = 1.0
"""Between attempts while the API can't be reached."""
POLL_SECONDS = 1.0
"""Between two requests while records arrive; one response has all of the time between."""
LONG_POLL_SECONDS = 20
"""How long the API waits for a record before it responds without one."""

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
    Column("UPSTREAM", "parent"),
    Column("PROXY", "proxy_name"),
)
_RULE_COLUMNS = (Column("RULE", "value"), Column("RECORDS", "records", right=True))
_REPORTED = "reported"
"""The `reason` of all records of rules in report mode."""
RULES_COUNTED = 100

FILTERS: dict[str, Any] = {
    "search": Annotated[str | None, typer.Option("--search", help="Words that must all occur.")],
    "proxy_id": Annotated[
        str | None, typer.Option("--proxy", help="Only of this proxy; a name or id.", autocompletion=proxy_names)
    ],
    "level": Annotated[LogLevel | None, typer.Option("--level", help="Exactly this level.")],
    "min_level": Annotated[LogLevel | None, typer.Option("--min-level", help="At least this level.")],
    "client_ip": Annotated[str | None, typer.Option("--client", help="Only of this client address.")],
    "user": Annotated[str | None, typer.Option("--user", help="Only of this user of a proxy.")],
    "account": Annotated[str | None, typer.Option("--account", help="Only of this account; its user name or id.")],
    "credential": Annotated[str | None, typer.Option("--credential", help="Only with this credential; its id.")],
    "request_id": Annotated[str | None, typer.Option("--request-id", help="Only of the request with this id.")],
    "listen_port": Annotated[
        int | None, typer.Option("--listen-port", min=1, max=65535, help="Only at this port of the proxy.")
    ],
    "tls_name": Annotated[
        str | None, typer.Option("--tls-name", help="Only with this text in the name of the TLS handshake.")
    ],
    "alpn": Annotated[str | None, typer.Option("--alpn", help="Only with this protocol offered in the TLS handshake.")],
    "target": Annotated[str | None, typer.Option("--target", help="Only with this text in the target.")],
    "method": Annotated[str | None, typer.Option("--method", help="Only with this method; CONNECT of tunnels.")],
    "status_code": Annotated[str | None, typer.Option("--status", help="Only with this status: 404, or 5xx.")],
    "reason": Annotated[
        str | None,
        typer.Option(
            "--reason",
            help="Only with this reason, such as dns_error; reported: what rules in report mode would refuse, by rule.",
        ),
    ],
    "start_time": SinceOption,
    "end_time": UntilOption,
}
"""Options by the API's parameter."""


def add_commands(app: typer.Typer) -> None:
    """Add the command to `app`."""
    command(app, "logs", {"status_class": "--status"}, FILTERS, rich_help_panel=WATCH)(logs)


def logs(
    session: Session,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Continue with new records, until Ctrl-C.")] = False,
    *,
    fields: dict[str, Any],
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="The number of records at most.")] = 100,
    export: Annotated[
        Path | None,
        typer.Option(
            "--export",
            metavar="FILE",
            help="Write all into a file, a line of JSON each, newest first; - is standard output.",
        ),
    ] = None,
) -> None:
    """Show access records, oldest first; with -o json --follow one object on each line."""
    if follow and export is not None:
        hint = "An export has the records of now; for new ones: proxyfleet logs -o json --follow"
        raise CommandError("--follow and --export don't go together", hint, Status.USAGE)
    query = _query(session, fields)
    if export is not None:
        _export(session, export, query)
    elif follow:
        _follow(session, query, limit)
    else:
        data = _latest(session, query, limit)
        if query["reason"] == _REPORTED:
            data["rules"] = session.api.get("/logs/values", **query, field="rule", limit=RULES_COUNTED)["values"]
        session.out.data(data, lambda: _print(session, data))


def _query(session: Session, fields: dict[str, Any]) -> dict[str, Any]:
    """The API's parameters for the filters. Raises `CommandError`."""
    proxy, method, since, until = (fields[name] for name in ("proxy_id", "method", "start_time", "end_time"))
    account = fields["account"]
    return {
        **fields,
        "proxy_id": find_id(session.api, PROXY, proxy) if proxy else None,
        "account": account_id(session.api, account) if account else None,
        "method": method.upper() if method else None,
        **_status(fields["status_code"]),
        "start_time": ago(since) if since else None,
        "end_time": ago(until, "--until") if until else None,
    }


def _status(text: str | None) -> dict[str, str | None]:
    """The parameters for `404` or `5xx`. Raises `CommandError`."""
    if text is not None and not re.fullmatch(r"[1-5]([0-9]{2}|[xX]{2})", text, re.ASCII):
        raise CommandError(f"--status {text!r}: must be 100 to 599, or 1xx to 5xx", status=Status.USAGE)
    if text is None or text.isdigit():
        return {"status_code": text}
    return {"status_code": None, "status_class": text.lower()}


def _latest(session: Session, query: dict[str, Any], limit: int) -> dict[str, Any]:
    """The last records of the query, oldest first."""
    data: dict[str, Any] = session.api.get("/logs", **query, limit=limit)
    data["logs"].reverse()
    return data


def _export(session: Session, file: Path, query: dict[str, Any]) -> None:
    """Write the whole export, or no file of this name: a part would look like all of it."""
    if is_stream(file):
        session.out.stream(session.api.stream("/logs/export", query))
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
    session.out.done(data, f"{file}: {count} records")


def _print(session: Session, data: dict[str, Any]) -> None:
    """Print the latest records for people, with a note if there are more."""
    if not session.out.terminal:
        session.out.table(_COLUMNS, data["logs"])
    elif data["logs"]:
        printer = _Printer(session)
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
    printer = _Printer(session)
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
            limits = session.api.rate_limits
            time.sleep(limits.pause(POLL_SECONDS) if limits else POLL_SECONDS)


def _retry_after(failure: CommandError) -> float:
    """Seconds until the next attempt. Raises `failure` if another attempt can't succeed."""
    error = failure.error or {}
    if error.get("code") == "RATE_LIMITED":
        return float(error.get("details", {}).get("retry_after", 60))
    if failure.status is Status.UNREACHABLE or error.get("code") in ("INTERNAL_ERROR", "UNAVAILABLE"):
        return RETRY_SECONDS
    raise failure


class _Printer:
    """Prints records as JSON, as lines at a terminal, or with tabs in a pipe under one line of titles."""

    def __init__(self, session: Session) -> None:
        self._out = session.out
        self._lines = RecordLines(session.out, get_terminal_size().columns)

    def titles(self) -> None:
        """Print titles in a pipe; at a terminal they precede the first records."""
        if self._out.format != "json" and not self._out.terminal:
            self._out.line("\t".join(column.title for column in _COLUMNS))

    def add(self, entries: list[dict[str, Any]]) -> None:
        """Print these records."""
        if self._out.format == "json":
            self._out.lines(json.dumps(entry) for entry in entries)
        elif self._out.terminal:
            self._out.lines(self._lines.lines(entries))
        else:
            self._out.lines("\t".join(column.cell(entry, plain=True) for column in _COLUMNS) for entry in entries)

    def end(self) -> None:
        """Print a note about columns that were left out."""
        if self._lines.left_out:
            self._out.note(f"Left out: {', '.join(self._lines.left_out)} (the terminal is narrow).")
