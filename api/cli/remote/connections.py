"""`proxyfleet connections …`: what is live."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from api.cli.client import quoted
from api.cli.commands import Session, YesOption, also_called, command
from api.cli.errors import CommandError, Status
from api.cli.lookup import PROXY, find
from api.cli.quantities import Size, Span
from api.cli.terminal.completion import proxy_names
from api.cli.terminal.output import Column, counted

group = typer.Typer(help="Live connections.", no_args_is_help=True)

ClientOption = Annotated[str | None, typer.Option("--client", help="Only of this address or network.")]
UserOption = Annotated[str | None, typer.Option("--user", help="Only of this user.")]
TargetOption = Annotated[str | None, typer.Option("--target", help="Only to targets with this in their name.")]
AgeOption = Annotated[int | None, typer.Option("--min-age", min=0, help="Only older than so many seconds.")]

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


@command(group, "list")
def list_connections(
    session: Session,
    proxy: Annotated[
        str | None,
        typer.Argument(metavar="PROXY", help="A name or id; all active ones unless said.", autocompletion=proxy_names),
    ] = None,
    client: ClientOption = None,
    user: UserOption = None,
    target: TargetOption = None,
    min_age: AgeOption = None,
    sort: Annotated[
        str,
        typer.Option(
            "--sort", help="age, bytes_in, bytes_out, rate_in, rate_out, client, user, target; - turns it round."
        ),
    ] = "-age",
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="At most so many of each proxy.")] = 100,
) -> None:
    """List live connections."""
    filters = {"client": client, "user": user, "target": target, "min_age": min_age, "sort": sort, "limit": limit}
    found, total = [], 0
    for one in _meant(session, proxy):
        data = session.api.get(f"/proxies/{one['id']}/connections", **filters)
        total += data["total"]
        found += [{"proxy": one["name"], **each} for each in data["connections"]]
    nothing = "There is no such connection."
    session.out.data({"connections": found, "total": total}, lambda: session.out.table(COLUMNS, found, nothing))


@command(group, "end")
def end_connections(
    session: Session,
    proxy: Annotated[str, typer.Argument(metavar="PROXY", help="Its name or id.", autocompletion=proxy_names)],
    connection: Annotated[str | None, typer.Argument(metavar="ID", help="The id of a connection.")] = None,
    client: ClientOption = None,
    user: UserOption = None,
    target: TargetOption = None,
    min_age: AgeOption = None,
    everything: Annotated[bool, typer.Option("--all", help="All of this proxy.")] = False,
    yes: YesOption = False,
) -> None:
    """End one connection by its id, or all that match the filters, which asks first. Also called `kill`."""
    found = find(session.api, PROXY, proxy)
    path = f"/proxies/{found['id']}/connections"
    filters = {"client": client, "user": user, "target": target, "min_age": min_age}
    filtered = any(value is not None for value in filters.values())
    if (connection is not None) + filtered + everything != 1:
        raise CommandError(
            "Which connections?", "Give either an id, or filters such as --client, or --all", Status.USAGE
        )
    if connection is not None:
        data = session.api.delete(f"{path}/{quoted(connection)}")
        session.out.data(data, lambda: session.out.message(f"{connection} is ended."))
        return
    if not yes:
        matching = session.api.get(path, **filters, limit=1)["total"]
        session.confirm(f"End {counted(matching, 'connection')} of {found['name']}?", yes)
    data = session.api.delete(path, **filters, all=True if everything else None)
    session.out.data(data, lambda: session.out.message(f"{data['ended']} ended."))


also_called(group, "kill", end_connections)


def _meant(session: Session, proxy: str | None) -> list[dict[str, Any]]:
    if proxy is not None:
        return [find(session.api, PROXY, proxy)]
    return list(session.api.pages("/proxies", "proxies", status="active"))
