"""`proxyfleet dns`: what the resolver has cached."""

from __future__ import annotations

from typing import Annotated

import typer

from api.cli.commands import Session, add_group, command
from api.cli.terminal.output import Column

group = typer.Typer(help="Show and drop names that the resolver has cached.")

COLUMNS = (
    Column("NAME", "name", whole=True),
    Column("TYPE", "type"),
    Column("STATUS", "status"),
    Column("TTL", lambda entry: f"{entry['ttl']:.0f} s", right=True),
    Column("ADDRESSES", lambda entry: ", ".join(entry["addresses"]) or entry["detail"] or "-"),
    Column("SERVERS", lambda entry: ", ".join(entry["servers"]) or "system", spare=True),
)

OptionalName = Annotated[str | None, typer.Argument(metavar="NAME", help="Only this name.", show_default=False)]


def add_commands(app: typer.Typer) -> None:
    """Add the group to `app`."""
    add_group(app, "dns", group)


@command(group, "cache")
def show_cache(
    session: Session,
    name: OptionalName = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="Entries at most.")] = 100,
) -> None:
    """Show cached names, used last first, or one of them."""
    data = session.api.get("/dns/cache", name=name, limit=limit)
    session.out.data(data, lambda: session.out.table(COLUMNS, data["entries"], "Nothing is cached."))


@command(group, "flush")
def flush_cache(session: Session, name: OptionalName = None) -> None:
    """Drop a name, or all names, in the resolver and in all proxies."""
    data = session.api.delete("/dns/cache", name=name)
    session.out.data(data, lambda: session.out.line(f"Dropped {data['dropped']} cached results."))
