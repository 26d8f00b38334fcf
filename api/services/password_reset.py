"""A new password for a user who has lost theirs, given from the command line on the product's machine.

The running API does it with its own store (`api.services.command_link`), an offline command with one that it opens
itself.
"""

from __future__ import annotations

import time

from api.audit import AuditedStore
from api.operator.bootstrap import check_strength, new_password
from api.services import users
from api.services.revocation import commit_and_revoke
from api.services.users import User
from api.store import Store, Write
from config.passwords import hash_password

OPERATION = "reset-password"
"""What the audit trail calls it."""


class UnknownUser(ValueError):
    """There is no user of this name; the text names the users."""


def reset(store: AuditedStore, username: str, password: str | None) -> tuple[User, str]:
    """Give a user a new password, a random one when `password` is None, and end all their sign-ins in the same step.

    Returns the user as stored, and the password. A disabled user stays disabled. Raises `UnknownUser`,
    `first_start.WeakPassword`, `StoreError`.
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
