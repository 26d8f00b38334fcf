"""`proxyfleet usage`: what accounts have used, by hour, day or month."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from api.cli.commands import WATCH, Session, command
from api.cli.errors import CommandError, Status
from api.cli.quantities import Size
from api.cli.terminal.output import Column
from api.cli.time_options import ago

GROUPS = ("account", "proxy", "plan", "tag")
OPTIONS = {"from": "--from", "to": "--to", "interval": "--interval", "group_by": "--group-by", "metadata": "--metadata"}
"""The options by the API's parameters."""

_ACCOUNT = (Column("ACCOUNT", "account", spare=True), Column("USER", "username"))
_GROUPED = {
    "account": _ACCOUNT,
    "proxy": (Column("PROXY", "proxy"),),
    "plan": (Column("PLAN", "plan"),),
    "tag": (Column("TAG", "tag"),),
}
_FIGURES = (
    Column("IN", lambda row: Size(row["bytes_in"]), right=True),
    Column("OUT", lambda row: Size(row["bytes_out"]), right=True),
    Column("REQUESTS", "requests", right=True),
    Column("SECONDS", "connection_seconds", right=True),
    Column("REFUSALS", "refusals", right=True),
)


def add_commands(app: typer.Typer) -> None:
    """Add the command to `app`."""
    command(app, "usage", OPTIONS, rich_help_panel=WATCH)(usage)


def usage(
    session: Session,
    start: Annotated[
        str | None,
        typer.Option(
            "--from", help="From the interval of this time on: 7d ago, 2030-01-31; by default 31 days before."
        ),
    ] = None,
    end: Annotated[str | None, typer.Option("--to", help="Up to the interval of this time; by default now.")] = None,
    interval: Annotated[
        Literal["hour", "day", "month"], typer.Option("--interval", help="The width of the intervals, of UTC.")
    ] = "day",
    group_by: Annotated[
        str, typer.Option("--group-by", metavar="GROUPS", help=f"Of {', '.join(GROUPS)}; several with commas.")
    ] = "account",
    as_csv: Annotated[
        bool, typer.Option("--csv", help="CSV on standard output, complete and with plain bytes.")
    ] = False,
    metadata: Annotated[
        str | None,
        typer.Option("--metadata", metavar="NAMES", help="Metadata of accounts as columns of CSV; * for all."),
    ] = None,
) -> None:
    """Show what accounts have used, a row for each interval and group with any usage; --csv is for bills."""
    groups = _groups(group_by)
    query = {
        "from": ago(start, "--from") if start else None,
        "to": ago(end, "--to") if end else None,
        "interval": interval,
        "group_by": ",".join(groups),
    }
    if as_csv:
        _write_csv(session, {**query, "metadata": metadata})
        return
    if metadata is not None:
        raise CommandError("--metadata is for --csv", status=Status.USAGE)
    data = session.api.get("/usage", **query)
    columns = (Column("FROM", "from", whole=True), *(each for group in groups for each in _GROUPED[group]), *_FIGURES)
    session.out.data(data, lambda: session.out.table(columns, data["usage"], "Nothing was used in this time."))


def _groups(text: str) -> list[str]:
    """The groups in the order of the API's columns. Raises `CommandError`."""
    given = {each.strip() for each in text.split(",")}
    if not given <= {*GROUPS}:
        unknown = ", ".join(sorted(given - {*GROUPS}))
        raise CommandError(f"--group-by {unknown!r}: must be of {', '.join(GROUPS)}", status=Status.USAGE)
    return [each for each in GROUPS if each in given]


def _write_csv(session: Session, query: dict[str, Any]) -> None:
    """Write the response while it is received."""
    if session.out.format == "json":
        raise CommandError("--csv and -o json don't go together", status=Status.USAGE)
    session.out.stream(session.api.stream("/usage", {**query, "format": "csv"}))
