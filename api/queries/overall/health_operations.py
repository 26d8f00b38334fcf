"""Health, for monitoring and for people; the system status, the version, and the first screen in one response."""

from __future__ import annotations

import platform
from typing import Annotated, Literal

from pydantic import Field

from actors.compiled import runs_compiled
from api.call import Call, RawBody, Reply
from api.engine.operation import ANY, NONE, V1, get, resource
from api.engine.responses import HealthState, Moment, Reason, ResponseModel
from api.http.query import OfNodes, choice
from api.queries.overall.health import UNHEALTHY
from api.queries.overall.overview import RANGES, Overview, Visibility
from config import VERSION
from config.files.durable import DATA_FORMAT


class OverviewRange(OfNodes):
    """The time that lists and series look back on."""

    range: str = choice("What is used most in the last 5 minutes, hour or day, and the series", tuple(RANGES), "1h")


def overview(call: Call) -> Reply:
    """Show the state of everything at a glance.

    Returns health, current metrics with a short series, proxies by state, what is used most, and what needs attention.
    Parts that the caller has no permission for are null. Poll it with `If-None-Match`; it is made once a second for
    all. In a fleet health, pools and what needs attention are those of the asked node, the rest is of all nodes.
    """
    caller = call.caller
    scope = None if caller.scope is None else tuple(sorted(caller.scope))
    seen = Visibility(
        metrics=caller.may("metrics.read"),
        proxies=caller.may("proxy.read"),
        settings=caller.may("settings.read"),
        users=caller.may("users.read"),
        scope=scope,
    )
    return Reply(
        {}, document=RawBody(call.services.overviews.get(seen, call.query.range, call.nodes), "application/json")
    )


class SmallHealth(ResponseModel):
    """The overall health."""

    status: HealthState
    version: str


class Alive(ResponseModel):
    """The process responds."""

    status: Literal["alive"]


class DatabaseCheck(ResponseModel):
    """The configuration store."""

    status: HealthState
    response_time: str
    error: str | None = None


class ProxyServiceCheck(ResponseModel):
    """The supervisor and processes. `active_proxies` run, `wanted_proxies` should; `reasons` are of all problems."""

    status: HealthState
    active_proxies: int
    wanted_proxies: int | None = None
    failed_proxies: list[str] | None = None
    degraded_proxies: list[str] | None = None
    reasons: list[Reason] | None = None
    missing_actors: list[str] | None = None
    error: str | None = None


class WebhookCheck(ResponseModel):
    """The deliveries of webhooks: `failing` are those whose last request failed."""

    status: HealthState
    failing: list[str]


class MemoryCheck(ResponseModel):
    """The machine's memory."""

    status: HealthState
    usage: str
    total: str
    used: str


class DiskCheck(ResponseModel):
    """The file system of the data directory."""

    status: HealthState
    usage: str
    free: str


class Checks(ResponseModel):
    """The parts of a health report."""

    database: DatabaseCheck
    proxy_service: ProxyServiceCheck
    webhooks: WebhookCheck | None = None
    memory: MemoryCheck
    disk: DiskCheck


class HealthReport(ResponseModel):
    """The health of all parts."""

    status: HealthState
    timestamp: Moment
    uptime: str
    uptime_seconds: int
    version: str
    checks: Checks


class MemoryFigures(ResponseModel):
    """Memory of all processes of the service.

    `used` counts what several processes share once (`measure` is `pss`); where the kernel does not measure that, it is
    `rss`, the sum of what is resident in each, which counts shared pages as often as they are shared.
    """

    used: str
    used_bytes: int
    measure: Literal["pss", "rss"]
    rss: str
    rss_bytes: int
    heap_used: str
    heap_total: str


class CpuFigures(ResponseModel):
    """Processor use."""

    usage: str
    load_average: Annotated[list[float], Field(min_length=3, max_length=3)]


class OlderProcesses(ResponseModel):
    """Processes of the program before an upgrade, which drain: the connections that are open in them, as of the last
    ten seconds, and when the last of these is cut (`server.upgrade_drain`)."""

    processes: int
    connections: int
    until: Moment


class ServerFigures(ResponseModel):
    """The service on this machine.

    `compiled`: the forwarding path is machine code.
    """

    status: HealthState
    uptime: int
    pid: int
    compiled: bool
    older_processes: OlderProcesses | None
    lab: bool
    """It was started with `--lab`: the egress guard is open for loopback."""
    memory: MemoryFigures
    cpu: CpuFigures


class ProxyFigures(ResponseModel):
    """All proxies together. `records_dropped` is the number of lost access records.

    `wanted_proxies` should run; `active_proxies` do, some of them degraded; the others have failed or are starting.
    """

    active_proxies: int
    wanted_proxies: int
    degraded_proxies: int
    failed_proxies: int
    total_connections: int
    active_connections: int
    requests_per_second: float
    total_requests: int
    total_errors: int
    error_rate: str
    records_dropped: int


class SenderFigures(ResponseModel):
    """All webhooks together. `events_lost` is the total number of events that can't be delivered any more."""

    waiting: int
    events_lost: int


class NetworkFigures(ResponseModel):
    """Bytes of all proxies together; `in` is what clients sent, `out` what they received."""

    bandwidth_in: str
    bandwidth_out: str
    bandwidth_in_bytes: float
    bandwidth_out_bytes: float
    total_bytes_in: str
    total_bytes_out: str
    bytes_in: int
    bytes_out: int


class FlawView(ResponseModel):
    """A current problem of a resource. `port` is that of a proxy, `upstream` one of its upstreams."""

    resource: Literal["proxy", "actor", "webhook"]
    id: str
    name: str
    port: int | None
    reason: Literal[Reason, "webhook_failing"]
    upstream: str | None
    error: str
    since: Moment


class SystemStatus(ResponseModel):
    """The system status. `problems` are the reasons why `server.status` is not `healthy`."""

    server: ServerFigures
    proxy: ProxyFigures
    network: NetworkFigures
    webhooks: SenderFigures | None
    problems: list[FlawView]


class Version(ResponseModel):
    """The release that runs, the format of its data directory, and the version of Python that runs it.

    `compiled`: its forwarding path is machine code.
    """

    version: str
    compiled: bool
    data_format: int
    python: str


def check(call: Call) -> Reply:
    """Health check.

    Responds 200 while the service is healthy or degraded, 503 while it is unhealthy. It needs no credentials and has no
    rate limit, so a load balancer can poll it.
    """
    status = call.services.health.status()
    return Reply({"status": status, "version": VERSION}, _http_status(status))


def ready(call: Call) -> Reply:
    """Readiness check.

    Responds 200 when the service can do its work, 503 otherwise, and while this node of a fleet is drained. Use it to
    decide whether to send traffic to the service.
    """
    if call.services.nodes.drains:
        return Reply({"status": UNHEALTHY, "version": VERSION}, 503)
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
        get("/health/ready", "healthReady", ready, SmallHealth, may_be_503=True, unlimited=True),
    ),
    *resource(V1)(
        get("/overview", "getOverview", overview, Overview, ANY, query=OverviewRange, scoped=True),
        get("/health", "getHealth", report, HealthReport, ANY, may_be_503=True, scoped=True),
        get("/status", "getStatus", system_status, SystemStatus, "metrics.read"),
        get("/version", "getVersion", version, Version, ANY, scoped=True),
    ),
)
