"""`proxyfleet connections …`: live connections; `proxyfleet dns …`: what the resolver has cached."""

from __future__ import annotations

from typing import Any

from api.cli.client import quoted
from api.cli.commands import YES, Given, Session, command, confirm, new_group
from api.cli.errors import CommandError, Status, combined
from api.cli.options import OF_LISTENING, PROXY, argument, choice, find_id, flag, number, text
from api.cli.quantities import size, span
from api.cli.terminal import TRAFFIC, Column, counted, titled

group = new_group("connections", "Live connections.")

FILTERS = {
    "client": text("--client", "Only of this address or network."),
    "user": text("--user", "Only of this user."),
    "account": text("--account", "Only of the account with this user name or id."),
    "target": text("--target", "Only to targets that contain this text."),
    **OF_LISTENING,
    "min_age": number("--min-age", "Only older than so many seconds.", min=0),
}
"""Options by the API's parameter."""

COLUMNS = (
    *titled("proxy", "client", "user", "target"),
    Column("STATE", "state", spare=True),
    Column("AGE", lambda row: span(row["age"]), right=True),
    *TRAFFIC,
    Column("IN/S", lambda row: size(row["rate_in"]), right=True, spare=True),
    Column("OUT/S", lambda row: size(row["rate_out"]), right=True, spare=True),
    Column("ID", "id", whole=True),
)


GROUPS = {name: titled(name) for name in ("client", "account", "target", "proxy")}
"""The first column by what connections are grouped by."""

COUNTS = (
    Column("CONNECTIONS", "count", right=True),
    *TRAFFIC,
)

_WHICH = "A name or id; by default all active ones."


_LIST = {
    "proxy": argument("PROXY", _WHICH, of=PROXY, default=None),
    **FILTERS,
    "group_by": choice("--group-by", "Count connections by this; the largest groups come first.", tuple(GROUPS)),
    "sort": text(
        "--sort",
        "age, bytes_in, bytes_out, rate_in, rate_out, client, user, target; - reverses it. By default -age.",
    ),
    "limit": number("--limit", "The number of lines at most.", default=100, min=1, max=1000),
    "offset": number("--offset", "How many to skip.", min=0),
}


@command(group, "list", _LIST)
def list_connections(session: Session, fields: Given) -> None:
    """List live connections, or count them by client, account, target or proxy."""
    data, group_by = session.api.get("/connections", **fields), fields["group_by"]
    columns = COLUMNS if group_by is None else (*GROUPS[group_by], *COUNTS)
    rows = data["connections" if group_by is None else "groups"]
    session.out.data(data, lambda: session.out.table(columns, rows, "No connection matches."))
    _refuse_partial(data)


_END = {
    "proxy": argument("PROXY", _WHICH, complete=PROXY, default=None),
    "connection": argument("ID", "The id of a connection.", default=None),
    **FILTERS,
    "everything": flag("--all", "All connections, of the proxy if there is one."),
    "yes": YES,
}


@command(group, "end", _END, aliases=("kill",))
def end_connections(
    session: Session, proxy: str | None, connection: str | None, fields: Given, everything: bool, yes: bool
) -> None:
    """Close one connection by its id, or, after a question, all that match the filters. Also called `kill`."""
    filtered = any(value is not None for value in fields.values())
    if (connection is not None) + filtered + everything != 1:
        raise CommandError("Which connections?", "Give an id, or filters such as --client, or --all", Status.USAGE)
    of_proxy = {} if proxy is None else {"proxy": find_id(session.api, PROXY, proxy)}
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


def _refuse_partial(data: dict[str, Any]) -> None:
    """Raises `CommandError` when a proxy did not reply, after the others' connections are printed."""
    silent = data["unavailable"]
    if silent:
        raise combined([(each["proxy"], CommandError(f"No reply: {each['error']}")) for each in silent])


# --- names that the resolver has cached ---

dns = new_group("dns", "Show and drop names that the resolver has cached.")
DNS_COLUMNS = (
    Column("NAME", "name", whole=True),
    *titled("type", "status"),
    Column("TTL", lambda entry: f"{entry['ttl']:.0f} s", right=True),
    Column("ADDRESSES", lambda entry: ", ".join(entry["addresses"]) or entry["detail"] or "-"),
    Column("SERVERS", lambda entry: ", ".join(entry["servers"]) or "system", spare=True),
)
_NAME = {"name": argument("NAME", "Only this name.", default=None)}


@command(dns, "cache", {**_NAME, "limit": number("--limit", "Entries at most.", default=100, min=1, max=1000)})
def show_cache(session: Session, fields: Given) -> None:
    """Show cached names, used last first, or one of them."""
    data = session.api.get("/dns/cache", **fields)
    session.out.data(data, lambda: session.out.table(DNS_COLUMNS, data["entries"], "Nothing is cached."))


@command(dns, "flush", _NAME)
def flush_cache(session: Session, name: str | None) -> None:
    """Drop a name, or all names, in the resolver and in all proxies."""
    data = session.api.delete("/dns/cache", name=name)
    session.out.data(data, lambda: session.out.line(f"Dropped {data['dropped']} cached results."))
