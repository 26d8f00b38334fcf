"""The events: their names and the models of their data, against which data are checked when an event is published.

A new event is a row of `EVENT_DATA`, a class if no other has its fields, one call that publishes it, and a line of the
table in docs/api.md. Subscriptions, the description of the API and the check follow the row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model

from config.model.choices import Period, ProxyProtocol, ProxyStatus


def _without_default(schema: dict[str, Any]) -> None:
    del schema["default"]


_ABSENT: Any = Field(default="", json_schema_extra=_without_default)
"""The default of a field that may be left out."""


class EventData(BaseModel):
    """Data of an event. A field with `_ABSENT` may be missing."""

    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)  # built when one is published


class EventAuthor(EventData):
    """Who caused an event. `username` is in events about users and keys only, `key_id` where a key was used.

    `user_id` is the id of the account where its holder caused the event.
    """

    type: Literal["user", "account", "command_line", "anonymous", "system"]
    user_id: str | None
    method: Literal["bearer", "basic", "api_key", "password", "oauth2", "account_token"] | None
    username: str = _ABSENT
    key_id: str = _ABSENT


class _Requested(EventData):
    request_id: str = _ABSENT
    """Of the request that caused it, if one did."""


class _Caused(_Requested):
    by: EventAuthor


class ProxyAction(_Caused):
    """A caller did something with a proxy."""

    proxy_id: str
    name: str
    host: str
    port: int
    protocol: ProxyProtocol
    status: ProxyStatus


class ProxyProcess(EventData):
    """Of a proxy; without name and port if it was deleted meanwhile. `restarts` counts starts after a failure."""

    proxy_id: str
    name: str
    port: int | None
    restarts: int


class ProxyDown(ProxyProcess):
    """`error` says why its process does not run."""

    error: str


class ProxyProblem(EventData):
    """`error` is the reason of a degraded proxy, `detail` its text, `upstream` the name of the upstream, if any."""

    proxy_id: str
    name: str
    port: int | None
    error: str
    detail: str
    upstream: str = _ABSENT


class ErrorRate(EventData):
    """`error_rate` in percent of the `requests` within `window` seconds; `threshold` is the one that was crossed."""

    proxy_id: str
    error_rate: float
    requests: int
    errors: int
    window: int
    threshold: float


class UserAction(_Caused):
    """A user was created or deleted."""

    user_id: str
    username: str
    role: str
    status: str


class KeyAction(_Caused):
    """An API key was created or revoked; `prefix` is the beginning of the key."""

    key_id: str
    name: str
    prefix: str
    user_id: str


class AccountAction(_Caused):
    """An account of the fleet was created or deleted."""

    account_id: str
    username: str


class AccountsImport(_Caused):
    """Accounts of the fleet were created and changed by one import: so many."""

    created: int
    updated: int


class AccountExpiry(EventData):
    """The time of an account of the fleet is over."""

    account_id: str
    username: str
    expires_at: str


class AccountQuota(EventData):
    """An account has used up its quota. `used` and `quota` are bytes; `period_end` is null for the period `total`."""

    account_id: str
    username: str
    used: int
    quota: int
    period: Period
    period_end: str | None


class AccountQuotaWarning(AccountQuota):
    """An account has used `percent` of its quota."""

    percent: float


class DeniedTunnel(EventData):
    """`target` is the host and port that the client asked for, `tls_name` the name in its TLS handshake, if any.

    `kind` is `mismatch`, `not_tls`, `no_name`, `malformed` or `timeout`.
    """

    target: str
    tls_name: str | None
    kind: str


class AccountTlsNames(EventData):
    """A proxy has refused tunnels of an account for the name in their TLS handshake: `count` from `since` on.

    `account_id` is null for a user that is no account, `username` for clients without credentials. `proxy` is the name
    of the proxy. `tunnels` are at most ten different ones of those that were refused.
    """

    account_id: str | None
    username: str | None
    proxy_id: str
    proxy: str
    count: int
    since: str
    tunnels: list[DeniedTunnel]


class CredentialAction(_Caused):
    """A credential of an account was made or revoked; `prefix` is the beginning of its secret, `name` may be empty."""

    credential_id: str
    name: str
    prefix: str
    account_id: str
    username: str
    expires_at: str


class PoolState(EventData):
    """None of the upstreams of a pool can be reached, or one can be again; `detail` says so."""

    pool: str
    detail: str


class PoolUpstreamState(PoolState):
    """An upstream of a pool is down, or up again."""

    upstream: str


class PoolUpstreamVerdict(_Caused):
    """A client's program reported that an upstream of a pool is good."""

    pool_id: str
    pool: str
    upstream: str


class PoolUpstreamBan(PoolUpstreamVerdict):
    """A client's program reported that an upstream of a pool is bad, for `seconds`."""

    seconds: int


class FailedSignIn(_Requested):
    """`username` as it was given, at most 64 characters; empty for a person from an identity provider."""

    username: str
    client_ip: str


class SettingsChange(_Caused):
    """`changed` are the keys; `source` is `file` after a reload of the configuration."""

    changed: list[str]
    source: Literal["api", "file"]


class SettingsReload(EventData):
    """The configuration was read again and is in effect. The changed keys of `needs_restart` wait for a restart."""

    needs_restart: list[str]


class ConfigRestored(_Caused):
    """The state after the revision `restored` was restored, which made `revision`."""

    restored: int
    revision: int


class ConfigUndone(_Caused):
    """The revision `undone` was undone, which made `revision`; what was changed after it stays."""

    undone: int
    revision: int


class NodeEvent(_Requested):
    """A node has joined the fleet, or was removed from it."""

    node_id: str
    name: str


class NodeSince(NodeEvent):
    """A node has not responded since then, or does so again; or it has no connection to the database since then."""

    since: str


class NodeFailure(NodeEvent):
    """A node can't apply the commit `revision` of an object, and serves what it had of that; `error` says why.

    `object_id` is in the collection `collection`; `object` is its name, if it has one.
    """

    collection: str
    object_id: str
    object: str | None
    revision: int
    error: str


class FleetRewind(NodeEvent):
    """The database was restored or failed over to an earlier state, as a node has found out.

    `revision` is the last commit that is in both, `commits` how many are gone. `file` on that node, in its data
    directory, has them and their documents.
    """

    revision: int
    commits: int
    file: str


class WebhookDisabled(_Requested):
    """`reason` says why it was disabled."""

    webhook_id: str
    name: str
    reason: str


class WebhookTest(_Requested):
    """Sent by a test to one webhook."""

    webhook_id: str
    name: str


def _named(kind: str, what: str = "Action", doc: str = "", **more: Any) -> type[EventData]:
    """The data of an event about an object of a kind that proxies name."""
    fields: dict[str, Any] = {f"{kind}_id": (str, ...), "name": (str, ...), **more}
    doc = doc or f"A {kind} was created or deleted."
    return create_model(f"{kind.capitalize()}{what}", __base__=_Caused, __doc__=doc, **fields)


def _failure(kind: str, doc: str) -> type[EventData]:
    return _named(kind, "Failure", doc, error=(str, ...))


def _changes(kind: str, action: type[EventData]) -> dict[str, type[EventData]]:
    """The events of a kind of object whose changes are published."""
    name, doc = action.__name__.replace("Action", "Change"), "`changed` are the names of the fields that differ."
    change = create_model(name, __base__=action, __doc__=doc, changed=(list[str], ...))
    return {f"{kind}.created": action, f"{kind}.updated": change, f"{kind}.deleted": action}


EVENT_DATA: Mapping[str, type[EventData]] = {
    **_changes("proxy", ProxyAction),
    "proxy.started": ProxyAction,
    "proxy.stopped": ProxyAction,
    "proxy.restarted": ProxyAction,
    "proxy.down": ProxyDown,
    "proxy.up": ProxyProcess,
    "proxy.error": ProxyProblem,
    "proxy.recovered": ProxyProblem,
    "high_error_rate": ErrorRate,
    "error_rate.recovered": ErrorRate,
    **_changes("user", UserAction),
    "api_key.created": KeyAction,
    "api_key.revoked": KeyAction,
    **_changes("account", AccountAction),
    "account.imported": AccountsImport,
    "account.expired": AccountExpiry,
    "account.quota_warning": AccountQuotaWarning,
    "account.quota_reached": AccountQuota,
    "account.tls_name_denied": AccountTlsNames,
    "credential.created": CredentialAction,
    "credential.revoked": CredentialAction,
    **_changes("pool", _named("pool")),
    "pool.error": _failure("pool", "The upstreams of a pool could not be fetched, after they could."),
    "pool.down": PoolState,
    "pool.up": PoolState,
    "upstream.down": PoolUpstreamState,
    "upstream.up": PoolUpstreamState,
    "upstream.banned": PoolUpstreamBan,
    "upstream.unbanned": PoolUpstreamVerdict,
    **_changes("list", _named("list")),
    "list.error": _failure("list", "A list could not be fetched, after it could."),
    **_changes("policy", _named("policy")),
    "auth.login_failed": FailedSignIn,
    "auth.locked": FailedSignIn,
    "settings.updated": SettingsChange,
    "settings.reloaded": SettingsReload,
    "config.restored": ConfigRestored,
    "config.undone": ConfigUndone,
    "node.joined": NodeEvent,
    "node.removed": NodeEvent,
    "node.down": NodeSince,
    "node.up": NodeSince,
    "node.cut_off": NodeSince,
    "node.failed": NodeFailure,
    "fleet.rewound": FleetRewind,
    "webhook.disabled": WebhookDisabled,
    "webhook.test": WebhookTest,
}
