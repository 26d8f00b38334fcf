"""Accounts of the fleet: how they come and go with a document, where proxies and plans are known by their names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, StrictBool, model_validator

from api.engine.kind import Kind
from api.engine.responses import OF_INSTALLATION, shows
from api.engine.transfer import Transfer, entry_of, password, with_usual_quota, without
from api.openapi.schemas.base import ResponseModel
from api.openapi.schemas.fleet_accounts import ScheduleView
from api.store.accounts import ACCOUNTS as COLLECTION
from config.model.accounts import AccountName
from config.model.fields import Body, Name
from config.model.fleet_accounts import FleetAccount, FleetAccountUpdate, ProxyTags
from config.model.object_names import names_of_rules


class EntryAccountProxies(Body):
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
    proxies: EntryAccountProxies | None = None

    @property
    def hides_password(self) -> bool:
        """Whether the password is null: it exists, but is not in the document."""
        return "password" in self.model_fields_set and self.password is None and self.password_hash is None


class ExportedAccountProxies(ResponseModel):
    """The proxies that an account may use."""

    all: bool | None = None
    names: list[str] | None = None
    tags: list[str] | None = None


@shows(FleetAccount, but=OF_INSTALLATION)
class ExportedFleetAccount(ResponseModel):
    """An account of the fleet."""

    password: None = None
    proxies: ExportedAccountProxies
    plan: str | None
    schedule: ScheduleView | None


@dataclass(frozen=True, slots=True)
class AccountNaming:
    """Ids by names, and the other way round: of plans and proxies as they would be."""

    plans: Mapping[str, str]
    proxies: Mapping[str, str]
    plan_names: Mapping[str, str]
    proxy_names: Mapping[str, str]

    def entry(self, account: FleetAccount) -> dict[str, Any]:
        """An entry of `accounts`. Proxies that are deleted have no name, and are left out."""
        named = account.proxies
        proxies: dict[str, Any] = {"all": True} if named.all else {}
        if named.ids or not (named.all or named.tags):
            proxies["names"] = sorted(self.proxy_names[each] for each in named.ids if each in self.proxy_names)
        if named.tags:
            proxies["tags"] = list(named.tags)
        return {
            "username": account.username,
            **password(account.password_hash),
            "proxies": proxies,
            "plan": self.plan_names.get(account.plan),
            **without(entry_of(account), "username", "proxies", "plan"),
        }


NOTHING_NAMED = AccountNaming({}, {}, {}, {})

_BLANK = {
    **NOTHING_NAMED.entry(FleetAccount(id="", username="blank", created_at=0.0, updated_at=0.0)),
    "password": None,
}

TRANSFER = Transfer(
    model=AccountEntry,
    exported=ExportedFleetAccount,
    entry=NOTHING_NAMED.entry,
    key=lambda each: each.username,
    identity="username",
    blank=_BLANK,
    usual=with_usual_quota(_BLANK),
)


ACCOUNTS = Kind(
    name="account",
    collection=COLLECTION,
    model=FleetAccount,
    transfer=TRANSFER,
    in_document=10_000,
    refers=names_of_rules,
    unique_names=False,
    events=True,
    in_events=("username",),
)
