"""`proxyfleet connections …`: live connections."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from api.cli.client import quoted
from api.cli.commands import Session, YesOption, add_alias, add_group, command, confirm
from api.cli.errors import CommandError, Status, combined
from api.cli.lookup import PROXY, find_id
from api.cli.quantities import Size, Span
from api.cli.terminal.completion import proxy_names
from api.cli.terminal.output import Column, counted

group = typer.Typer(help="Live connections.", no_args_is_help=True)

FILTERS: dict[str, Any] = {
    "client": Annotated[str | None, typer.Option("--client", help="Only of this address or network.")],
    "user": Annotated[str | None, typer.Option("--user", help="Only of this user.")],
    "account": Annotated[str | None, typer.Option("--account", help="Only of the account with this user name or id.")],
    "target": Annotated[str | None, typer.Option("--target", help="Only to targets that contain this text.")],
    "listen_port": Annotated[
        int | None, typer.Option("--listen-port", min=1, max=65535, help="Only at this port of the proxy.")
    ],
    "tls_name": Annotated[
        str | None, typer.Option("--tls-name", help="Only with this text in the name of the TLS handshake.")
    ],
    "alpn": Annotated[str | None, typer.Option("--alpn", help="Only with this protocol offered in the TLS handshake.")],
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


GROUPS = {
    "client": Column("CLIENT", "client"),
    "account": Column("ACCOUNT", "account"),
    "target": Column("TARGET", "target"),
    "proxy": Column("PROXY", "proxy"),
}
"""The first column by what connections are grouped by."""

COUNTS = (
    Column("CONNECTIONS", "count", right=True),
    Column("IN", lambda row: Size(row["bytes_in"]), right=True),
    Column("OUT", lambda row: Size(row["bytes_out"]), right=True),
)

ProxyArgument = Annotated[
    str | None,
    typer.Argument(metavar="PROXY", help="A name or id; by default all active ones.", autocompletion=proxy_names),
]


def add_commands(app: typer.Typer) -> None:
    """Add the group to `app`."""
    add_group(app, "connections", group)


@command(group, "list", fields=FILTERS)
def list_connections(
    session: Session,
    proxy: ProxyArgument = None,
    *,
    fields: dict[str, Any],
    group_by: Annotated[
        Literal["client", "account", "target", "proxy"] | None,
        typer.Option("--group-by", help="Count connections by this; the largest groups come first."),
    ] = None,
    sort: Annotated[
        str | None,
        typer.Option(
            "--sort",
            help="age, bytes_in, bytes_out, rate_in, rate_out, client, user, target; - reverses it. By default -age.",
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="The number of lines at most.")] = 100,
    offset: Annotated[int | None, typer.Option("--offset", min=0, help="How many to skip.")] = None,
) -> None:
    """List live connections, or count them by client, account, target or proxy."""
    page = {"group_by": group_by, "sort": sort, "limit": limit, "offset": offset}
    data = session.api.get("/connections", **fields, **_of(session, proxy), **page)
    nothing = "No connection matches."
    columns = COLUMNS if group_by is None else (GROUPS[group_by], *COUNTS)
    rows = data["connections" if group_by is None else "groups"]
    session.out.data(data, lambda: session.out.table(columns, rows, nothing))
    _refuse_partial(data)


@command(group, "end", fields=FILTERS)
def end_connections(
    session: Session,
    proxy: ProxyArgument = None,
    connection: Annotated[str | None, typer.Argument(metavar="ID", help="The id of a connection.")] = None,
    *,
    fields: dict[str, Any],
    everything: Annotated[bool, typer.Option("--all", help="All connections, of the proxy if there is one.")] = False,
    yes: YesOption = False,
) -> None:
    """Close one connection by its id, or, after a question, all that match the filters. Also called `kill`."""
    filtered = any(value is not None for value in fields.values())
    if (connection is not None) + filtered + everything != 1:
        raise CommandError("Which connections?", "Give an id, or filters such as --client, or --all", Status.USAGE)
    of_proxy = _of(session, proxy)
    if connection is not None:
        data = session.api.delete(f"/proxies/{of_proxy['proxy']}/connections/{quoted(connection)}")
        session.out.done(data, f"{connection} is closed.")
        return
    if not yes:
        matching = session.api.get("/connections", **fields, **of_proxy, limit=1)["total"]
        confirm(f"Close {counted(matching, 'connection')} of {proxy or 'all proxies'}?", yes)
    only_all = everything and proxy is None
    data = session.api.delete("/connections", **fields, **of_proxy, all="true" if only_all else None)
    session.out.done(data, f"{data['ended']} closed.")
    _refuse_partial(data)


add_alias(group, "kill", end_connections)


def _of(session: Session, proxy: str | None) -> dict[str, str]:
    """The parameter for one proxy."""
    return {} if proxy is None else {"proxy": find_id(session.api, PROXY, proxy)}


def _refuse_partial(data: dict[str, Any]) -> None:
    """Raises `CommandError` when a proxy did not reply, after the others' connections are printed."""
    silent = data["unavailable"]
    if silent:
        raise combined([(each["proxy"], CommandError(f"No reply: {each['error']}")) for each in silent])
