"""Views of the health of the service and of what runs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from api.openapi.schemas.base import HealthState, Moment, Reason, ResponseModel


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
