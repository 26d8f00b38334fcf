"""The first start: makes the administrator, since there is no default password."""

from __future__ import annotations

from pathlib import Path

from api.audit.store import audited
from api.security import users
from api.security.new_passwords import check_strength, new_password
from api.security.users import ADMINISTRATOR
from api.store import Store, StoreWriteError
from config.files.durable import write_synced
from config.files.paths import DataDir


def ensure_administrator(store: Store, data: DataDir, password: str | None) -> str | None:
    """Create `admin` when there are no users.

    Returns the random password that was made up and written to `data.initial_password`, or None when nothing was made
    up: there are users already, or `password` was taken. The caller holds the lock of the data directory.
    Raises `StoreError`, `WeakPassword`.
    """
    if store.find(users.COLLECTION):
        return None
    chosen = new_password() if password is None else check_strength(password)
    if password is None:
        _write_private(data.initial_password, chosen)
    body = users.UserCreate(username=ADMINISTRATOR, password=chosen, role="administrator")
    with audited(data, store, "system", "first-start") as recorded:
        recorded.put(users.COLLECTION, users.new_user(body).model_dump(mode="json"), expect=0)
    return chosen if password is None else None


def _write_private(path: Path, text: str) -> None:
    """Write the password before the user exists: else a crash between would lose the only way to sign in."""
    try:
        write_synced(path, f"{text}\n".encode())
    except OSError as error:
        raise StoreWriteError(f"{path}: {error.strerror or error}") from error
