"""The first start: makes the administrator, since there is no default password."""

from __future__ import annotations

from pathlib import Path

from api.engine.commit import open_engine
from api.security import users
from api.security.new_passwords import check_strength, new_password
from api.security.users import ADMINISTRATOR
from api.store import StoreWriteError
from config.files.durable import write_synced
from config.files.paths import DataDir


def ensure_administrator(data: DataDir, password: str | None) -> str | None:
    """Create `admin` when there are no users.

    Returns the random password that was made up and written to `data.initial_password`, or None when nothing was made
    up: there are users already, or `password` was taken. The caller holds the lock of the data directory.
    Raises `StoreError`, `WeakPassword`.
    """
    with open_engine(data, "system", "first-start") as engine:
        if engine.find(users.COLLECTION):
            return None
        chosen = new_password() if password is None else check_strength(password)
        if password is None:
            _write_private(data.initial_password, chosen)
        body = users.UserCreate(username=ADMINISTRATOR, password=chosen, role="administrator")
        engine.put(users.COLLECTION, users.new_user(body).model_dump(mode="json"), expect=0)
        return chosen if password is None else None


def _write_private(path: Path, text: str) -> None:
    """Write the password before the user exists: else a crash between would lose the only way to sign in."""
    try:
        write_synced(path, f"{text}\n".encode())
    except OSError as error:
        raise StoreWriteError(f"{path}: {error.strerror or error}") from error
