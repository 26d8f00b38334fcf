"""Accounts of the fleet: which any number of proxies use. Accounts of one proxy are in `api.services.accounts`.

A change is prepared first, which hashes passwords, and then checked and stored under the lock of all names; any number
of them are one commit.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from actors.bus.messages.common import METRICS
from api.errors import Invalid, NotFound, PeerUnavailable, StaleRevision
from api.objects.plans.plans import Plans
from api.services.account_names import AccountNames, may_use
from api.services.proxy_cache import StoredProxy
from api.store import Document, RevisionConflict, Store, Write
from api.store.accounts import ACCOUNTS, PLANS, AccountSelection, AccountStore, Position
from api.store.records import is_same
from config.model.accounts import ProxyAccount
from config.model.fleet_accounts import (
    FleetAccount,
    FleetAccountCreate,
    FleetAccountUpdate,
    change_fleet_account,
    new_fleet_account,
)
from config.model.object_names import Named, names_of_rules
from config.model.proxies import ProxyRecord
from config.model.proxy_checks import Warned
from config.weak_passwords import weakness_of_account

ATTEMPTS = 5
"""Of a change without `If-Match` that other changes of the same account overtake."""
WARNED_MAX = 10
"""Open proxies that a warning names."""

Status = Literal["active", "disabled", "expired", "quota_reached"]


@dataclass(frozen=True, slots=True)
class StoredAccount:
    """An account and its revision; of an `inline` one, which belongs to its proxy alone, that of the proxy."""

    record: FleetAccount
    revision: int
    inline: bool = False


@dataclass(frozen=True, slots=True)
class AccountChange:
    """A prepared change: `before` None is a new account, `after` None a deletion. `path` precedes fields in errors."""

    before: StoredAccount | None
    after: FleetAccount | None
    path: str = ""

    @property
    def id(self) -> str:
        """Of the account."""
        if self.after is not None:
            return self.after.id
        assert self.before is not None
        return self.before.record.id

    @property
    def is_none(self) -> bool:
        """Whether nothing would change."""
        return self.before is not None and self.after is not None and is_same(self.before.record, self.after)

    def write(self) -> Write:
        """For the store."""
        body = None if self.after is None else self.after.model_dump(mode="json")
        return Write(ACCOUNTS, self.id, body, self.before.revision if self.before is not None else 0)


class FleetAccounts:
    """Reads and changes. Thread-safe.

    Changes raise `Invalid`, `InvalidResource`, `NotFound`, `StaleRevision`, `RevisionConflict` and `StoreWriteError`.
    """

    def __init__(
        self,
        store: Store,
        accounts: AccountStore,
        names: AccountNames,
        plans: Plans,
        proxies: Callable[[], Sequence[StoredProxy]],
        publish: Callable[[str, dict[str, Any]], None],
        refuse_unknown: Callable[[Iterator[Named]], None],
        announce: Callable[[Collection[str]], None],
    ) -> None:
        """`store` is `accounts` with an audit trail. `refuse_unknown` raises `Invalid` for the first name of no object.

        `announce` has proxies know policies (`SupervisorLink.announce`).
        """
        self._refuse_unknown = refuse_unknown
        self._announce = announce
        self._store = store
        self._accounts = accounts
        self._names = names
        self._plans = plans
        self._proxies = proxies
        self._publish = publish
        self.weak_passwords = False
        """Whether any password is taken."""

    # --- reading ---

    def get(self, account_id: str) -> StoredAccount:
        """One account. Raises `NotFound`."""
        document = self._store.get(ACCOUNTS, account_id)
        if document is None:
            raise NotFound("The account")
        return _load(document)

    def page(
        self, selection: AccountSelection, after: Position | None, limit: int
    ) -> tuple[list[tuple[StoredAccount, Position]], Position | None]:
        """A page with the position of each account, and the one that the next page follows, if there is one.

        Raises `PeerUnavailable` when figures of the metrics collector are sorted by and can't be read.
        """
        try:
            found, following = self._accounts.account_places(selection, after, limit)
        except sqlite3.Error as error:
            raise PeerUnavailable(METRICS, f"the usage of accounts cannot be read: {error}") from error
        return [(_load(each), place) for each, place in found], following

    def warnings(self, account: FleetAccount) -> list[Warned]:
        """That the account may use no proxy; its proxies that ask for no credentials, or lack the policy of others."""
        proxies = [each.record for each in self._proxies() if may_use(account.proxies, each.record)]
        if not proxies and not account.proxies.all:
            return [Warned("proxies", "there is no proxy with these ids or tags, so the account can use none")]
        warned = []
        if found := [each.name for each in proxies if not each.auth.enabled]:
            asked = "asks for no credentials: any client may use it"
            if len(found) > 1:
                asked = "ask for no credentials: any client may use them"
            warned.append(Warned("proxies", f"{_some(found)} {asked}, and no account counts there"))
        plan = self._plans.known(account.plan)
        if account.policy is None and (plan is None or plan.policy is None):
            warned.extend(_without_fence(proxies))
        return warned

    # --- changes ---

    def create(self, body: FleetAccountCreate) -> StoredAccount:
        """A new account."""
        (stored,) = self.commit([self.prepare_create(body)])
        assert stored is not None
        return stored

    def update(self, account_id: str, body: FleetAccountUpdate, if_match: int | None) -> StoredAccount:
        """Change any part of an account."""
        stored = self._repeated(if_match, lambda: self.prepare_update(account_id, body, if_match))
        assert stored is not None
        return stored

    def delete(self, account_id: str, if_match: int | None) -> None:
        """Delete an account, with its credentials."""
        self._repeated(if_match, lambda: self.prepare_delete(account_id, if_match))

    def prepare_create(self, body: FleetAccountCreate, path: str = "") -> AccountChange:
        """A new account, not stored yet. Hashes its password."""
        plan = "" if body.plan is None else self._plans.id_of(body.plan, f"{path}plan")
        record = new_fleet_account(body, plan, time.time())
        self._refuse_weak(body, None, record, path)
        self._refuse_unknown_proxies(record, None, path)
        self._refuse_unknown_objects(record, path)
        return AccountChange(None, record, path)

    def prepare_update(
        self, account_id: str, body: FleetAccountUpdate, if_match: int | None, path: str = ""
    ) -> AccountChange:
        """A changed account, not stored yet. Hashes its password, if that is new."""
        before = self._matching(account_id, if_match)
        plan = before.record.plan
        if "plan" in body.model_fields_set:
            plan = "" if body.plan is None else self._plans.id_of(body.plan, f"{path}plan")
        after = change_fleet_account(before.record, body, plan, time.time())
        self._refuse_weak(body, before.record, after, path)
        self._refuse_unknown_proxies(after, before.record, path)
        self._refuse_unknown_objects(after, path)
        return AccountChange(before, after, path)

    def prepare_delete(self, account_id: str, if_match: int | None, path: str = "") -> AccountChange:
        """A deletion, not made yet."""
        return AccountChange(self._matching(account_id, if_match), None, path)

    def commit(self, changes: Sequence[AccountChange]) -> list[StoredAccount | None]:
        """Store all of the changes or none; the accounts after it, None for a deleted one. Publishes their events.

        Raises `RevisionConflict` when one of them has changed since it was prepared.
        """
        pending = [each for each in changes if not each.is_none]
        with self.changing(policies_given(pending)):
            self.check(pending)
            number = self._store.commit([each.write() for each in pending]) if pending else None
        self.publish(pending)
        return [_after(each, None if each.is_none else number) for each in changes]

    @contextmanager
    def changing(self, policies: Collection[str]) -> Iterator[None]:
        """Holds up other changes. Accounts get these policies, which are at the proxies before an account needs them.

        Raises `Invalid`, `PeerUnavailable`.
        """
        self._announce(policies)
        with self._names.lock():
            self._refuse_unknown(Named("policies", name, "policy") for name in sorted(policies))
            yield

    def check(self, changes: Sequence[AccountChange]) -> None:
        """Check names and plans of all of the changes together. The caller holds the lock of names."""
        for each in changes:
            if each.after is not None and each.after.plan and not self._accounts.revision_of(PLANS, each.after.plan):
                raise Invalid(f"{each.path}plan", "was deleted at this moment")
            if each.after is not None:
                self._refuse_unknown_objects(each.after, each.path)
        self._names.refuse_accounts({each.id: each.after for each in changes}, {each.id: each.path for each in changes})

    def publish(self, changes: Sequence[AccountChange]) -> None:
        """Publish the events of changes that were made."""
        for each in changes:
            kind = "created" if each.before is None else "deleted" if each.after is None else "updated"
            record = each.after or (each.before.record if each.before is not None else None)
            assert record is not None
            self._publish(f"account.{kind}", {"account_id": record.id, "username": record.username})

    def _repeated(self, if_match: int | None, prepare: Callable[[], AccountChange]) -> StoredAccount | None:
        for attempt in range(ATTEMPTS):
            try:
                return self.commit([prepare()])[0]
            except RevisionConflict:
                if if_match is not None or attempt == ATTEMPTS - 1:
                    raise
        raise AssertionError

    def _matching(self, account_id: str, if_match: int | None) -> StoredAccount:
        stored = self.get(account_id)
        if if_match not in (None, stored.revision):
            raise StaleRevision(stored.revision)
        return stored

    def _refuse_weak(
        self, body: FleetAccountUpdate, before: FleetAccount | None, after: FleetAccount, path: str
    ) -> None:
        known = None if before is None else before.password_hash
        why = weakness_of_account(body.password, after.username, known, after.password_hash)
        if why is not None and not self.weak_passwords:
            raise Invalid(f"{path}password", why)

    def _refuse_unknown_proxies(self, after: FleetAccount, before: FleetAccount | None, path: str) -> None:
        """Ids that the account has already may be of proxies that were deleted."""
        if not after.proxies.ids:
            return
        known = {each.record.id for each in self._proxies()} | {*(before.proxies.ids if before is not None else ())}
        for index, proxy_id in enumerate(after.proxies.ids):
            if proxy_id not in known:
                raise Invalid(f"{path}proxies.ids[{index}]", f"there is no proxy {proxy_id!r}")

    def _refuse_unknown_objects(self, account: FleetAccount, path: str) -> None:
        self._refuse_unknown(each._replace(field=f"{path}{each.field}") for each in names_of_rules(account))


def _without_fence(proxies: Sequence[ProxyRecord]) -> Iterator[Warned]:
    """A policy of a proxy holds on that proxy alone, and the account may take another one."""
    policies = dict.fromkeys(each.policy for each in proxies if each.policy is not None)
    lacking = [each.name for each in proxies if each.policy is None]
    if policies and (lacking or len(policies) > 1):
        shared = (
            f"the policies {_some(list(policies))}" if len(policies) > 1 else f"the policy {next(iter(policies))!r}"
        )
        which = f"{len(lacking)} with none: {_some(lacking)}" if lacking else "each holds on its own proxies alone"
        text = f"the account may use {len(proxies)} proxies, some with {shared}, {which}"
        yield Warned("policy", f"{text}. To fence the account, give it a policy of its own, or to its plan")


def _some(names: Sequence[str]) -> str:
    rest = f" and {len(names) - WARNED_MAX} more" if len(names) > WARNED_MAX else ""
    return ", ".join(map(repr, names[:WARNED_MAX])) + rest


def policies_given(changes: Iterable[AccountChange]) -> set[str]:
    """The policies that accounts get by these changes."""
    return {
        each.after.policy
        for each in changes
        if each.after is not None
        and each.after.policy is not None
        and (each.before is None or each.before.record.policy != each.after.policy)
    }


def status_of(account: FleetAccount | ProxyAccount, now: float, quota_reached: bool = False) -> Status:
    """The present status."""
    if not account.enabled:
        return "disabled"
    if account.expires_at is not None and account.expires_at <= now:
        return "expired"
    return "quota_reached" if quota_reached else "active"


def _load(document: Document) -> StoredAccount:
    return StoredAccount(FleetAccount.model_validate(document.body), document.revision)


def _after(change: AccountChange, revision: int | None) -> StoredAccount | None:
    if change.after is None or revision is None:
        return None if change.after is None else change.before
    return StoredAccount(change.after, revision)
