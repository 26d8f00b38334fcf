"""`proxyfleet status`, `metrics` and `settings …`: the system as a whole."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import typer

from api.cli.client import quoted
from api.cli.commands import WATCH, Session, add_group, command
from api.cli.errors import CommandError, Status
from api.cli.lookup import PROXY, find_id
from api.cli.quantities import Size, Span, with_decimal_units
from api.cli.request_body import body_of
from api.cli.terminal.completion import proxy_names
from api.cli.terminal.output import Column, Row, cell_text, counted
from api.cli.terminal.setting_sources import ChangedOption, print_sources
from api.cli.time_options import PERIOD, SinceOption, UntilOption, ago

settings_group = typer.Typer(help="System settings.", no_args_is_help=True)
Interval = Literal["1m", "5m", "1h", "1d"]


def add_commands(app: typer.Typer) -> None:
    """Add `status`, `metrics` and the group `settings` to `app`."""
    command(app, "status", rich_help_panel=WATCH)(status)
    command(app, "metrics", {**PERIOD, "metrics": "METRIC"}, rich_help_panel=WATCH)(metrics)
    add_group(app, "settings", settings_group)


def status(session: Session) -> None:
    """Show health and load of the product; ends with 1 if it is unhealthy."""
    report, status_data = session.api.get("/health"), session.api.get("/status")
    checks = [(name.replace("_", " "), _check(check)) for name, check in report["checks"].items()]
    server, proxy, network = status_data["server"], status_data["proxy"], status_data["network"]
    memory = server["memory"]
    pairs = [
        ("status", report["status"]),
        ("version", report["version"] + " (compiled)" * server.get("compiled", False)),
        ("uptime", Span(report["uptime_seconds"])),
        *([("lab", "the egress guard is open for loopback (serve --lab)")] if server.get("lab") else []),
        *checks,
        ("processors", f"{server['cpu']['usage']} of the machine"),
        ("process", server["pid"]),
        *([("older processes", _older(server["older_processes"]))] if server.get("older_processes") else []),
        (f"own memory ({memory['measure']})", Size(memory["used_bytes"])),
        ("proxies", _proxies(proxy)),
        ("connections", proxy["active_connections"]),
        ("requests", proxy["total_requests"]),
        ("requests/s", proxy["requests_per_second"]),
        ("error rate", proxy["error_rate"]),
        ("in/s", Size(network["bandwidth_in_bytes"], per_second=True)),
        ("out/s", Size(network["bandwidth_out_bytes"], per_second=True)),
        ("in", Size(network["bytes_in"])),
        ("out", Size(network["bytes_out"])),
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


def metrics(
    session: Session,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="METRIC", help="Names such as error_rate; by default all.")
    ] = None,
    interval: Annotated[Interval, typer.Option("--interval", help="The width of a bucket.")] = "5m",
    proxy: Annotated[
        str | None, typer.Option("--proxy", help="Only of this proxy; a name or id.", autocompletion=proxy_names)
    ] = None,
    since: SinceOption = None,
    until: UntilOption = None,
    now: Annotated[bool, typer.Option("--now", help="The current values only.")] = False,
) -> None:
    """Show metrics over time, one row for each bucket."""
    if now:
        if proxy or since or until:
            raise CommandError(
                "--now shows all proxies and the current values",
                "Leave out either --now or the other options",
                Status.USAGE,
            )
        _snapshot(session, names or [])
        return
    data = session.api.get(
        "/metrics",
        metrics=",".join(names) if names else None,
        interval=interval,
        proxy_id=find_id(session.api, PROXY, proxy) if proxy else None,
        start_time=ago(since) if since else None,
        end_time=ago(until, "--until") if until else None,
    )
    columns, rows = _by_moment(data["metrics"])
    session.out.data(data, lambda: session.out.table(columns, rows, "There are no values in this period."))


def _snapshot(session: Session, names: list[str]) -> None:
    data = session.api.get("/metrics/realtime")
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


def _by_moment(series: dict[str, list[dict[str, Any]]]) -> tuple[list[Column], list[Row]]:
    """Series as a table: a row for each bucket, a column for each metric."""
    rows: dict[str, dict[str, Any]] = {}
    for name, points in series.items():
        for point in points:
            rows.setdefault(point["timestamp"], {"timestamp": point["timestamp"]})[name] = point["value"]
    columns = [Column("TIME", "timestamp"), *(Column(name, name, right=True, spare=True) for name in series)]
    return columns, [rows[moment] for moment in sorted(rows)]


SETTINGS_COLUMNS = (Column("SETTING", "name"), Column("VALUE", "value"))


@command(settings_group, "show")
def show_settings(session: Session) -> None:
    """Show the effective settings that the API can change."""
    data = session.api.get("/settings")
    session.out.data(data, lambda: session.out.table(SETTINGS_COLUMNS, _flat(data)))


@command(settings_group, "sources")
def show_sources(session: Session, changed: ChangedOption = False) -> None:
    """Show where the value of each key of the configuration comes from, and what a change of it needs.

    CHANGE is at once (proxyfleet settings set), reload of the configuration, or restart of the product.
    """
    print_sources(session.out, "settings", session.api.get("/settings/sources")["settings"], changed)


@command(settings_group, "set")
def set_settings(
    session: Session,
    values: Annotated[list[str], typer.Argument(metavar="GROUP.KEY=VALUE", help="Such as logging.level=debug")],
) -> None:
    """Change settings; they apply at once and override the configuration."""
    for value in values:
        if not value.partition("=")[1]:
            raise CommandError(f"{value}: must be GROUP.KEY=VALUE", "Such as logging.level=debug", Status.USAGE)
    body = body_of({}, values)
    before = session.api.get("/settings")["server"] if "server" in body else None
    try:
        data = session.api.patch("/settings", body)
    except CommandError as error:
        if any(problem == "is not a known field" for _field, problem in error.problems):
            error.hint = (
                "Settings that can change: proxyfleet settings show; others belong in the configuration file or the "
                "environment"
            )
        raise
    if before is not None:
        _follow(session, before, data["server"])
    _print_of(session, data, [value.partition("=")[0] for value in values])


@command(settings_group, "unset")
def unset_settings(
    session: Session,
    names: Annotated[list[str], typer.Argument(metavar="GROUP.KEY", help="Such as logging.level")],
) -> None:
    """Remove settings that the API has changed, while the product runs; the configuration applies again."""
    for name in names:
        before = session.api.get("/settings")["server"] if name.startswith("server.") else None
        data = session.api.delete(f"/settings/{quoted(name)}")
        if before is not None:
            _follow(session, before, data["server"])
    _print_of(session, data, names)


def _print_of(session: Session, data: dict[str, Any], names: list[str]) -> None:
    """Print these settings as they are now; for programs all of them."""
    changed = [each for each in _flat(data) if each["name"] in names]
    session.out.data(data, lambda: session.out.table(SETTINGS_COLUMNS, changed))


def _follow(session: Session, before: dict[str, Any], after: dict[str, Any]) -> None:
    """Move the sign-in to the API's new address, unless the API is reached through a server in front of it."""
    parts = urlsplit(session.api.url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    if (before["host"], before["port"]) == (after["host"], after["port"]) or port != before["port"]:
        return
    host = parts.hostname if before["host"] == after["host"] else after["host"]
    url = (
        f"{parts.scheme}://[{host}]:{after['port']}" if ":" in str(host) else f"{parts.scheme}://{host}:{after['port']}"
    )
    session.api.follow_to(url)
    session.out.note(f"note: the API is at {url} now; PROXYFLEET_URL and --url of other commands must name it")


def _flat(groups: dict[str, dict[str, Any]]) -> list[Row]:
    return [{"name": f"{group}.{key}", "value": value} for group, keys in groups.items() for key, value in keys.items()]
