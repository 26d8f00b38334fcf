"""`proxyfleet usage`: what accounts have used, by hour, day or month."""

from __future__ import annotations

from typing import Any

import typer

from api.cli.commands import WATCH, Given, Session, command
from api.cli.errors import CommandError, Status
from api.cli.options import choice, flag, option, text
from api.cli.quantities import moment_option
from api.cli.terminal.output import TRAFFIC, Column

GROUPS = ("account", "proxy", "plan", "tag")
_ACCOUNT = (Column("ACCOUNT", "account", spare=True), Column("USER", "username"))
_GROUPED = {
    "account": _ACCOUNT,
    "proxy": (Column("PROXY", "proxy"),),
    "plan": (Column("PLAN", "plan"),),
    "tag": (Column("TAG", "tag"),),
}
_FIGURES = (
    *TRAFFIC,
    Column("REQUESTS", "requests", right=True),
    Column("SECONDS", "connection_seconds", right=True),
    Column("REFUSALS", "refusals", right=True),
)


def _groups(given: str) -> list[str]:
    """The groups in the order of the API's columns. Raises `CommandError`."""
    wanted = {each.strip() for each in given.split(",")}
    if not wanted <= {*GROUPS}:
        unknown = ", ".join(sorted(wanted - {*GROUPS}))
        raise CommandError(f"--group-by {unknown!r}: must be of {', '.join(GROUPS)}", status=Status.USAGE)
    return [each for each in GROUPS if each in wanted]


_FROM = "From the interval of this time on: 7d ago, 2030-01-31; by default 31 days before."
_USAGE = {
    "from": moment_option("--from", _FROM),
    "to": moment_option("--to", "Up to the interval of this time; by default now."),
    "interval": choice("--interval", "The width of the intervals, of UTC.", ("hour", "day", "month"), default="day"),
    "group_by": option(
        str,
        "--group-by",
        f"Of {', '.join(GROUPS)}; several with commas.",
        metavar="GROUPS",
        default="account",
        parse=_groups,
    ),
    "as_csv": flag("--csv", "CSV on standard output, complete and with plain bytes."),
    "metadata": text("--metadata", "Metadata of accounts as columns of CSV; * for all.", metavar="NAMES"),
}


def add_commands(app: typer.Typer) -> None:
    """Add the command to `app`."""
    command(app, "usage", _USAGE, {name: f"--{name}" for name in ("from", "to", "interval")}, rich_help_panel=WATCH)(
        usage
    )


def usage(session: Session, fields: Given, group_by: list[str], as_csv: bool, metadata: str | None) -> None:
    """Show what accounts have used, a row for each interval and group with any usage; --csv is for bills."""
    query = {**fields, "group_by": ",".join(group_by)}
    if as_csv:
        _write_csv(session, {**query, "metadata": metadata})
        return
    if metadata is not None:
        raise CommandError("--metadata is for --csv", status=Status.USAGE)
    data = session.api.get("/usage", **query)
    columns = (Column("FROM", "from", whole=True), *(each for group in group_by for each in _GROUPED[group]), *_FIGURES)
    session.out.data(data, lambda: session.out.table(columns, data["usage"], "Nothing was used in this time."))


def _write_csv(session: Session, query: dict[str, Any]) -> None:
    """Write the response while it is received."""
    if session.out.format == "json":
        raise CommandError("--csv and -o json don't go together", status=Status.USAGE)
    session.out.stream(session.api.stream("/usage", {**query, "format": "csv"}))
