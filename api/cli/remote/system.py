"""`proxyfleet search`, `status`, `metrics`, `usage`, `settings …`, `connections …` and `dns …`: what there is, the
running system, what goes through it now, and what accounts have used."""

from __future__ import annotations

from typing import Any

import typer

from api.cli.client import quoted
from api.cli.commands import TOP, WATCH, YES, Given, Session, command, confirm, new_group
from api.cli.documents import body_of
from api.cli.errors import CommandError, Status, combined
from api.cli.options import (
    ACCOUNT,
    NODE,
    OF_LISTENING,
    OF_NODE,
    PROXY,
    argument,
    choice,
    find_id,
    flag,
    number,
    option,
    text,
    texts,
)
from api.cli.quantities import SINCE, UNTIL, moment_option, size, span, with_decimal_units
from api.cli.terminal import CHANGED, TRAFFIC, Column, Row, cell_text, print_sources, titled, with_node
from config.text.formatting import counted

settings_group = new_group("settings", "System settings.")


_SEARCH = {
    "q": argument("WORD", "A part of a name, an id, an address, a tag or a key of the settings."),
    "kinds": texts(
        "--kind", "Only of this kind, such as proxy, account or host; may be given several times.", parse=",".join
    ),
    "limit": number("--limit -n", "How many of each kind at most.", default=5, min=1, max=50),
}
_FOUND = titled("kind", "name", "detail", "id")


@command(TOP, "search", _SEARCH, {"kinds": "--kind"}, rich_help_panel=WATCH)
def search(session: Session, fields: Given) -> None:
    """Find what has a word in its name: objects of all kinds, hosts of the last hour, settings."""
    data = session.api.get("/search", **fields)
    session.out.data(data, lambda: session.out.table(_FOUND, data["results"], "Nothing has this word."))
    session.out.note_missing(data)
    if data["more"]:
        session.out.note(f"There are more of: {', '.join(data['more'])}; --limit shows them.")


@command(TOP, "status", rich_help_panel=WATCH)
def status(session: Session) -> None:
    """Show health and load of the product; ends with 1 if it is unhealthy."""
    report, status_data = session.api.get("/health"), session.api.get("/status")
    checks = [(name.replace("_", " "), _check(check)) for name, check in report["checks"].items()]
    server, proxy, network = status_data["server"], status_data["proxy"], status_data["network"]
    memory = server["memory"]
    pairs = [
        ("status", report["status"]),
        ("version", report["version"] + " (compiled)" * server.get("compiled", False)),
        ("uptime", span(report["uptime_seconds"])),
        *([("lab", "the egress guard is open for loopback (serve --lab)")] if server.get("lab") else []),
        *checks,
        ("processors", f"{server['cpu']['usage']} of the machine"),
        ("process", server["pid"]),
        *([("older processes", _older(server["older_processes"]))] if server.get("older_processes") else []),
        (f"own memory ({memory['measure']})", size(memory["used_bytes"])),
        ("proxies", _proxies(proxy)),
        ("connections", proxy["active_connections"]),
        ("requests", proxy["total_requests"]),
        ("requests/s", proxy["requests_per_second"]),
        ("error rate", proxy["error_rate"]),
        ("in/s", size(network["bandwidth_in_bytes"], per_second=True)),
        ("out/s", size(network["bandwidth_out_bytes"], per_second=True)),
        ("in", size(network["bytes_in"])),
        ("out", size(network["bytes_out"])),
        *(("problem", _problem(each)) for each in status_data.get("problems", ())),
    ]
    session.out.data({"health": report, "status": status_data}, lambda: session.out.details(pairs))
    if report["status"] == "unhealthy":
        raise typer.Exit(int(Status.FAILED))


def _proxies(proxy: dict[str, Any]) -> str:
    """How many proxies should run, and how many do."""
    text = f"{proxy['active_proxies']} of {proxy['wanted_proxies']} run"
    counts = [f"{proxy[f'{word}_proxies']} {word}" for word in ("degraded", "failed") if proxy[f"{word}_proxies"]]
    return f"{text} ({', '.join(counts)})" if counts else text


def _older(older: dict[str, Any]) -> str:
    open_ = counted(older["connections"], "open connection")
    return f"{older['processes']} with {open_}, until {older['until']} at the latest"


def _problem(each: dict[str, Any]) -> str:
    port = f" ({each['port']})" if each["port"] else ""
    return f"{each['resource']} {each['name']}{port}: {each['reason']}: {each['error']}"


OWN_LINES = ("status", "active_proxies", "wanted_proxies", "degraded_proxies", "failed_proxies", "reasons", "failing")
"""Members of checks that other lines show."""


def _check(check: dict[str, Any]) -> str:
    texts = {name: with_decimal_units(cell_text(value)) for name, value in check.items() if name not in OWN_LINES}
    rest = ", ".join(f"{name.replace('_', ' ')} {text}" for name, text in texts.items() if text != "-")
    return f"{check['status']} ({rest})" if rest else str(check["status"])


_METRICS = {
    "metrics": argument("METRIC", "Names such as error_rate; by default all.", list[str], default=None),
    "interval": choice("--interval", "The width of a bucket.", ("1m", "5m", "1h", "1d"), default="5m"),
    "proxy_id": text("--proxy", "Only of this proxy; a name or id.", of=PROXY),
    **SINCE,
    **UNTIL,
    **OF_NODE,
    "now": flag("--now", "The current values only."),
}


@command(TOP, "metrics", _METRICS, {"metrics": "METRIC"}, rich_help_panel=WATCH)
def show_metrics(session: Session, metrics: list[str] | None, fields: Given, now: bool) -> None:
    """Show metrics over time, one row for each bucket."""
    if now:
        if any(fields[name] for name in ("proxy_id", "start_time", "end_time")):
            raise CommandError(
                "--now shows all proxies and the current values",
                "Leave out either --now or the other options",
                Status.USAGE,
            )
        _snapshot(session, metrics or [], fields["node"])
        return
    data = session.api.get("/metrics", metrics=",".join(metrics) if metrics else None, **fields)
    columns, rows = _by_moment(data["metrics"])
    session.out.data(data, lambda: session.out.table(columns, rows, "There are no values in this period."))
    session.out.note_missing(data)


def _snapshot(session: Session, names: list[str], node: str | None) -> None:
    data = session.api.get("/metrics/realtime", node=node)
    unknown = [name for name in names if name not in data["metrics"]]
    if unknown:
        raise CommandError(
            f"There is no current value of {unknown[0]!r}",
            f"Metrics with one: {', '.join(data['metrics'])}",
            Status.USAGE,
        )
    if names:
        data["metrics"] = {name: data["metrics"][name] for name in names}
    session.out.data(data, lambda: session.out.details([("time", data["timestamp"]), *data["metrics"].items()]))
    session.out.note_missing(data)


def _by_moment(series: dict[str, list[dict[str, Any]]]) -> tuple[list[Column], list[Row]]:
    """Series as a table: a row for each bucket, a column for each metric."""
    rows: dict[str, dict[str, Any]] = {}
    for name, points in series.items():
        for point in points:
            rows.setdefault(point["timestamp"], {"timestamp": point["timestamp"]})[name] = point["value"]
    columns = [Column("TIME", "timestamp"), *(Column(name, name, right=True, spare=True) for name in series)]
    return columns, [rows[moment] for moment in sorted(rows)]


SETTINGS_COLUMNS = (Column("SETTING", "name"), Column("VALUE", "value"))


_OF_NODE = {"node": text("--node", "Those of this node of a fleet alone.", complete=NODE)}


@command(settings_group, "show", _OF_NODE)
def show_settings(session: Session, node: str | None) -> None:
    """Show the effective settings that the API can change."""
    data = session.api.get("/settings", node=node)
    session.out.data(data, lambda: session.out.table(SETTINGS_COLUMNS, _flat(data)))


@command(settings_group, "sources", {"changed": CHANGED})
def show_sources(session: Session, changed: bool) -> None:
    """Show where the value of each key of the configuration comes from, and what a change of it needs.

    CHANGE is at once (proxyfleet settings set), reload of the configuration, or restart of the product.
    """
    print_sources(session.out, "settings", session.api.get("/settings/sources")["settings"], changed)


_SET = {"values": argument("GROUP.KEY=VALUE", "Such as logging.level=debug", list[str]), **_OF_NODE}
_UNSET = {"names": argument("GROUP.KEY", "Such as logging.level", list[str]), **_OF_NODE}


@command(settings_group, "set", _SET)
def set_settings(session: Session, values: list[str], node: str | None) -> None:
    """Change settings; they apply at once and override the configuration."""
    for value in values:
        if not value.partition("=")[1]:
            raise CommandError(f"{value}: must be GROUP.KEY=VALUE", "Such as logging.level=debug", Status.USAGE)
    body = body_of({"set_": values})
    try:
        data = session.api.call("PATCH", "/settings", {"node": node}, body)
    except CommandError as error:
        if any(problem == "is not a known field" for _field, problem in error.problems):
            error.hint = (
                "Settings that can change: proxyfleet settings show; others belong in the configuration file or the "
                "environment"
            )
        raise
    _print_of(session, data, [value.partition("=")[0] for value in values])


@command(settings_group, "unset", _UNSET)
def unset_settings(session: Session, names: list[str], node: str | None) -> None:
    """Remove settings that the API has changed, while the product runs; the configuration applies again."""
    for name in names:
        data = session.api.delete(f"/settings/{quoted(name)}", node=node)
    _print_of(session, data, names)


def _print_of(session: Session, data: dict[str, Any], names: list[str]) -> None:
    """Print these settings as they are now; for programs all of them."""
    changed = [each for each in _flat(data) if each["name"] in names]
    session.out.data(data, lambda: session.out.table(SETTINGS_COLUMNS, changed))


def _flat(groups: dict[str, dict[str, Any]]) -> list[Row]:
    return [{"name": f"{group}.{key}", "value": value} for group, keys in groups.items() for key, value in keys.items()]


# --- usage ---

GROUPS = ("account", "proxy", "plan", "quota", "tag", "node")
_ACCOUNT = (Column("ACCOUNT", "account", spare=True), Column("USER", "username"))
_GROUPED = {
    "account": _ACCOUNT,
    "proxy": (Column("PROXY ID", "proxy", spare=True), Column("PROXY", "proxy_name")),
    "plan": (Column("PLAN", "plan"),),
    "quota": (
        Column("QUOTA", lambda row: row["quota"] and size(row["quota"], is_setting=True), right=True),
        Column("PERIOD", "quota_period"),
    ),
    "tag": (Column("TAG", "tag"),),
    "node": (Column("NODE", "node"),),
}
_FIGURES = (*TRAFFIC, *titled("requests", ("SECONDS", "connection_seconds"), "refusals", right=True))


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
    "interval": choice(
        "--interval",
        "The width of the intervals, of UTC; total is one.",
        ("hour", "day", "month", "total"),
        default="day",
    ),
    "group_by": option(
        str,
        "--group-by",
        f"Of {', '.join(GROUPS)}; several with commas.",
        metavar="GROUPS",
        default="account",
        parse=_groups,
    ),
    "as_csv": flag("--csv", "CSV on standard output, complete and with plain bytes."),
    "account": text("--account", "Only of this account; its user name or id.", complete=ACCOUNT),
    "metadata": text("--metadata", "Metadata of accounts as columns of CSV; * for all.", metavar="NAMES"),
}


@command(TOP, "usage", _USAGE, {name: f"--{name}" for name in ("from", "to", "interval")}, rich_help_panel=WATCH)
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


connections = new_group("connections", "Live connections.")

OF_CONNECTIONS = {
    "client": text("--client", "Only of this address or network."),
    "user": text("--user", "Only of this user."),
    "account": text("--account", "Only of the account with this user name or id."),
    "target": text("--target", "Only to targets that contain this text."),
    **OF_LISTENING,
    "min_age": number("--min-age", "Only older than so many seconds.", min=0),
    **OF_NODE,
}
"""Options by the API's parameter."""

CONNECTIONS = (
    *titled("proxy", "client", "user", "target"),
    Column("STATE", "state", spare=True),
    Column("AGE", lambda row: span(row["age"]), right=True),
    *TRAFFIC,
    Column("IN/S", lambda row: size(row["rate_in"]), right=True, spare=True),
    Column("OUT/S", lambda row: size(row["rate_out"]), right=True, spare=True),
    Column("ID", "id", whole=True),
)


COUNTED_BY = {name: titled(name) for name in ("client", "account", "target", "proxy")}
"""The first column by what connections are grouped by."""

COUNTS = (Column("CONNECTIONS", "count", right=True), *TRAFFIC)

_WHICH = "A name or id; by default all active ones."


_CONNECTIONS = {
    "proxy": argument("PROXY", _WHICH, of=PROXY, default=None),
    **OF_CONNECTIONS,
    "group_by": choice("--group-by", "Count connections by this; the largest groups come first.", tuple(COUNTED_BY)),
    "sort": text(
        "--sort", "age, bytes_in, bytes_out, rate_in, rate_out, client, user, target; - reverses it. By default -age."
    ),
    "limit": number("--limit", "The number of lines at most.", default=100, min=1, max=1000),
    "offset": number("--offset", "How many to skip.", min=0),
}


@command(connections, "list", _CONNECTIONS)
def list_connections(session: Session, fields: Given) -> None:
    """List live connections, or count them by client, account, target or proxy."""
    data, group_by = session.api.get("/connections", **fields), fields["group_by"]
    columns = with_node(CONNECTIONS, data) if group_by is None else (*COUNTED_BY[group_by], *COUNTS)
    rows = data["connections" if group_by is None else "groups"]
    session.out.data(data, lambda: session.out.table(columns, rows, "No connection matches."))
    session.out.note_missing(data)
    _refuse_partial(data)


_END_CONNECTIONS = {
    "proxy": argument("PROXY", _WHICH, complete=PROXY, default=None),
    "connection": argument("ID", "The id of a connection.", default=None),
    **OF_CONNECTIONS,
    "everything": flag("--all", "All connections, of the proxy if there is one."),
    "yes": YES,
}


@command(connections, "end", _END_CONNECTIONS, aliases=("kill",))
def end_connections(
    session: Session, proxy: str | None, connection: str | None, fields: Given, everything: bool, yes: bool
) -> None:
    """Close one connection by its id, or, after a question, all that match the filters. Also called `kill`."""
    filtered = any(value is not None for name, value in fields.items() if name != "node")
    if (connection is not None) + filtered + everything != 1:
        raise CommandError("Which connections?", "Give an id, or filters such as --client, or --all", Status.USAGE)
    of_proxy = {} if proxy is None else {"proxy": find_id(session.api, PROXY, proxy)}
    if connection is not None:
        data = session.api.delete(f"/proxies/{of_proxy['proxy']}/connections/{quoted(connection)}", node=fields["node"])
        session.out.done(data, f"{connection} is closed.")
        return
    if not yes:
        matching = session.api.get("/connections", **fields, **of_proxy, limit=1)["total"]
        confirm(f"Close {counted(matching, 'connection')} of {proxy or 'all proxies'}?", yes)
    only_all = everything and proxy is None
    data = session.api.delete("/connections", **fields, **of_proxy, all="true" if only_all else None)
    session.out.done(data, f"{data['ended']} closed.")
    session.out.note_missing(data)
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
_NAME = {"name": argument("NAME", "Only this name.", default=None), **OF_NODE}


@command(dns, "cache", {**_NAME, "limit": number("--limit", "Entries at most.", default=100, min=1, max=1000)})
def show_cache(session: Session, fields: Given) -> None:
    """Show cached names, used last first, or one of them."""
    data = session.api.get("/dns/cache", **fields)
    session.out.data(
        data, lambda: session.out.table(with_node(DNS_COLUMNS, data), data["entries"], "Nothing is cached.")
    )
    session.out.note_missing(data)


@command(dns, "flush", _NAME)
def flush_cache(session: Session, fields: Given) -> None:
    """Drop a name, or all names, in the resolver and in all proxies."""
    data = session.api.delete("/dns/cache", **fields)
    session.out.data(data, lambda: session.out.line(f"Dropped {data['dropped']} cached results."))
    session.out.note_missing(data)
