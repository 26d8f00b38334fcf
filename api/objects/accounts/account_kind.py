"""Accounts of the fleet, which any number of proxies use: what a change has to pass, how they are read, and how they
come and go with a document, where proxies and plans are known by their names. Accounts of one proxy:
`inline_accounts`.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, StrictBool, model_validator

from actors.bus.messages.common import METRICS
from api.engine.kind import Kind
from api.engine.objects import Hooks, Proposals, load
from api.engine.records import Stored
from api.engine.responses import OF_INSTALLATION, ResponseModel, ScheduleView, shows
from api.engine.transfer import Transfer, entry_of, password, with_usual_quota, without
from api.errors import Invalid, PeerUnavailable
from api.objects.accounts.account_names import AccountNames, may_use
from api.objects.accounts.plan_kind import Announced, Plans, policies_given
from api.objects.proxies.proxy_cache import StoredProxy
from api.security.caller import Caller
from api.store.accounts import ACCOUNTS as COLLECTION
from api.store.accounts import PLANS, AccountSelection, AccountStore, Position
from config.model.accounts import AccountName, ProxyAccount
from config.model.fields import Body, Name
from config.model.fleet_accounts import (
    FleetAccount,
    FleetAccountUpdate,
    change_fleet_account,
    new_fleet_account,
)
from config.model.object_fields import Named, SomeTags, names_of_rules
from config.model.proxies import ProxyRecord
from config.model.proxy_parts import FieldWarning
from config.weak_passwords import weakness_of_account


class EntryAccountProxies(Body):
    """The proxies that an account may use: `all`, or each that one of the names or tags names."""

    all: StrictBool | None = None
    names: Annotated[list[Name], Field(max_length=1000)] | None = None
    tags: SomeTags | None = None

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


WARNED_MAX = 10
"""Open proxies that a warning names."""

Status = Literal["active", "disabled", "expired", "quota_reached"]


class StoredInline(Stored[FleetAccount]):
    """One of a proxy alone, as one of the fleet; the revision is that of the proxy."""


class FleetAccounts:
    """The `Records` of them, and pages. Thread-safe."""

    def __init__(self, accounts: AccountStore) -> None:
        self._accounts = accounts

    def all(self) -> Sequence[Stored[FleetAccount]]:
        """All of them; there may be very many."""
        return [load(ACCOUNTS, each) for each in self._accounts.find(ACCOUNTS.collection)]

    def get(self, identifier: str) -> Stored[FleetAccount] | None:
        """The one with this id."""
        found = self._accounts.get(ACCOUNTS.collection, identifier)
        return None if found is None else load(ACCOUNTS, found)

    def named(self, name: str) -> str | None:
        """The id of one with this name; several may have it."""
        return next((each.id for each in self._accounts.accounts_named(name)), None)

    def page(
        self, selection: AccountSelection, after: Position | None, limit: int
    ) -> tuple[list[tuple[Stored[FleetAccount], Position]], Position | None]:
        """A page with the position of each account, and the one that the next page follows, if there is one.

        Raises `PeerUnavailable` when figures of the metrics collector are sorted by and can't be read.
        """
        try:
            found, following = self._accounts.account_places(selection, after, limit)
        except sqlite3.Error as error:
            raise PeerUnavailable(METRICS, f"the usage of accounts cannot be read: {error}") from error
        return [(load(ACCOUNTS, each), place) for each, place in found], following


def hooks_of_accounts(
    accounts: AccountStore,
    names: AccountNames,
    plans: Plans,
    proxies_now: Callable[[], Sequence[StoredProxy]],
    announced: Announced,
    refuse_unknown: Callable[[Iterator[Named]], None],
    weak_passwords: Callable[[], bool],
) -> Hooks[FleetAccount]:
    """Changes are made under the lock of all names. `refuse_unknown` raises `Invalid` for the first name of no object;
    `weak_passwords` says whether any password is taken.
    """

    def make(_caller: Caller | None, before: FleetAccount | None, body: Any, path: str) -> FleetAccount:
        plan = "" if before is None else before.plan
        if "plan" in body.model_fields_set:
            plan = "" if body.plan is None else plans.id_of(body.plan, f"{path}plan")
        if before is None:
            after = new_fleet_account(body, plan, time.time())
        else:
            after = change_fleet_account(before, body, plan, time.time())
        known = None if before is None else before.password_hash
        why = weakness_of_account(body.password, after.username, known, after.password_hash)
        if why is not None and not weak_passwords():
            raise Invalid(f"{path}password", why)
        refuse_unknown_proxies(after, before, path)
        refuse_unknown_objects(after, path)
        return after

    def refuse_unknown_proxies(after: FleetAccount, before: FleetAccount | None, path: str) -> None:
        """Ids that the account has already may be of proxies that were deleted."""
        if not after.proxies.ids:
            return
        known = {each.record.id for each in proxies_now()} | {*(before.proxies.ids if before is not None else ())}
        for index, proxy_id in enumerate(after.proxies.ids):
            if proxy_id not in known:
                raise Invalid(f"{path}proxies.ids[{index}]", f"there is no proxy {proxy_id!r}")

    def refuse_unknown_objects(account: FleetAccount, path: str) -> None:
        refuse_unknown(each._replace(field=f"{path}{each.field}") for each in ACCOUNTS.refers(account))

    def check(proposals: Proposals[FleetAccount]) -> None:
        """Names and plans of all of the changes together."""
        for each in proposals:
            if each.after is not None:
                if each.after.plan and not accounts.revision_of(PLANS, each.after.plan):
                    raise Invalid(f"{each.path}plan", "was deleted at this moment")
                refuse_unknown_objects(each.after, each.path)
        names.refuse_accounts({each.id: each.after for each in proposals}, {each.id: each.path for each in proposals})

    def warnings(stored: Stored[FleetAccount]) -> list[FieldWarning]:
        """That the account may use no proxy; its proxies that ask for no credentials, or lack the policy of others."""
        account = stored.record
        proxies = [each.record for each in proxies_now() if may_use(account.proxies, each.record)]
        if not proxies and not account.proxies.all:
            return [FieldWarning("proxies", "there is no proxy with these ids or tags, so the account can use none")]
        warned = []
        if found := [each.name for each in proxies if not each.auth.enabled]:
            asked = "asks for no credentials: any client may use it"
            if len(found) > 1:
                asked = "ask for no credentials: any client may use them"
            warned.append(FieldWarning("proxies", f"{_some(found)} {asked}, and no account counts there"))
        plan = plans.known(account.plan)
        if account.policy is None and (plan is None or plan.policy is None):
            warned.extend(_without_fence(proxies))
        return warned

    return Hooks(lock=lambda proposals: announced(policies_given(proposals)), make=make, check=check, warnings=warnings)


def _without_fence(proxies: Sequence[ProxyRecord]) -> Iterator[FieldWarning]:
    """A policy of a proxy holds on that proxy alone, and the account may take another one."""
    policies = dict.fromkeys(each.policy for each in proxies if each.policy is not None)
    lacking = [each.name for each in proxies if each.policy is None]
    if policies and (lacking or len(policies) > 1):
        shared = (
            f"the policies {_some(list(policies))}" if len(policies) > 1 else f"the policy {next(iter(policies))!r}"
        )
        which = f"{len(lacking)} with none: {_some(lacking)}" if lacking else "each holds on its own proxies alone"
        text = f"the account may use {len(proxies)} proxies, some with {shared}, {which}"
        yield FieldWarning("policy", f"{text}. To fence the account, give it a policy of its own, or to its plan")


def _some(names: Sequence[str]) -> str:
    rest = f" and {len(names) - WARNED_MAX} more" if len(names) > WARNED_MAX else ""
    return ", ".join(map(repr, names[:WARNED_MAX])) + rest


def status_of(account: FleetAccount | ProxyAccount, now: float, quota_reached: bool = False) -> Status:
    """The present status."""
    if not account.enabled:
        return "disabled"
    if account.expires_at is not None and account.expires_at <= now:
        return "expired"
    return "quota_reached" if quota_reached else "active"
