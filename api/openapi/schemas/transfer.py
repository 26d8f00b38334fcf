"""Views of an export and of the outcome of an import. An existing secret is null, others are absent."""

from __future__ import annotations

from typing import Any, Literal

from api.openapi.schemas.base import Moment, ResponseModel
from api.openapi.schemas.derived import shows
from api.openapi.schemas.fleet_accounts import RulesView, SelfServiceView
from api.openapi.schemas.proxies import TlsView, UpstreamAuthView, UpstreamView
from api.openapi.schemas.shared_objects import ListSourceView, PoolSourceView, RuleView
from config.model.accounts import ProxyAccount
from config.model.auth_backend import AuthBackend
from config.model.lists import DestinationList
from config.model.policies import Policy
from config.model.pools import Pool
from config.model.proxies import ProxyRecord

_OF_INSTALLATION = ("id", "created_at", "updated_at")


@shows(AuthBackend)
class ExportedBackend(ResponseModel):
    """An authentication back end."""

    secret: None = None


class ExportedAuth(ResponseModel):
    """`auth` of an exported proxy."""

    enabled: bool
    username: str | None = None
    password: None = None
    backend: ExportedBackend | None = None


@shows(ProxyAccount, but=("id", "created_at"))
class ExportedAccount(ResponseModel):
    """An account of an exported proxy."""

    expires_at: Moment | None
    password: None = None


class ExportedUpstreamAuth(UpstreamAuthView):
    """The credentials for an upstream."""

    password: None = None


class ExportedUpstream(UpstreamView):
    """An upstream of an exported proxy."""

    auth: ExportedUpstreamAuth | None = None


@shows(ProxyRecord, but=_OF_INSTALLATION)
class ExportedProxy(ResponseModel):
    """A proxy."""

    port: int | str
    auth: ExportedAuth
    upstreams: list[ExportedUpstream]
    accounts: list[ExportedAccount]
    tls: TlsView | None = None


class ExportedLink(ResponseModel):
    """The identity of a user at an identity provider."""

    provider: str
    issuer: str
    subject: str


class ExportedUser(ResponseModel):
    """A user. `permissions` null means those of the role, `oauth` null no identity at a provider."""

    username: str
    email: str | None
    role: Literal["administrator", "operator", "user", "auditor"]
    permissions: list[str] | None
    status: Literal["active", "disabled"]
    password: None
    email_claimed: bool
    oauth: ExportedLink | None


class ExportedWebhook(ResponseModel):
    """A webhook. The values of its headers are null."""

    name: str
    url: str
    events: list[str]
    headers: dict[str, str | None]
    enabled: bool
    secret: None


class ExportedPlan(RulesView):
    """A plan."""

    name: str
    description: str
    self_service: SelfServiceView
    egress: list[str] | None
    disclose: bool


class ExportedAccountProxies(ResponseModel):
    """The proxies that an account may use."""

    all: bool | None = None
    names: list[str] | None = None
    tags: list[str] | None = None


class ExportedFleetAccount(RulesView):
    """An account of the fleet."""

    username: str
    password: None = None
    proxies: ExportedAccountProxies
    plan: str | None
    enabled: bool
    expires_at: Moment | None
    allow_clients: list[str]
    certificates: list[str]
    socks4_by_name: bool
    tags: list[str]
    metadata: dict[str, str]


@shows(DestinationList, but=_OF_INSTALLATION)
class ExportedList(ResponseModel):
    """A list, with `entries` or a `source`."""

    entries: list[str] | None = None
    source: ListSourceView | None = None


class ExportedPoolUpstream(ExportedUpstream):
    """An upstream of a pool."""

    labels: dict[str, str]


@shows(Pool, but=_OF_INSTALLATION)
class ExportedPool(ResponseModel):
    """A pool. It has its `upstreams`, or a `source`."""

    upstreams: list[ExportedPoolUpstream] | None = None
    source: PoolSourceView | None = None


@shows(Policy, but=_OF_INSTALLATION)
class ExportedPolicy(ResponseModel):
    """A policy."""

    rules: list[RuleView]


class Vault(ResponseModel):
    """All secrets, sealed with a key that is derived from the passphrase."""

    kdf: Literal["scrypt"]
    n: int
    r: int
    p: int
    salt: str
    cipher: Literal["AES-256-GCM"]
    nonce: str
    data: str


class ExportedConfig(ResponseModel):
    """The configuration as one document, which can be imported."""

    kind: Literal["proxyfleet.config"]
    version: Literal[1]
    proxies: list[ExportedProxy]
    users: list[ExportedUser]
    webhooks: list[ExportedWebhook]
    settings: dict[str, dict[str, Any]]
    plans: list[ExportedPlan]
    lists: list[ExportedList]
    pools: list[ExportedPool]
    policies: list[ExportedPolicy]
    accounts: list[ExportedFleetAccount] | None = None
    secrets: Vault | None = None


class FieldChange(ResponseModel):
    """A field that differs; a secret is `***`, an absent value null."""

    field: str
    before: Any
    after: Any


class ResourceChange(ResponseModel):
    """The change of one resource. `id` is null before it is created; `secret` is that of a new webhook."""

    kind: Literal["proxy", "user", "webhook", "plan", "account", "settings", "list", "pool", "policy"]
    name: str
    id: str | None
    action: Literal["create", "update", "delete", "unchanged"]
    fields: list[FieldChange]
    secret: str | None = None


class ImportSummary(ResponseModel):
    """The number of resources by action."""

    create: int
    update: int
    delete: int
    unchanged: int


class Planned(ResponseModel):
    """The changes to a configuration, or with `dry_run` those that would be made."""

    dry_run: bool
    changed: bool
    summary: ImportSummary
    changes: list[ResourceChange]


class NotCompared(ResponseModel):
    """What is unchanged because the document says nothing about it.

    `fields`: whether fields that its entries leave out are not compared, as in a document that is not minimal;
    `objects`: by section the number of those without an entry; `sections`: those that it lacks.
    """

    fields: bool
    objects: dict[str, int]
    sections: list[str]


class Imported(Planned):
    """The changes of an import, or with `dry_run` those that it would make."""

    not_compared: NotCompared
