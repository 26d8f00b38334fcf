"""`proxyfleet connections …`: live connections."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from api.cli.client import quoted
from api.cli.commands import Session, YesOption, add_alias, command, confirm
from api.cli.errors import CommandError, Status
from api.cli.lookup import PROXY, find
from api.cli.quantities import Size, Span
from api.cli.terminal.completion import proxy_names
from api.cli.terminal.output import Column, counted

group = typer.Typer(help="Live connections.", no_args_is_help=True)

FILTERS: dict[str, Any] = {
    "client": Annotated[str | None, typer.Option("--client", help="Only of this address or network.")],
    "user": Annotated[str | None, typer.Option("--user", help="Only of this user.")],
    "target": Annotated[str | None, typer.Option("--target", help="Only to targets that contain this text.")],
    "min_age": Annotated[int | None, typer.Option("--min-age", min=0, help="Only older than so many seconds.")],
}
"""Options by the API's parameter."""

COLUMNS = (
    Column("PROXY", "proxy"),
    Column("CLIENT", "client"),
    Column("USER", "user"),
    Column("TARGET", "target"),
    Column("STATE", "state", spare=True),
    Column("AGE", lambda row: Span(row["age"]), right=True),
    Column("IN", lambda row: Size(row["bytes_in"]), right=True),
    Column("OUT", lambda row: Size(row["bytes_out"]), right=True),
    Column("IN/S", lambda row: Size(row["rate_in"]), right=True, spare=True),
    Column("OUT/S", lambda row: Size(row["rate_out"]), right=True, spare=True),
    Column("ID", "id", whole=True),
)


@command(group, "list", fields=FILTERS)
def list_connections(
    session: Session,
    proxy: Annotated[
        str | None,
        typer.Argument(metavar="PROXY", help="A name or id; by default all active ones.", autocompletion=proxy_names),
    ] = None,
    *,
    fields: dict[str, Any],
    sort: Annotated[
        str,
        typer.Option(
            "--sort", help="age, bytes_in, bytes_out, rate_in, rate_out, client, user, target; - reverses it."
        ),
    ] = "-age",
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="The number for each proxy at most.")] = 100,
) -> None:
    """List live connections."""
    found, total = [], 0
    for one in _proxies(session, proxy):
        data = session.api.get(f"/proxies/{one['id']}/connections", **fields, sort=sort, limit=limit)
        total += data["total"]
        found += [{"proxy": one["name"], **each} for each in data["connections"]]
    nothing = "No connection matches."
    session.out.data({"connections": found, "total": total}, lambda: session.out.table(COLUMNS, found, nothing))


@command(group, "end", fields=FILTERS)
def end_connections(
    session: Session,
    proxy: Annotated[str, typer.Argument(metavar="PROXY", help="Its name or id.", autocompletion=proxy_names)],
    connection: Annotated[str | None, typer.Argument(metavar="ID", help="The id of a connection.")] = None,
    *,
    fields: dict[str, Any],
    everything: Annotated[bool, typer.Option("--all", help="All connections of the proxy.")] = False,
    yes: YesOption = False,
) -> None:
    """Close one connection by its id, or, after a question, all that match the filters. Also called `kill`."""
    found = find(session.api, PROXY, proxy)
    path = f"/proxies/{found['id']}/connections"
    filtered = any(value is not None for value in fields.values())
    if (connection is not None) + filtered + everything != 1:
        raise CommandError("Which connections?", "Give an id, or filters such as --client, or --all", Status.USAGE)
    if connection is not None:
        data = session.api.delete(f"{path}/{quoted(connection)}")
        session.out.done(data, f"{connection} is closed.")
        return
    if not yes:
        matching = session.api.get(path, **fields, limit=1)["total"]
        confirm(f"Close {counted(matching, 'connection')} of {found['name']}?", yes)
    data = session.api.delete(path, **fields, all=True if everything else None)
    session.out.done(data, f"{data['ended']} closed.")


add_alias(group, "kill", end_connections)


def _proxies(session: Session, proxy: str | None) -> list[dict[str, Any]]:
    if proxy is not None:
        return [find(session.api, PROXY, proxy)]
    return list(session.api.pages("/proxies", "proxies", status="active"))
