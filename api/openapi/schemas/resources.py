"""Models of the data of responses: one for each view of a resource.

They only describe: no response is built from them. Tests validate every real response against its model, with exactly
its fields.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Moment = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
"""ISO 8601, UTC."""
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
HealthState = Literal["healthy", "degraded", "unhealthy"]


class ResponseModel(BaseModel):
    """A part of a response. Later versions may add fields; none is renamed, retyped or removed."""

    model_config = ConfigDict(extra="forbid", defer_build=True)  # few are built before the document is asked for


# --- health --------------------------------------------------------------------------------------------------


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
    """Memory of all processes of the service."""

    rss: str
    rss_bytes: int
    heap_used: str
    heap_total: str


class CpuFigures(ResponseModel):
    """Processor use."""

    usage: str
    load_average: Annotated[list[float], Field(min_length=3, max_length=3)]


class ServerFigures(ResponseModel):
    """The service on this machine."""

    status: HealthState
    uptime: int
    pid: int
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
    """The release that runs, the format of its data directory, and the version of Python that runs it."""

    version: str
    data_format: int
    python: str


# --- credentials --------------------------------------------------------------------------------------------------


class UserView(ResponseModel):
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


class TokenPair(ResponseModel):
    """An access token with the refresh token that follows it, which is in a cookie with `session_kept` in its place.

    `session_kept` is false where the cookie would be sent in clear, so that there is none.
    """

    access_token: str
    refresh_token: str | None = None
    session_kept: bool | None = None
    expires_in: int
    token_type: Literal["Bearer"]


class SignedIn(TokenPair):
    """A token pair, and its user."""

    user: UserView


class Authorization(ResponseModel):
    """The address of the sign-in for a browser, and the state that comes back from there."""

    authorization_url: str
    state: str


class Redirected(ResponseModel):
    """The path of a page of this API."""

    location: str


class SignInMethods(ResponseModel):
    """The ways to sign in. `identity_provider` is null where there is none; `self_service` is that of account holders.

    `initial_password_file` is the file in the data directory with the first password of `admin`, until it is changed.
    """

    password: Literal[True]
    identity_provider: Literal["google", "github", "microsoft", "custom"] | None
    self_service: bool
    initial_password_file: str | None


class SessionView(ResponseModel):
    """A sign-in that lives. `address` and `user_agent` are of its last use; a `program` is one that named no kind."""

    id: str
    user_id: str
    kind: Literal["cookie", "interactive", "program"]
    created_at: Moment
    last_used: Moment
    expires_at: Moment
    address: str | None
    user_agent: str | None
    current: bool


class Sessions(ResponseModel):
    """Sessions, those used last first."""

    sessions: list[SessionView]
    total: int


class EndedSession(ResponseModel):
    """A session that has ended."""

    id: str
    ended: Literal[True]


class ValidToken(ResponseModel):
    """The owner and the permissions of a bearer token."""

    valid: Literal[True]
    user_id: str
    username: str
    role: str
    permissions: list[str]
    expires_at: Moment


class Message(ResponseModel):
    """A message about the outcome."""

    message: str


class WhoAmI(ResponseModel):
    """The owner of the credential; for an API key only `key_id`."""

    authenticated: Literal[True]
    permissions: list[str]
    key_id: str | None = None
    user_id: str | None = None
    username: str | None = None
    role: str | None = None
    auth_method: Literal["bearer", "basic"] | None = None


class KeyScope(ResponseModel):
    """The scope of a key; null or absent is no limit."""

    proxies: list[str] | None = None
    accounts: list[str] | None = None
    ip_whitelist: list[str] | None = None


class ApiKeyView(ResponseModel):
    """An API key without the key itself, which is only in the response to its creation."""

    id: str
    name: str
    prefix: str
    permissions: list[str]
    created_at: Moment
    last_used: Moment | None
    expires_at: Moment | None
    scope: KeyScope | None
    user_id: str


class ApiKeys(ResponseModel):
    """API keys, oldest first."""

    api_keys: list[ApiKeyView]
    total: int


class NewApiKey(ResponseModel):
    """A new API key and its text."""

    api_key: ApiKeyView
    key: str


class PreviousApiKey(ResponseModel):
    """The rotated key: revoked, or valid until `expires_at`."""

    id: str
    revoked: bool
    expires_at: Moment | None


class RotatedApiKey(NewApiKey):
    """The key that replaces the rotated one, and its text."""

    previous: PreviousApiKey


class Revoked(ResponseModel):
    """A revoked API key."""

    id: str
    revoked: Literal[True]


class Deleted(ResponseModel):
    """A deleted resource."""

    id: str
    deleted: Literal[True]


class Role(ResponseModel):
    """A role and its default permissions; `*` stands for all."""

    name: str
    permissions: list[str]


class Roles(ResponseModel):
    """All roles, and all permissions."""

    roles: list[Role]
    permissions: list[str]


class OneUser(ResponseModel):
    """A user."""

    user: UserView


class Users(ResponseModel):
    """Users, oldest first."""

    users: list[UserView]
    total: int


Anything = dict[str, Any]
