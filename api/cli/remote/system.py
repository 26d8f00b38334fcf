"""`proxyfleet status`, `metrics` and `settings …`: the system as a whole."""

from __future__ import annotations

from typing import Any

import typer

from api.cli.client import quoted
from api.cli.commands import WATCH, Given, Session, add_group, command
from api.cli.errors import CommandError, Status
from api.cli.lookup import PROXY
from api.cli.options import argument, choice, flag, text
from api.cli.quantities import SINCE, UNTIL, Size, Span, with_decimal_units
from api.cli.request_body import body_of
from api.cli.terminal.output import Column, Row, cell_text, counted
from api.cli.terminal.setting_sources import CHANGED, print_sources

settings_group = typer.Typer(help="System settings.", no_args_is_help=True)


def add_commands(app: typer.Typer) -> None:
    """Add `status`, `metrics` and the group `settings` to `app`."""
    command(app, "status", rich_help_panel=WATCH)(status)
    command(app, "metrics", _METRICS, {"metrics": "METRIC"}, rich_help_panel=WATCH)(show_metrics)
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


_METRICS = {
    "metrics": argument("METRIC", "Names such as error_rate; by default all.", list[str], default=None),
    "interval": choice("--interval", "The width of a bucket.", ("1m", "5m", "1h", "1d"), default="5m"),
    "proxy_id": text("--proxy", "Only of this proxy; a name or id.", of=PROXY),
    **SINCE,
    **UNTIL,
    "now": flag("--now", "The current values only."),
}


def show_metrics(session: Session, metrics: list[str] | None, fields: Given, now: bool) -> None:
    """Show metrics over time, one row for each bucket."""
    if now:
        if any(fields[name] for name in ("proxy_id", "start_time", "end_time")):
            raise CommandError(
                "--now shows all proxies and the current values",
                "Leave out either --now or the other options",
                Status.USAGE,
            )
        _snapshot(session, metrics or [])
        return
    data = session.api.get("/metrics", metrics=",".join(metrics) if metrics else None, **fields)
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


@command(settings_group, "sources", {"changed": CHANGED})
def show_sources(session: Session, changed: bool) -> None:
    """Show where the value of each key of the configuration comes from, and what a change of it needs.

    CHANGE is at once (proxyfleet settings set), reload of the configuration, or restart of the product.
    """
    print_sources(session.out, "settings", session.api.get("/settings/sources")["settings"], changed)


@command(settings_group, "set", {"values": argument("GROUP.KEY=VALUE", "Such as logging.level=debug", list[str])})
def set_settings(session: Session, values: list[str]) -> None:
    """Change settings; they apply at once and override the configuration."""
    for value in values:
        if not value.partition("=")[1]:
            raise CommandError(f"{value}: must be GROUP.KEY=VALUE", "Such as logging.level=debug", Status.USAGE)
    body = body_of({"set_": values})
    try:
        data = session.api.patch("/settings", body)
    except CommandError as error:
        if any(problem == "is not a known field" for _field, problem in error.problems):
            error.hint = (
                "Settings that can change: proxyfleet settings show; others belong in the configuration file or the "
                "environment"
            )
        raise
    _print_of(session, data, [value.partition("=")[0] for value in values])


@command(settings_group, "unset", {"names": argument("GROUP.KEY", "Such as logging.level", list[str])})
def unset_settings(session: Session, names: list[str]) -> None:
    """Remove settings that the API has changed, while the product runs; the configuration applies again."""
    for name in names:
        data = session.api.delete(f"/settings/{quoted(name)}")
    _print_of(session, data, names)


def _print_of(session: Session, data: dict[str, Any], names: list[str]) -> None:
    """Print these settings as they are now; for programs all of them."""
    changed = [each for each in _flat(data) if each["name"] in names]
    session.out.data(data, lambda: session.out.table(SETTINGS_COLUMNS, changed))


def _flat(groups: dict[str, dict[str, Any]]) -> list[Row]:
    return [{"name": f"{group}.{key}", "value": value} for group, keys in groups.items() for key, value in keys.items()]
