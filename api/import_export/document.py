"""The models of the document that an import takes. Exports have the same fields.

A field that is left out stays as it is, and has its default in a new resource; in a minimal document it has its default
in a resource that is there, too. A section that is left out is not changed. A secret may be null: then the stored one
stays, or the one in `secrets` is taken.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, StrictBool, StrictStr, model_validator

from api.security.users import Email, NewPassword, Permissions, Role, Status, Username
from api.services.object_kinds import LISTS, POLICIES, POOLS
from api.services.plans import MAX_PLANS
from api.services.webhooks import MAX_WEBHOOKS
from config.model import json_patterns
from config.model.accounts import AccountInput, AccountName
from config.model.auth_backend import BackendInput
from config.model.choices import ProxyStatus
from config.model.fields import NULLABLE, Input, Name, Part, Password, example, example_of
from config.model.fields import Username as ClientName
from config.model.fleet_accounts import FleetAccountUpdate, ProxyTags
from config.model.lists import ListUpdate
from config.model.object_fields import ObjectName
from config.model.plans import PlanUpdate
from config.model.policies import PolicyUpdate
from config.model.pools import PoolUpdate, PoolUpstreamInput
from config.model.proxies import AuthInput, ProxyCreate, ProxyUpdate
from config.model.upstreams import ALL_UPSTREAMS, ONE_UPSTREAM, UpstreamAuth, UpstreamInput
from config.model.upstreams import Password as UpstreamPassword
from config.model.webhooks import Events, Secret, SparseHeaders, Url
from config.settings.runtime import SettingsUpdate

KIND = "proxyfleet.config"
VERSION = 1
MOST_PROXIES = 10_000
MOST_USERS = 10_000
MOST_ACCOUNTS = 10_000
"""Accounts of the fleet; more of them are exported and imported as CSV."""

_Text = Annotated[StrictStr, Field(min_length=1, max_length=1024)]


class EntryBackend(BackendInput):
    """`auth.backend` of an entry."""

    secret: Annotated[Secret | None, NULLABLE] = Field(None, repr=False)


class EntryAuth(AuthInput):
    """`auth` of an entry. `username` null: there is to be none, and no password of it."""

    username: Annotated[ClientName | None, NULLABLE] = None
    password: Annotated[Password | None, NULLABLE] = Field(None, repr=False)
    backend: Annotated[EntryBackend | None, NULLABLE] = None


class EntryAccount(Part, AccountInput):
    """An account of an entry."""

    password: Annotated[Password | None, NULLABLE] = Field(None, repr=False)


class EntryUpstreamAuth(Part, UpstreamAuth):
    """`auth` of an upstream of an entry."""

    password: Annotated[UpstreamPassword | None, NULLABLE] = Field(None, repr=False)


class EntryUpstream(UpstreamInput):
    """An upstream of an entry."""

    auth: EntryUpstreamAuth | None = None

    @property
    def hides_password(self) -> bool:
        """Whether the password is null: it exists, but is not in the document."""
        return self.auth is not None and "password" in self.auth.model_fields_set and self.auth.password is None


EntryAccounts = list[EntryAccount]
EntryUpstreams = Annotated[list[Annotated[EntryUpstream, *ONE_UPSTREAM]], *ALL_UPSTREAMS]


class ProxyEntry(ProxyUpdate):
    """A proxy, known by its `name`. A new one needs `port` and `protocol`, and is active unless it says otherwise."""

    name: Name
    status: ProxyStatus | None = None
    auth: EntryAuth | None = None
    # Lists of subclasses: the model is frozen, and nothing is added to its lists.
    accounts: EntryAccounts | None = None  # type: ignore[assignment]  # see above
    upstreams: EntryUpstreams | None = None  # type: ignore[assignment]  # see above


class OAuthEntry(Input):
    """Who a user is at an identity provider."""

    provider: _Text
    issuer: _Text
    subject: _Text


OF_ROLE = "role"
"""For formats without null: `permissions` that are those of the role. There, `email` and `oauth` are empty texts."""

SparsePermissions = Annotated[
    Permissions | None,
    BeforeValidator(
        lambda given: None if given == OF_ROLE else given,
        json_schema_input_type=Permissions | Literal["role"] | None,
    ),
]
SparseEmail = Annotated[
    Email | None,
    BeforeValidator(lambda given: None if given == "" else given, json_schema_input_type=Email | Literal[""] | None),
]
SparseLink = Annotated[
    OAuthEntry | None,
    BeforeValidator(
        lambda given: None if given == "" else given, json_schema_input_type=OAuthEntry | Literal[""] | None
    ),
]


class UserEntry(Part):
    """A user, known by `username`. `permissions` null are those of the role; `email` and `oauth` null are none.

    Formats that have no null say `"role"` and an empty text.
    """

    username: Username
    email: Annotated[SparseEmail, NULLABLE] = None
    role: Role | None = None
    permissions: Annotated[SparsePermissions, NULLABLE] = None
    status: Status | None = None
    password: Annotated[NewPassword | None, NULLABLE] = Field(None, repr=False)
    email_claimed: StrictBool | None = None
    oauth: Annotated[SparseLink, NULLABLE] = None


class WebhookEntry(Part):
    """A webhook. A header whose value is null (or empty, for formats that have no null) keeps the value that it has."""

    name: Name
    url: Url
    events: Events | None = None
    headers: SparseHeaders | None = Field(None, repr=False)
    enabled: StrictBool | None = None
    secret: Annotated[Secret | None, NULLABLE] = Field(None, repr=False)


class PlanEntry(PlanUpdate):
    """A plan, known by its `name`."""

    name: Name


class EntryAccountProxies(Part):
    """The proxies that an account may use: `all`, or each that one of the names or tags names."""

    all: StrictBool | None = None
    names: Annotated[list[Name], Field(max_length=1000)] | None = None
    tags: ProxyTags | None = None

    @model_validator(mode="after")
    def _names_some(self) -> EntryAccountProxies:
        if not (self.all or self.names is not None or self.tags):
            raise ValueError('must name proxies: {"all": true}, {"names": ["…"]} or {"tags": ["…"]}')
        return self


class AccountEntry(FleetAccountUpdate):
    """An account of the fleet, known by its `username`, or by that and `proxies` if several have the same.

    `password` null: it exists, but is not in the document.
    """

    username: AccountName
    proxies: EntryAccountProxies | None = None  # type: ignore[assignment]  # the model is frozen

    @property
    def hides_password(self) -> bool:
        """Whether the password is null: it exists, but is not in the document."""
        return "password" in self.model_fields_set and self.password is None and self.password_hash is None


class ListEntry(ListUpdate):
    """A list, known by its `name`. A new one needs `kind`."""

    name: ObjectName


class EntryPoolUpstream(EntryUpstream, PoolUpstreamInput):
    """An upstream of a pool of an entry."""


EntryPoolUpstreams = Annotated[list[Annotated[EntryPoolUpstream, *ONE_UPSTREAM]], *ALL_UPSTREAMS]


class PoolEntry(PoolUpdate):
    """A pool, known by its `name`."""

    name: ObjectName
    upstreams: EntryPoolUpstreams | None = None  # type: ignore[assignment]  # the model is frozen


class PolicyEntry(PolicyUpdate):
    """A policy, known by its `name`."""

    name: ObjectName


_Base64 = Annotated[StrictStr, json_patterns.text("^[A-Za-z0-9+/]*={0,2}$")]


class SealedSecrets(Input):
    """`secrets`: everything that is null elsewhere, under a key that is derived from a passphrase."""

    kdf: Literal["scrypt"]
    n: Literal[16384, 32768, 65536, 131072]
    r: Literal[8]
    p: Literal[1]
    salt: Annotated[_Base64, Field(max_length=88)]
    cipher: Literal["AES-256-GCM"]
    nonce: Annotated[_Base64, Field(max_length=24)]
    data: _Base64


class ConfigDocument(Part):
    """The body of an import. A section that is left out is not touched.

    With `minimal` each field that an object in it leaves out has its default, as `export --minimal` means it.
    """

    model_config = example(
        {
            "kind": "proxyfleet.config",
            "version": 1,
            "proxies": [{**example_of(ProxyCreate), "status": "active"}],
            "users": [{"username": "bob", "role": "operator", "password": "correct horse battery"}],
            "settings": example_of(SettingsUpdate),
        }
    )

    kind: Literal["proxyfleet.config"]
    version: Literal[1]
    minimal: StrictBool | None = None
    proxies: Annotated[list[ProxyEntry], Field(max_length=MOST_PROXIES)] | None = None
    users: Annotated[list[UserEntry], Field(max_length=MOST_USERS)] | None = None
    webhooks: Annotated[list[WebhookEntry], Field(max_length=MAX_WEBHOOKS)] | None = None
    settings: SettingsUpdate | None = None
    plans: Annotated[list[PlanEntry], Field(max_length=MAX_PLANS)] | None = None
    accounts: Annotated[list[AccountEntry], Field(max_length=MOST_ACCOUNTS)] | None = None
    lists: Annotated[list[ListEntry], Field(max_length=LISTS.most)] | None = None
    pools: Annotated[list[PoolEntry], Field(max_length=POOLS.most)] | None = None
    policies: Annotated[list[PolicyEntry], Field(max_length=POLICIES.most)] | None = None
    secrets: SealedSecrets | None = None
