"""Views of proxies and their records."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from actors.bus.messages.supervision import WorkerRuntime
from actors.counters import COUNTERS
from api.engine.responses import Moment, NodesMeta, Reason, ResponseModel, Warned, having, mirrors, shows
from api.objects.accounts.account_responses import AccountView
from config.model.choices import ProxyProtocol, ProxyStatus, UpstreamProtocol
from config.model.nodes import NodesOfProxy
from config.model.proxies import ProxyRecord, ProxyTls
from config.model.proxy_parts import AuthBackend


@shows(AuthBackend)
class BackendView(ResponseModel):
    """An authentication back end. `secret` is in the response that sets it."""

    secret: str | None = None


class AuthView(ResponseModel):
    """The credentials of clients, without the password. `backend` is there if the proxy has one."""

    enabled: bool
    username: str | None
    backend: BackendView | None = None


@shows(ProxyTls, sparse=True)
class TlsView(ResponseModel):
    """The files of the proxy's own certificate, if it has one, and those that clients' certificates are verified by."""


class UpstreamAuthView(ResponseModel):
    """The credentials for an upstream, without the password."""

    username: str


class UpstreamTlsView(ResponseModel):
    """How the certificate of an `https` upstream is verified."""

    verify: bool
    ca_file: str | None = None
    server_name: str | None = None


class UpstreamView(ResponseModel):
    """An upstream proxy."""

    name: str
    protocol: UpstreamProtocol
    host: str
    port: int
    weight: int
    auth: UpstreamAuthView | None = None
    tls: UpstreamTlsView | None = None
    proxy_protocol: Literal["v1", "v2"] | None = None


class UpstreamStateView(ResponseModel):
    """The state of an upstream."""

    name: str
    state: Literal["unknown", "up", "down"]
    since: Moment
    active_connections: int
    total_connections: int
    failures: int
    bytes_in: int
    bytes_out: int
    latency_ms: float | None
    last_error: str | None


class ProblemView(ResponseModel):
    """A current problem. `upstream` is the name of the upstream that it concerns."""

    reason: Reason
    upstream: str | None
    error: str
    since: Moment


@mirrors(WorkerRuntime)
class WorkerView(ResponseModel):
    """The actual state of one worker; `index` counts from 0. `state` is as of the proxy, but never `degraded`."""

    state: Literal["starting", "running", "draining", "failed", "stopped"]
    since: Moment


class ExitView(ResponseModel):
    """Where requests of a proxy leave by itself, unless a rule of a policy says otherwise: `kind` is `direct`,
    `upstreams` (its own) or `pool`, with the name of that.

    `usable` says how many of the `total` upstreams are up and not left alone, `unknown` of how many nothing is known
    yet; null while that is not known, and with `direct`.
    """

    kind: Literal["direct", "upstreams", "pool"]
    pool: str | None
    usable: int | None
    unknown: int | None
    total: int | None


class RuntimeOnNode(ResponseModel):
    """The state on one node of a fleet; `unknown` where the node has been silent for 30 seconds."""

    node: str
    state: Literal["starting", "running", "degraded", "draining", "failed", "sleeping", "stopped", "unknown"]
    error: str | None


class RuntimeView(ResponseModel):
    """The actual state. `degraded` is running with `problems`; `error` is all of them in one text.

    `pid` is that of the first worker that runs, `restarts` are those of all. In the detailed view are `workers`, `exit`
    and `upstreams` of a proxy with upstreams or a pool; uses and bytes are its own.

    `sleeping` is active without a process, which the next client starts; `pid` is null then.

    In a fleet `state` is the sum of `nodes`, `degraded` if some of them run it; what else is here is of the asked node.
    `host` is that of the proxy as the asked node listens at it, or else the first of its nodes: with their addresses.
    """

    state: Literal["starting", "running", "degraded", "draining", "failed", "sleeping", "stopped"]
    pid: int | None
    since: Moment
    restarts: int
    error: str | None
    problems: list[ProblemView]
    workers: list[WorkerView] | None = None
    upstreams: list[UpstreamStateView] | None = None
    exit: ExitView | None = None
    nodes: list[RuntimeOnNode] | None = None
    host: str | None = None


@having({row.view: (int, Field(description=row.help)) for row in COUNTERS if row.view})
class StatsView(ResponseModel):
    """Statistics since the proxy was created; `uptime` since its process was started.

    `refusals` and `reported` are counted by the reason of the rule.
    """

    active_connections: int
    uptime: str
    uptime_seconds: int
    bytes_transferred: str
    refusals: dict[str, int]
    reported: dict[str, int]
    last_request: Moment | None


class ListedProxy(ResponseModel):
    """A proxy in a list."""

    id: str
    name: str
    host: str
    port: int | str
    protocol: ProxyProtocol
    status: ProxyStatus
    auth_enabled: bool
    tags: list[str]
    created_at: Moment
    updated_at: Moment
    runtime: RuntimeView | None
    stats: StatsView


@shows(NodesOfProxy, sparse=True)
class NodesView(ResponseModel):
    """The nodes that a proxy runs on: all, or each that a name or a tag names."""


@shows(ProxyRecord)
class CreatedProxy(ResponseModel):
    """The configuration of a proxy."""

    nodes: NodesView

    auth: AuthView
    port: int | str
    tls: TlsView | None
    upstreams: list[UpstreamView]
    accounts: list[AccountView]


class DetailedProxy(CreatedProxy):
    """A proxy with its actual state and statistics."""

    auth_enabled: bool
    runtime: RuntimeView | None
    stats: StatsView


class Pagination(ResponseModel):
    """The position of a page."""

    page: int
    per_page: int
    total: int
    pages: int
    has_next: bool
    has_prev: bool


class Proxies(ResponseModel):
    """A page of proxies; `next_cursor` is null on the last one."""

    proxies: list[ListedProxy]
    pagination: Pagination
    next_cursor: str | None


class NewProxy(ResponseModel):
    """A created proxy."""

    proxy: CreatedProxy
    warnings: list[Warned]


class OneProxy(ResponseModel):
    """A proxy."""

    proxy: DetailedProxy
    warnings: list[Warned]


class ActedProxy(ResponseModel):
    """A proxy after an action; `changed` is false if it was in that state already."""

    proxy: DetailedProxy
    changed: bool
    message: str
    warnings: list[Warned]
    meta: NodesMeta | None = None


class TestOutcome(ResponseModel):
    """The outcome of a test; `response_time` in milliseconds."""

    status: Literal["success", "failed", "timeout"]
    response_time: int
    status_code: int | None
    external_ip: str | None
    parent: str | None
    timestamp: Moment
    error: str | None


class OutcomeAtNode(TestOutcome):
    """The outcome of a test by one node."""

    node: str


class Tested(ResponseModel):
    """A test of a proxy, successful or not.

    In a fleet `test_result` is that of the first of the `nodes` at which it failed, or of the slowest.
    """

    test_result: TestOutcome
    nodes: list[OutcomeAtNode] | None = None
    meta: NodesMeta | None = None
