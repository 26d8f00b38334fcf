"""The accounts and credentials of the shared table that this process uses, and those it used a moment ago.

While there is any, the table is asked every `POLL` seconds for what has changed. What is changed holds for the next
request: a change of a plan makes thousands of accounts outdated, of which some are brought up to date in each turn of
the loop, and before that each when it is asked for. The connections that are no longer allowed end in the turn after
that, since one of them may be what has just asked.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, NamedTuple, Protocol

from actors.bus.loop import Loop, Timer
from actors.bus.messages.specs import AccountSpec
from actors.forwarding.limits.accounts import (
    CERTIFICATE_REMOVED,
    NAME_NOT_ENOUGH,
    PASSWORD_CHANGED,
    REMOVED,
    REVOKED,
    Account,
    Credential,
    spec_of,
)
from actors.forwarding.limits.meter import Meter
from actors.garbage import spare_collections

if TYPE_CHECKING:
    from actors.accounts.records import CredentialRecord
    from actors.accounts.table import Changed

log = logging.getLogger(__name__)

POLL = 0.25
IDLE = 60.0
"""Seconds without connections after which an account or credential is forgotten; at once if it has expired."""
SWEEP = 10.0
UPDATED_AT_ONCE = 200
"""Accounts or credentials that are brought up to date in one turn at most; fewer when it has no time for them."""


class UnreadableError(Exception):
    """The table can't be read at the moment; the problem is reported already."""


class FoundAccount(NamedTuple):
    """An account with what it inherits, and the id of its plan, empty for none."""

    spec: AccountSpec
    plan: str


class AccountSource(Protocol):
    """Where accounts come from. All raise `UnreadableError`."""

    def named(self, username: str) -> FoundAccount | None:
        """The account with this name that may use the proxy."""

    def account(self, identifier: str) -> FoundAccount | None:
        """The account with this id, if it may use the proxy."""

    def credential_by_id(self, identifier: str) -> CredentialRecord | None:
        """The credential with this id."""

    def refresh(self) -> None:
        """Have `AccountsInUse.changed` called if something has changed."""


class _InUse:
    """An account, its plan, and when it was last in use by the loop's clock."""

    __slots__ = ("account", "plan", "used")

    def __init__(self, account: Account, plan: str, used: float) -> None:
        self.account = account
        self.plan = plan
        self.used = used


class AccountsInUse:
    """`by_name` are the accounts of the proxy by user name, where those in use are entered as well.

    `new` makes an object for a class and a spec, `on_changed` is called with each that came or changed,
    `on_dropped` with one that is used no more.
    """

    def __init__(
        self,
        loop: Loop,
        by_name: dict[str, Account],
        new: Callable[[type[Account], AccountSpec], Account],
        on_changed: Callable[[Account], None],
        on_dropped: Callable[[Account], None],
    ) -> None:
        self.source: AccountSource | None = None
        self.on_poll: Callable[[], None] = lambda: None
        """Called at each poll, as long as any is in use."""
        self._loop = loop
        self._by_name = by_name
        self._new = new
        self._on_changed = on_changed
        self._on_dropped = on_dropped
        self._accounts: dict[str, _InUse] = {}
        self._credentials: dict[str, _InUse] = {}
        self.outdated: dict[str, Callable[[str], None]] = {}
        """What is to be called for accounts and credentials, by id, to bring them up to date."""
        self._updates = False
        self._poll_timer: Timer | None = None
        self._swept = loop.now
        self._unswept: Iterator[tuple[dict[str, _InUse], str]] | None = None
        """Those that the sweep has still to check; None: it is over."""

    def __iter__(self) -> Iterator[Account]:
        """All accounts and credentials in use."""
        yield from (each.account for each in self._accounts.values())
        yield from (each.account for each in self._credentials.values())

    # --- what comes into use ---

    def account(self, username: str) -> Account | None:
        """The account of the table with this name, which is in use from now on. Raises `UnreadableError`."""
        found = None if self.source is None else self.source.named(username)
        if found is None:
            return None
        self.bring_up_to_date(found.spec.id)
        entry = self._accounts.get(found.spec.id)
        if entry is None:
            entry = self._accounts[found.spec.id] = self._take_into_use(Account, found)
        self._by_name[username] = entry.account
        return entry.account

    def credential(self, record: CredentialRecord) -> Account:
        """A credential that was found in the table, which is in use from now on. Raises `UnreadableError`."""
        self.bring_up_to_date(record.id)
        entry = self._credentials.get(record.id)
        if entry is None:
            entry = self._credentials[record.id] = self._take_into_use(Credential, FoundAccount(spec_of(record), ""))
        return entry.account

    def _take_into_use(self, kind: type[Account], found: FoundAccount) -> _InUse:
        account = self._new(kind, found.spec)
        self._on_changed(account)
        if self._poll_timer is None:
            self._poll_timer = self._loop.call_later(POLL, self._poll)
        return _InUse(account, found.plan, self._loop.now)

    # --- changes ---

    def _poll(self) -> None:
        self._poll_timer = None
        self.on_poll()
        if self.source is not None:
            try:
                self.source.refresh()
            except UnreadableError as error:
                log.debug("what has changed is not known yet: %s", error)
        if not self._updates:
            self._update_some()  # those that could not be read before
        self._sweep()
        if self._accounts or self._credentials:
            self._poll_timer = self._loop.call_later(POLL, self._poll)

    def changed(self, changes: set[Changed] | None) -> None:
        """What has changed in the table is applied to those in use, to the first at once; None: anything may have.

        Raises `UnreadableError`.
        """
        if changes is None:
            accounts, credentials = set(self._accounts), set(self._credentials)
        else:
            accounts = self._accounts_among(changes)
            credentials = {each for kind, each in changes if kind == "credential" and each in self._credentials}
        self.outdated.update(dict.fromkeys(accounts, self._update_account))
        self.outdated.update(dict.fromkeys(credentials, self._update_credential))
        if not self._updates:
            self._update_batch()

    def bring_up_to_date(self, identifier: str) -> None:
        """Apply what has changed to the account or credential with this id, if it waits for that.

        Raises `UnreadableError`, and the account stays as it is.
        """
        update = self.outdated.get(identifier)
        if update is not None:
            update(identifier)

    def _update_batch(self) -> None:
        """Bring the next ones up to date, and the others in the turns after this one. Raises `UnreadableError`."""
        for identifier in self._loop.while_time(tuple(islice(self.outdated, UPDATED_AT_ONCE))):
            self.bring_up_to_date(identifier)
        if self.outdated:
            spare_collections()
            self._updates = True
            self._loop.call_soon(self._update_some)

    def _update_some(self) -> None:
        self._updates = False
        try:
            self._update_batch()
        except UnreadableError as error:
            log.debug("accounts in use are brought up to date later: %s", error)

    def _accounts_among(self, changes: set[Changed]) -> set[str]:
        """Those in use that have changed, or whose plan has."""
        found = {identifier for kind, identifier in changes if kind == "account" and identifier in self._accounts}
        plans = {identifier for kind, identifier in changes if kind == "plan"}
        if plans:
            found.update(identifier for identifier, entry in self._accounts.items() if entry.plan in plans)
        return found

    def _update_account(self, identifier: str) -> None:
        assert self.source is not None
        entry = self._accounts[identifier]
        account, before = entry.account, entry.account.spec
        found = self.source.account(identifier)
        del self.outdated[identifier]
        renamed = found is not None and found.spec.username != before.username
        if (found is None or renamed) and self._by_name.get(before.username) is account:
            del self._by_name[before.username]
        if found is None:
            self._end_soon(account, account.meters, REMOVED)
            return
        entry.plan = found.plan
        self._by_name[found.spec.username] = account
        if found.spec == before:
            return
        account.update(found.spec, account.usage.wall())
        password_changed = not is_same_password(found.spec, before.password_hash)
        if renamed:
            self._end_soon(account, account.meters, REMOVED)
        elif password_changed:
            self._end_soon(account, account.with_password(), PASSWORD_CHANGED)
        if not renamed and found.spec.certificates != before.certificates:
            self._end_soon(account, account.without_certificate(), CERTIFICATE_REMOVED)
        if not (renamed or found.spec.socks4_by_name):
            self._end_soon(account, account.by_name(), NAME_NOT_ENOUGH)
        self._enforce_soon(account)

    def _update_credential(self, identifier: str) -> None:
        assert self.source is not None
        entry = self._credentials[identifier]
        record = self.source.credential_by_id(identifier)
        del self.outdated[identifier]
        if record is None:
            del self._credentials[identifier]
            self._on_dropped(entry.account)
            self._end_soon(entry.account, entry.account.meters, REVOKED)
        elif (spec := spec_of(record)) != entry.account.spec:
            entry.account.update(spec, entry.account.usage.wall())
            self._enforce_soon(entry.account)

    def _enforce_soon(self, account: Account) -> None:
        self._on_changed(account)
        self._loop.call_soon(lambda: account.enforce(account.usage.wall()))

    def _end_soon(self, account: Account, meters: Collection[Meter], reason: str) -> None:
        self._loop.call_soon(partial(_end, account, tuple(meters), reason))

    # --- what isn't used any more ---

    def _sweep(self) -> None:
        """Drop what isn't used any more, from time to time."""
        if self._unswept is None and self._loop.now - self._swept >= SWEEP:
            self._swept = self._loop.now
            self._unswept = chain(_each(self._accounts), _each(self._credentials))
            self._sweep_some()

    def _sweep_some(self) -> None:
        """Check as many as the turn has time for, and the others in the turns after this one."""
        now, wall = self._loop.now, time.time()
        for table, identifier in self._loop.while_time(self._unswept or ()):
            entry = table.get(identifier)
            if entry is None:
                continue
            if not entry.account.dormant:
                entry.used = now
            elif now - entry.used >= IDLE or entry.account.expired(wall):
                self._drop(table, identifier, entry.account)
        if self._loop.turn_exceeded():
            self._loop.call_soon(self._sweep_some)
        else:
            self._unswept = None

    def _drop(self, table: dict[str, _InUse], identifier: str, account: Account) -> None:
        del table[identifier]
        self.outdated.pop(identifier, None)
        self._on_dropped(account)
        if self._by_name.get(account.spec.username) is account:
            del self._by_name[account.spec.username]

    def __repr__(self) -> str:
        return f"<AccountsInUse: {len(self._accounts)} accounts, {len(self._credentials)} credentials>"


def _each(table: dict[str, _InUse]) -> Iterator[tuple[dict[str, _InUse], str]]:
    """The ids that are in the table when the first is asked for."""
    for identifier in tuple(table):
        yield table, identifier


def is_same_password(spec: AccountSpec, verified: str | None) -> bool:
    """Whether `verified`, a hash that the account has had, is of its present password."""
    if spec.password_hash == verified:
        return True
    if not spec.renewal or spec.password_hash is None or verified is None:
        return False
    from config.passwords import fingerprint, renewal  # which loads bcrypt

    return renewal(fingerprint(verified), spec.password_hash) == spec.renewal


def _end(account: Account, meters: tuple[Meter, ...], reason: str) -> None:
    """End the connections that are still the account's or credential's."""
    for meter in meters:
        if account in (meter.account, meter.credential) and meter.holder is not None:
            meter.holder.end(reason)
