"""What the answers look like: one model for each form that a resource is shown in.

They describe; nothing is built from them when a request is answered. That they say the truth is proven by tests that
hold every real answer against them, without a field more or less.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Moment = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
"""ISO 8601, UTC."""
Protocol = Literal["http", "https", "socks4", "socks5"]
Wish = Literal["active", "inactive"]
Reason = Literal[
    "certificate",
    "upstream_down",
    "upstreams_unreachable",
    "out_of_descriptors",
    "bind_address",
    "listener",
    "process",
]
"""Why a proxy or an actor is degraded or has failed (`actors.bus.messages.problems.REASONS`)."""
Wellness = Literal["healthy", "degraded", "unhealthy"]


class Form(BaseModel):
    """A part of an answer. More fields may join in later versions; none is renamed, retyped or dropped."""

    model_config = ConfigDict(extra="forbid")


# --- is it well? --------------------------------------------------------------------------------------------------


class SmallHealth(Form):
    """Health in one word."""

    status: Wellness
    version: str


class Alive(Form):
    """The process answers."""

    status: Literal["alive"]


class DatabaseCheck(Form):
    """The configuration store."""

    status: Wellness
    response_time: str
    error: str | None = None


class ProxyServiceCheck(Form):
    """The supervisor and what it runs. `active_proxies` run, `wanted_proxies` should; `reasons` are of all problems."""

    status: Wellness
    active_proxies: int
    wanted_proxies: int | None = None
    failed_proxies: list[str] | None = None
    degraded_proxies: list[str] | None = None
    reasons: list[Reason] | None = None
    missing_actors: list[str] | None = None
    error: str | None = None


class WebhookCheck(Form):
    """The deliveries of webhooks: `failing` are those whose last request failed."""

    status: Wellness
    failing: list[str]


class MemoryCheck(Form):
    """The machine's memory."""

    status: Wellness
    usage: str
    total: str
    used: str


class DiskCheck(Form):
    """The file system of the data directory."""

    status: Wellness
    usage: str
    free: str


class Checks(Form):
    """The parts of a health report."""

    database: DatabaseCheck
    proxy_service: ProxyServiceCheck
    webhooks: WebhookCheck | None = None
    memory: MemoryCheck
    disk: DiskCheck


class HealthReport(Form):
    """Health in full."""

    status: Wellness
    timestamp: Moment
    uptime: str
    uptime_seconds: int
    version: str
    checks: Checks


class MemoryFigures(Form):
    """Memory of all processes of the product."""

    rss: str
    rss_bytes: int
    heap_used: str
    heap_total: str


class CpuFigures(Form):
    """Processor use."""

    usage: str
    load_average: Annotated[list[float], Field(min_length=3, max_length=3)]


class ServerFigures(Form):
    """The product on this machine."""

    status: Wellness
    uptime: int
    pid: int
    memory: MemoryFigures
    cpu: CpuFigures


class ProxyFigures(Form):
    """All proxies together. `records_dropped` are access records that were lost.

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


class SenderFigures(Form):
    """All webhooks together. `events_lost` are those of all times that can't be delivered any more."""

    waiting: int
    events_lost: int


class NetworkFigures(Form):
    """Bytes of all proxies together; `in` is what clients sent, `out` what they received."""

    bandwidth_in: str
    bandwidth_out: str
    bandwidth_in_bytes: float
    bandwidth_out_bytes: float
    total_bytes_in: str
    total_bytes_out: str
    bytes_in: int
    bytes_out: int


class FlawForm(Form):
    """One thing that is wrong now, and with what. `port` is that of a proxy, `upstream` one of its upstreams."""

    resource: Literal["proxy", "actor", "webhook"]
    id: str
    name: str
    port: int | None
    reason: Literal[Reason, "webhook_failing"]
    upstream: str | None
    error: str
    since: Moment


class SystemStatus(Form):
    """The system status. `problems` are why `server.status` is not `healthy`."""

    server: ServerFigures
    proxy: ProxyFigures
    network: NetworkFigures
    webhooks: SenderFigures | None
    problems: list[FlawForm]


class Version(Form):
    """The release that runs, the format of its data directory, and the version of Python that runs it."""

    version: str
    data_format: int
    python: str


# --- credentials --------------------------------------------------------------------------------------------------


class UserForm(Form):
    """A user of the management API."""

    id: str
    username: str
    email: str | None
    role: str
    status: Literal["active", "disabled"]
    permissions: list[str]
    oauth_provider: str | None
    last_login: Moment | None
    created_at: Moment
    updated_at: Moment


class TokenPair(Form):
    """An access token with the refresh token that follows it."""

    access_token: str
    refresh_token: str
    expires_in: int
    token_type: Literal["Bearer"]


class SignedIn(TokenPair):
    """A token pair, and whose it is."""

    user: UserForm


class Authorization(Form):
    """Where a browser signs in, and the state that comes back from there."""

    authorization_url: str
    state: str


class ValidToken(Form):
    """What a bearer token is good for."""

    valid: Literal[True]
    user_id: str
    username: str
    role: str
    permissions: list[str]
    expires_at: Moment


class Message(Form):
    """Done, in words."""

    message: str


class WhoAmI(Form):
    """Whose credential it is; of a key `key_id` alone."""

    authenticated: Literal[True]
    permissions: list[str]
    key_id: str | None = None
    user_id: str | None = None
    username: str | None = None
    role: str | None = None
    auth_method: Literal["bearer", "basic"] | None = None


class KeyScope(Form):
    """What a key is limited to."""

    proxies: list[str] | None = None
    ip_whitelist: list[str] | None = None


class ApiKeyForm(Form):
    """An API key. The key itself is never shown again."""

    id: str
    name: str
    prefix: str
    permissions: list[str]
    created_at: Moment
    last_used: Moment | None
    expires_at: Moment | None
    scope: KeyScope | None
    user_id: str


class ApiKeys(Form):
    """API keys, oldest first."""

    api_keys: list[ApiKeyForm]
    total: int


class NewApiKey(Form):
    """A new key, with its text."""

    api_key: ApiKeyForm
    key: str


class PreviousApiKey(Form):
    """The key that was rotated: revoked, or valid until `expires_at`."""

    id: str
    revoked: bool
    expires_at: Moment | None


class RotatedApiKey(Form):
    """The key that replaces another one, with its text."""

    api_key: ApiKeyForm
    key: str
    previous: PreviousApiKey


class Revoked(Form):
    """A key that is dead."""

    id: str
    revoked: Literal[True]


class Deleted(Form):
    """A resource that is gone."""

    id: str
    deleted: Literal[True]


class OneUser(Form):
    """A user."""

    user: UserForm


class Users(Form):
    """Users, oldest first."""

    users: list[UserForm]
    total: int


Anything = dict[str, Any]
