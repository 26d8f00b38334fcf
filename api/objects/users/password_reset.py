"""A new password for a user who has lost theirs, set from the command line on the product's machine.

The running API does it with its own store (`PasswordResetHandler`), an offline command with one that it opens itself.
No sign-in is needed: the run directory, which belongs to the product's own user (0700), is the protection.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from actors.bus.mailbox import Reply
from actors.bus.messages.common import Failed, PasswordReset, ResetPassword
from api.audit.audit_context import on_behalf_of
from api.bus_bridge import LoopBridge
from api.engine.commit import Engine
from api.objects.users.user_kind import USERS, commit_and_revoke
from api.security import users
from api.security.login_throttle import LoginThrottle
from api.security.users import User, WeakPassword, check_strength, new_password
from api.store import Document, Store, StoreError, Write, repeated
from config.passwords import hash_password

log = logging.getLogger(__name__)

OPERATION = "reset-password"
"""Its name in the audit trail."""


class UnknownUser(ValueError):
    """There is no user of this name; the text names the users."""


def reset(store: Engine, username: str, password: str | None) -> tuple[User, str]:
    """Give a user a new password, a random one when `password` is None, and end all their sign-ins in the same step.

    Returns the user as stored, and the password. A disabled user stays disabled. Raises `UnknownUser`,
    `WeakPassword`, `StoreError`.
    """
    known = users.load(_document(store, username))
    chosen = new_password() if password is None else check_strength(password, known.username)
    hashed = hash_password(chosen)  # bcrypt takes its time, so no lock is held

    def change() -> User:
        document = _document(store, username)
        user = users.load(document)
        changed = user.model_copy(update={"password_hash": hashed, "updated_at": time.time()})
        write = Write(users.COLLECTION, user.id, changed.model_dump(mode="json"), document.revision)
        commit_and_revoke(store, [write], [(user, changed)])
        return changed

    with users.one_change:
        return repeated(change), chosen


def _document(store: Store, username: str) -> Document:
    user = users.by_name(store, username)
    document = None if user is None else store.get(users.COLLECTION, user.id)
    if document is None:
        known = sorted(document.body["username"] for document in store.find(users.COLLECTION))
        raise UnknownUser(f"there is no user {username!r}; users: {', '.join(known) or 'none'}")
    return document


class PasswordResetHandler:
    """Used by the loop thread of the API's process."""

    def __init__(
        self,
        store: Engine,
        attempts: LoginThrottle,
        publish: Callable[[str, dict[str, Any]], None],
        bridge: LoopBridge,
    ) -> None:
        self._store = store
        self._attempts = attempts
        self._publish = publish
        self._bridge = bridge

    def receive(self, message: Any, reply: Reply) -> bool:
        """Handle a message of the command line; False for any other message."""
        if not isinstance(message, ResetPassword):
            return False
        # A new password is hashed and waits for the disk, which the loop's own thread must not do.
        threading.Thread(target=self._handle, args=(message, reply), name="reset-password", daemon=True).start()
        return True

    def _handle(self, message: ResetPassword, reply: Reply) -> None:
        outcome = self._reset(message)
        self._bridge.call(lambda: reply(outcome))

    def _reset(self, message: ResetPassword) -> PasswordReset | Failed:
        try:
            with on_behalf_of("command_line", OPERATION):
                user, password = reset(self._store, message.username, message.password)
                self._attempts.forget(user.username)
                self._publish("user.updated", USERS.about(user))
        except UnknownUser as error:
            return Failed(str(error), "username")
        except (WeakPassword, StoreError) as error:
            return Failed(str(error))
        log.warning("the password of %s was reset from the command line", user.username)
        return PasswordReset(user.status != "active", password)
