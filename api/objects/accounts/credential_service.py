"""Credentials of accounts: made, listed and revoked; expired ones are removed some time after their end. And the
events of accounts of the fleet whose time is over: once for each end, also through restarts.

An end is published first and marked as announced when the event has left the process. One that was published
right before the API died is published again with its id, by which receivers know it. In a fleet each node has all ends
in its file, and claims those that it is about to publish: others mark them when they have been published.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Iterable
from typing import Any

from actors.bus.events import event_topic
from actors.bus.messages.events import Event
from api.bus_bridge import Bridge
from api.engine.commit import Engine
from api.errors import Invalid, NotFound
from api.fleet import ThisNode
from api.periodic_work import PeriodicWork
from api.store import NotStored, RevisionConflict, Write
from api.store.accounts import ACCOUNTS, CREDENTIALS, AccountEnd, AccountStore, Position
from config.model.account_credentials import AccountCredential, CredentialCreate, new_credential
from config.model.fleet_accounts import FleetAccount
from config.model.object_fields import Named, named_in
from config.model.subscriptions import checked
from config.text.formatting import timestamp_text

log = logging.getLogger(__name__)

LISTED_AFTER_END = 3600.0
"""Seconds for which an expired credential is still listed."""
PURGE_PERIOD = 60.0
PURGE_BATCH = 500
"""Credentials that are removed in one commit, so that changes of callers don't wait long."""

Publish = Callable[[str, dict[str, Any]], None]


class AccountCredentials:
    """Reads and changes. Thread-safe."""

    def __init__(
        self,
        engine: Engine,
        publish: Publish,
        refuse_unknown: Callable[[Iterable[Named]], None] = lambda _named: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`refuse_unknown` raises `Invalid` for the first name of no object."""
        self._engine = engine
        self._store = engine.accounts
        self._publish = publish
        self._clock = clock
        self._refuse_unknown = refuse_unknown

    def mint(self, account_id: str, body: CredentialCreate) -> tuple[AccountCredential, str]:
        """The new credential and its secret. Raises `NotFound`, `Invalid`, `InvalidResource`, `StoreError`."""
        now = self._clock()

        def check() -> FleetAccount:
            account = self._account(account_id)
            if not account.enabled:
                raise Invalid(None, "the account is disabled, which ends its credentials: enable it first")
            if account.expires_at is not None and account.expires_at <= now:
                raise Invalid(None, "the account has expired, and no credential outlives it")
            self._refuse_unknown(named_in(body.allow_destinations, "allow_destinations"))
            return account

        account = check()
        credential, secret = new_credential(account_id, account.expires_at, body, now)
        with self._engine.rechecked(check):
            self._engine.put(CREDENTIALS, credential.model_dump(mode="json"), expect=0)
        if self._store.get(ACCOUNTS, account_id) is None:  # deleted meanwhile, with the credentials that it had then
            self._delete(credential)
            raise NotFound("The account")
        self._publish("credential.created", _about(credential, account.username))
        return credential, secret

    def page(
        self, account_id: str, after: Position | None, limit: int
    ) -> tuple[list[AccountCredential], Position | None]:
        """At most `limit` credentials behind the position, and where the next page begins, if there is one.

        Raises `NotFound`.
        """
        self._account(account_id)
        found = [_load(each.body) for each in self._store.credentials_of(account_id, after, limit + 1)]
        page = found[:limit]
        return page, (page[-1].created_at, page[-1].id) if len(found) > limit else None

    def get(self, account_id: str, credential_id: str) -> AccountCredential:
        """One of the account's credentials. Raises `NotFound`."""
        self._account(account_id)
        document = self._store.get(CREDENTIALS, credential_id)
        if document is None or document.body["account_id"] != account_id:
            raise NotFound("The credential")
        return _load(document.body)

    def revoke(self, account_id: str, credential_id: str) -> None:
        """Remove a credential: it is refused from now on. Raises `NotFound`, `StoreError`."""
        account, credential = self._account(account_id), self.get(account_id, credential_id)
        if not self._delete(credential):
            raise NotFound("The credential")  # revoked twice at the same time
        self._publish("credential.revoked", _about(credential, account.username))

    def remove_expired(self) -> int:
        """Remove the credentials that expired some time ago, without entries of the audit trail; how many.

        Raises `StoreError`.
        """
        removed = 0
        while expired := self._store.expired_credentials(self._clock() - LISTED_AFTER_END, PURGE_BATCH):
            try:
                self._engine.commit_unrecorded([Write(CREDENTIALS, each.id, None, each.revision) for each in expired])
            except RevisionConflict:
                continue  # one was revoked at this moment
            removed += len(expired)
        return removed

    def _delete(self, credential: AccountCredential) -> bool:
        try:
            self._engine.delete(CREDENTIALS, credential.id)
        except NotStored:
            return False
        return True

    def _account(self, account_id: str) -> FleetAccount:
        document = self._store.get(ACCOUNTS, account_id)
        if document is None:
            raise NotFound("The account")
        return FleetAccount.model_validate(document.body)


class ExpiredCredentials(PeriodicWork):
    """Removes expired credentials, those that expired while the API was down among them.

    Each node of a fleet does so for itself: what is over is in no commit.
    """

    def __init__(self, credentials: AccountCredentials, period: float = PURGE_PERIOD) -> None:
        super().__init__("expired-credentials", "remove expired credentials", period, first_after=0.0)
        self._credentials = credentials

    def act(self) -> None:
        """See `PeriodicWork`."""
        removed = self._credentials.remove_expired()
        if removed:
            log.debug("removed %d expired credentials", removed)


def _about(credential: AccountCredential, username: str) -> dict[str, Any]:
    """The data of events about a credential."""
    return {
        "credential_id": credential.id,
        "name": credential.name,
        "prefix": credential.prefix,
        "account_id": credential.account_id,
        "username": username,
        "expires_at": timestamp_text(credential.expires_at),
    }


def _load(body: dict[str, Any]) -> AccountCredential:
    return AccountCredential.model_validate(body)


EXPIRED = "account.expired"
PERIOD = 2.0
"""Seconds between two runs, and from the start to the first one: before, the connection may not be there."""
SENT_AFTER = 0.2
"""Seconds after which a published event has left the process."""
BATCH = 500
"""Events of one run at most, so that receivers keep up."""


class AccountEnds:
    """Announces ends, in runs of one thread."""

    def __init__(
        self,
        store: AccountStore,
        bridge: Bridge,
        clock: Callable[[], float] = time.time,
        node: Callable[[], ThisNode] = ThisNode,
    ) -> None:
        self._store = store
        self._bridge = bridge
        self._clock = clock
        self._node = node
        self._published: dict[str, AccountEnd] = {}
        """By their keys."""

    def announce(self) -> int:
        """Publish the events of ends that have come and were not announced yet; how many. Raises `StoreError`."""
        self.settle()
        since = self._node().duties.announces_from()
        found = self._store.due_ends(self._clock(), BATCH)
        self._store.ends_announced([each for each in found if each.expires_at < since])
        due = {f"{EXPIRED}/{each.account_id}/{each.expires_at}": each for each in found if each.expires_at >= since}
        if not due:
            return 0
        claimed = self._node().duties.claim(due)
        self._store.ends_announced([due[key] for key in claimed.done])
        self._published = {key: due[key] for key in claimed.ours}
        for each in self._published.values():
            event = self._event(each)
            self._bridge.publish(event_topic(event), event)
        return len(self._published)

    def settle(self) -> None:
        """Mark what was published as announced. Raises `StoreError`; nothing is published again before it is marked."""
        if self._published:
            self._node().duties.announced(self._published)
            self._store.ends_announced(self._published.values())
        self._published = {}

    def _event(self, end: AccountEnd) -> Event:
        text = timestamp_text(end.expires_at)
        data = {"account_id": end.account_id, "username": end.username, "expires_at": text}
        digest = hashlib.sha256(f"{end.account_id} {end.expires_at}".encode()).hexdigest()
        return Event(f"evt_{digest[:24]}", EXPIRED, self._clock(), checked(EXPIRED, data))


class ExpiredAccounts(PeriodicWork):
    """Announces the ends of accounts, those that came while the API was down among them."""

    def __init__(self, ends: AccountEnds, node: Callable[[], ThisNode] = ThisNode, period: float = PERIOD) -> None:
        super().__init__(
            "expired-accounts",
            "announce accounts that have expired",
            period,
            period,
            lambda: node().cut_off_for() is None,  # else it can't claim
        )
        self._ends = ends

    def act(self) -> None:
        """See `PeriodicWork`."""
        if self._ends.announce() and self.pause(SENT_AFTER):
            self._ends.settle()
