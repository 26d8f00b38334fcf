"""New hashes of accounts whose hash is foreign: made when the right password comes, here or at a proxy.

It is the same password, so what was authenticated by the previous hash goes on (`config.passwords.renewal`).
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from actors.bus.mailbox import Reply
from actors.bus.messages.accounts import RenewPassword
from actors.bus.messages.common import Done, Failed
from api.audit.audit_context import on_behalf_of
from api.bus_bridge import LoopBridge
from api.store import LedgerError, NotStored, RevisionConflict, Store, StoreError
from api.store.accounts import ACCOUNTS
from config.model.fleet_accounts import FleetAccount
from config.passwords import COST, fingerprint, is_foreign, renewal, rounds_of

log = logging.getLogger(__name__)

OPERATION = "renew-password"
"""Its name in the audit trail."""
WAITING_MAX = 100
"""Messages that wait; those beyond come again with a later sign-in."""


class PasswordRenewal:
    """Stores new hashes. Thread-safe. `store` is that of accounts with an audit trail."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def renew(self, account_id: str, previous: str, renewed: str) -> bool:
        """Store the hash in place of the previous one; False when that is no longer the account's, or can't be renewed.

        Raises `StoreError`.
        """
        document = self._store.get(ACCOUNTS, account_id)
        account = None if document is None else FleetAccount.model_validate(document.body)
        if document is None or account is None or account.password_hash != previous:
            return False
        if not is_foreign(previous) or is_foreign(renewed) or rounds_of(renewed) != 1 << COST:
            return False
        link = renewal(fingerprint(previous), renewed)
        after = account.model_copy(update={"password_hash": renewed, "renewal_hash": link})
        try:
            with on_behalf_of("system", OPERATION):
                self._store.put(ACCOUNTS, after.model_dump(mode="json"), document.revision)
        except (RevisionConflict, NotStored):
            return False  # it was changed at this moment
        return True


class PasswordRenewalHandler:
    """Handles the messages of forwarding actors. Used by the loop thread of the API's process."""

    def __init__(self, renewal: PasswordRenewal, bridge: LoopBridge) -> None:
        self._renewal = renewal
        self._bridge = bridge
        # A change waits for the disk, which the loop's own thread must not do.
        self._thread = ThreadPoolExecutor(1, "renew-passwords")
        self._waiting = 0

    def receive(self, message: Any, reply: Reply) -> bool:
        """Handle a message of a forwarding actor; False for any other message."""
        if not isinstance(message, RenewPassword):
            return False
        if self._waiting >= WAITING_MAX:
            reply(Failed("too many changes of passwords wait"))
            return True
        self._waiting += 1
        self._thread.submit(self._handle, message, reply)
        return True

    def close(self) -> None:
        """Finish the one that is under way."""
        self._thread.shutdown(cancel_futures=True)

    def _handle(self, message: RenewPassword, reply: Reply) -> None:
        outcome: Done | Failed = Done()
        try:
            if not self._renewal.renew(message.account_id, message.previous, message.renewed):
                outcome = Failed("the account has another password by now")
        except StoreError as error:
            level = logging.DEBUG if isinstance(error, LedgerError) else logging.ERROR  # it waits for the database
            log.log(level, "cannot store the new hash of %s: %s", message.account_id, error)
            outcome = Failed(str(error))
        self._bridge.call(lambda: self._end(outcome, reply))

    def _end(self, outcome: Done | Failed, reply: Reply) -> None:
        self._waiting -= 1
        reply(outcome)
