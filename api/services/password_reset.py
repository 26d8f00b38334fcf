"""A new password for a user who has lost theirs, set from the command line on the product's machine.

The running API does it with its own store (`PasswordResetHandler`), an offline command with one that it opens itself.
No sign-in is needed: the run directory, which belongs to the product's own user (0700), is the protection.

The sign-ins and keys that end with a new password, or when a user is deleted or disabled, are revoked in the same
commit. With two, a crash between them would leave a new password, and tokens that were issued for the old one.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from actors.bus.mailbox import Reply
from actors.bus.messages.common import Failed, PasswordReset, ResetPassword
from api.audit.context import on_behalf_of
from api.bus_bridge import LoopBridge
from api.engine.commit import Engine, size_of
from api.security import api_keys, tokens, users
from api.security.api_keys import ApiKey
from api.security.login_throttle import LoginThrottle
from api.security.users import User, WeakPassword, check_strength, new_password
from api.store import Store, StoreError, Write
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
    known = _user(store, username)
    chosen = new_password() if password is None else check_strength(password, known.username)
    hashed = hash_password(chosen)  # bcrypt takes its time, so no lock is held
    with users.one_change:
        user = _user(store, username)
        changed = user.model_copy(update={"password_hash": hashed, "updated_at": time.time()})
        commit_and_revoke(store, [Write(users.COLLECTION, user.id, changed.model_dump(mode="json"))], [user.id])
    return changed, chosen


def _user(store: Store, username: str) -> User:
    user = users.by_name(store, username)
    if user is None:
        known = sorted(document.body["username"] for document in store.find(users.COLLECTION))
        raise UnknownUser(f"there is no user {username!r}; users: {', '.join(known) or 'none'}")
    return user


def commit_and_revoke(
    engine: Engine, writes: Sequence[Write], signed_out: Iterable[str], gone: Iterable[str] = ()
) -> tuple[int, list[ApiKey]]:
    """Commit `writes`, delete all sign-ins of the users `signed_out` and `gone` (ids), and all keys of `gone`.

    Returns the number of the commit, and the keys that were revoked. The caller holds `users.one_change`, so that no
    sign-in or key is added meanwhile. Raises as `Store.commit`.
    """
    without_keys = tuple(gone)
    ended_users = (*signed_out, *without_keys)
    with engine.exclusive(size_of(writes)):
        families = [each.id for user in ended_users for each in engine.find(tokens.COLLECTION, user_id=user)]
        keys = [each for user in without_keys for each in engine.find(api_keys.COLLECTION, user_id=user)]
        ended = [Write(tokens.COLLECTION, family, None) for family in families]
        ended += [Write(api_keys.COLLECTION, key.id, None) for key in keys]
        return engine.commit([*writes, *ended]), [api_keys.load(key) for key in keys]


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
                self._publish("user.updated", users.about(user))
        except UnknownUser as error:
            return Failed(str(error), "username")
        except (WeakPassword, StoreError) as error:
            return Failed(str(error))
        log.warning("the password of %s was reset from the command line", user.username)
        return PasswordReset(user.status != "active", password)
