"""Health, for monitoring and for people; the system status and the version."""

from __future__ import annotations

import platform

from actors.compiled import runs_compiled
from api.call import Call, Reply
from api.engine.operation import ANY, NONE, V1, get, resource
from api.openapi.schemas.health import Alive, HealthReport, SmallHealth, SystemStatus, Version
from api.openapi.schemas.overview import Overview
from api.resources import overview
from api.services.health import UNHEALTHY
from config import VERSION
from config.files.data_format import DATA_FORMAT


def check(call: Call) -> Reply:
    """Health check.

    Responds 200 while the service is healthy or degraded, 503 while it is unhealthy. It needs no credentials and has no
    rate limit, so a load balancer can poll it.
    """
    status = call.services.health.status()
    return Reply({"status": status, "version": VERSION}, _http_status(status))


def ready(call: Call) -> Reply:
    """Readiness check.

    Responds 200 when the service can do its work, 503 otherwise. Use it to decide whether to send traffic to the
    service.
    """
    return check(call)


def live(_call: Call) -> Reply:
    """Liveness check.

    Responds 200 as long as the API process can respond at all. Use it to decide whether to restart the service.
    """
    return Reply({"status": "alive"})


def report(call: Call) -> Reply:
    """Show the health report.

    Reports the state of the configuration store, the proxies, the memory and the disk, each with its own status. The
    overall `status` is `healthy`, `degraded` or `unhealthy`.
    """
    data = call.services.health.report(call.caller.scope)
    return Reply(data, _http_status(data["status"]))


def system_status(call: Call) -> Reply:
    """Show the system status.

    Reports the uptime, memory and CPU use of the service, and the traffic of all proxies together. It also counts what
    was lost, such as events or records.
    """
    return Reply(call.services.health.system())


def version(_call: Call) -> Reply:
    """Show the version.

    Returns the release that runs, whether its forwarding path is compiled, the format of its data directory and the
    version of Python. A release restores backups of its own data format.
    """
    python, compiled = platform.python_version(), runs_compiled()
    return Reply({"version": VERSION, "compiled": compiled, "data_format": DATA_FORMAT, "python": python})


def _http_status(status: str) -> int:
    return 503 if status == UNHEALTHY else 200


ROWS = (
    *resource("", read=NONE)(
        get("/health", "health", check, SmallHealth, may_be_503=True, unlimited=True),
        get("/livez", "livez", live, Alive, unlimited=True),
        get("/readyz", "readyz", ready, SmallHealth, may_be_503=True, unlimited=True),
    ),
    *resource(V1)(
        get("/overview", "getOverview", overview.overview, Overview, ANY, query=overview.OverviewRange, scoped=True),
        get("/health", "getHealth", report, HealthReport, ANY, may_be_503=True, scoped=True),
        get("/status", "getStatus", system_status, SystemStatus, "metrics.read"),
        get("/version", "getVersion", version, Version, ANY, scoped=True),
    ),
)
