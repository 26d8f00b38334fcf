"""Is it well? For load balancers in a few bytes, for people in full.

Unhealthy is only a product that can't do its work: no store or no supervisor. What else is wrong
(`api.services.condition`), or scarce, makes it degraded.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from typing import Any

import psutil

from actors.bus.messages.events import WebhookSenderState
from actors.bus.messages.fleet import Fleet as FleetMessage
from api.call import Call, Reply
from api.container import Services
from api.services import condition
from api.services.runtime_view import NO_STATS
from api.store import StoreError
from api.store.migrations import DATA_FORMAT
from config import VERSION
from config.text.formatting import size_text, timestamp_text, uptime_text

HEALTHY, DEGRADED, UNHEALTHY = "healthy", "degraded", "unhealthy"
SCARCE_PERCENT = 95.0
"""Of memory or disk in use: from here on the check says `degraded`."""


def check(call: Call) -> Reply:
    """Health check.

    Answers 200 while the service is healthy or degraded, 503 while it is unhealthy. It needs no credentials and has no
    rate limit, so a load balancer can poll it.
    """
    services = call.services
    status = _overall(_database(services), _proxy_service(services), _webhook_check(services))
    return Reply({"status": status, "version": VERSION}, _http_status(status))


def ready(call: Call) -> Reply:
    """Readiness check.

    Answers 200 when the service can do its work, 503 otherwise. Use it to decide whether to send traffic to the
    service.
    """
    return check(call)


def live(_call: Call) -> Reply:
    """Liveness check.

    Answers 200 as long as the API process can answer at all. Use it to decide whether to restart the service.
    """
    return Reply({"status": "alive"})


def report(call: Call) -> Reply:
    """Show the health report.

    Reports the state of the configuration store, the proxies, the memory and the disk, each with its own status. The
    overall `status` is `healthy`, `degraded` or `unhealthy`.
    """
    services = call.services
    checks = {
        "database": _database(services),
        "proxy_service": _proxy_service(services, call.caller.scope),
        **({"webhooks": _webhook_check(services)} if call.caller.scope is None else {}),
        **_resources(services),
    }
    status = _overall(*(checks[name] for name in ("database", "proxy_service", "webhooks") if name in checks))
    started = _started_at(services)
    data = {
        "status": status,
        "timestamp": timestamp_text(time.time()),
        "uptime": uptime_text(time.time() - started),
        "uptime_seconds": int(time.time() - started),
        "version": VERSION,
        "checks": checks,
    }
    return Reply(data, _http_status(status))


def system_status(call: Call) -> Reply:
    """Show the system status.

    Reports the uptime, memory and CPU use of the service, and the traffic of all proxies together. It also counts what
    was lost, such as events or records.
    """
    services = call.services
    fleet = services.runtime.whole()
    return Reply(_system(services, fleet))


def version(_call: Call) -> Reply:
    """Show the version.

    Returns the release that runs, the format of its data directory and the version of Python. A release restores a
    backup of its own or of an older data format.
    """
    return Reply({"version": VERSION, "data_format": DATA_FORMAT, "python": platform.python_version()})


# --- the checks ---------------------------------------------------------------------------------------------------


def _database(services: Services) -> dict[str, Any]:
    began = time.perf_counter()
    check: dict[str, Any] = {"status": HEALTHY}
    try:
        services.store.check()
    except StoreError:
        check = {"status": UNHEALTHY, "error": "the configuration store can't be used"}
    return {**check, "response_time": f"{(time.perf_counter() - began) * 1000:.1f}ms"}


def _proxy_service(services: Services, scope: frozenset[str] | None = None) -> dict[str, Any]:
    fleet = services.runtime.whole()
    if fleet is None:
        return {"status": UNHEALTHY, "active_proxies": 0, "error": "the supervisor does not answer"}
    mine = [each for each in services.proxies.all() if scope is None or each.record.id in scope]
    flaws = condition.of_proxies(fleet, mine)
    failed = [each.id for each in flaws if fleet.proxies[each.id].state == "failed"]
    others = condition.of_actors(fleet)
    return {
        "status": DEGRADED if flaws or others else HEALTHY,
        "active_proxies": _running(fleet, scope),
        "wanted_proxies": sum(each.record.status == "active" for each in mine),
        "failed_proxies": failed,
        "degraded_proxies": list(dict.fromkeys(each.id for each in flaws if each.id not in failed)),
        "reasons": sorted({each.problem.reason for each in (*flaws, *others)}),
        "missing_actors": [each.id for each in others if not each.problem.serves],
    }


def _webhook_check(services: Services) -> dict[str, Any]:
    failing = [each.id for each in services.webhooks.failing()]
    return {"status": DEGRADED if failing else HEALTHY, "failing": failing}


def _running(fleet: FleetMessage, scope: frozenset[str] | None = None) -> int:
    return sum(each.runs for name, each in fleet.proxies.items() if scope is None or name in scope)


def _resources(services: Services) -> dict[str, Any]:
    return {
        "memory": _measured(_memory, ("usage", "total", "used")),
        "disk": _measured(lambda: _disk(services), ("usage", "free")),
    }


def _measured(measure: Callable[[], dict[str, Any]], names: tuple[str, ...]) -> dict[str, Any]:
    """What can't be measured, as without a descriptor for /proc, is unknown; the rest of the report is told."""
    try:
        return measure()
    except OSError as error:
        return {"status": DEGRADED, **dict.fromkeys(names, "unknown"), "error": error.strerror or str(error)}


def _memory() -> dict[str, Any]:
    memory = psutil.virtual_memory()
    return {
        "status": _scarce(memory.percent),
        "usage": f"{memory.percent:.1f}%",
        "total": size_text(memory.total),
        "used": size_text(memory.used),
    }


def _disk(services: Services) -> dict[str, Any]:
    disk = psutil.disk_usage(str(services.data.path))
    return {"status": _scarce(disk.percent), "usage": f"{disk.percent:.1f}%", "free": size_text(disk.free)}


def _scarce(percent: float) -> str:
    return DEGRADED if percent >= SCARCE_PERCENT else HEALTHY


def _overall(*checks: dict[str, Any]) -> str:
    said = {check["status"] for check in checks}
    return next(status for status in (UNHEALTHY, DEGRADED, HEALTHY) if status in said)


def _http_status(status: str) -> int:
    return 503 if status == UNHEALTHY else 200


def _started_at(services: Services) -> float:
    fleet = services.runtime.whole()
    return services.started_at if fleet is None else fleet.started_at


# --- the system status --------------------------------------------------------------------------------------------


def _system(services: Services, fleet: FleetMessage | None) -> dict[str, Any]:
    figures = services.runtime.system()
    own = psutil.Process().memory_info()
    total = NO_STATS if figures is None else figures.total
    service = _proxy_service(services)
    status = _overall(_database(services), service, _webhook_check(services))

    def figure(read: Callable[[Any], Any], otherwise: Any) -> Any:
        return otherwise if figures is None else read(figures)

    requests, errors = total["requests"], total["errors"]
    return {
        "server": {
            "status": status,
            "uptime": int(time.time() - _started_at(services)),
            "pid": services.supervisor_pid or os.getpid(),
            "memory": {
                "rss": size_text(figure(lambda seen: seen.rss, own.rss)),
                "rss_bytes": figure(lambda seen: seen.rss, own.rss),
                "heap_used": size_text(figure(lambda seen: seen.uss, own.rss)),
                "heap_total": size_text(figure(lambda seen: seen.vms, own.vms)),
            },
            "cpu": {
                "usage": f"{figure(lambda seen: seen.cpu_percent, psutil.cpu_percent()):.1f}%",
                "load_average": [round(each, 2) for each in os.getloadavg()],
            },
        },
        "proxy": {
            "active_proxies": service["active_proxies"],
            "wanted_proxies": sum(each.record.status == "active" for each in services.proxies.all()),
            "degraded_proxies": len(service.get("degraded_proxies", ())),
            "failed_proxies": len(service.get("failed_proxies", ())),
            "total_connections": total["connections"],
            "active_connections": total.active_connections,
            "requests_per_second": figure(lambda seen: round(seen.requests_per_second, 3), 0.0),
            "total_requests": requests,
            "total_errors": errors,
            "error_rate": f"{100 * errors / requests if requests else 0.0:.2f}%",
            "records_dropped": total["records_dropped"],
        },
        "network": {
            "bandwidth_in": f"{size_text(figure(lambda seen: seen.bandwidth_in, 0))}/s",
            "bandwidth_out": f"{size_text(figure(lambda seen: seen.bandwidth_out, 0))}/s",
            "bandwidth_in_bytes": figure(lambda seen: seen.bandwidth_in, 0.0),
            "bandwidth_out_bytes": figure(lambda seen: seen.bandwidth_out, 0.0),
            "total_bytes_in": size_text(total["bytes_in"]),
            "total_bytes_out": size_text(total["bytes_out"]),
            "bytes_in": total["bytes_in"],
            "bytes_out": total["bytes_out"],
        },
        "webhooks": _webhooks(services.webhooks.sender_state()),
        "problems": _problems(services, fleet),
    }


def _problems(services: Services, fleet: FleetMessage | None) -> list[dict[str, Any]]:
    """What is wrong now, with names and causes."""
    flaws = services.webhooks.failing()
    if fleet is not None:
        flaws = [*condition.of_proxies(fleet, services.proxies.all()), *condition.of_actors(fleet), *flaws]
    return [each.view() for each in flaws]


def _webhooks(state: WebhookSenderState | None) -> dict[str, Any] | None:
    return None if state is None else {"waiting": state.waiting, "events_lost": state.lost}
