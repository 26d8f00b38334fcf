"""Changes of the configuration from the command line, most of them while the product is not running."""

from __future__ import annotations

import time
from typing import Any

from api.audit import Trail
from api.audit.context import on_behalf_of
from api.audit.store import audited
from api.security import users
from api.security.signing import SigningKeys
from api.security.tokens import last_token_end
from api.security.users import ADMINISTRATOR
from api.services import settings
from api.services.password_reset import OPERATION, reset
from api.store import StoreError, open_store
from api.store.storage import parse
from config.files.paths import DataDir, forget_initial_password
from config.model.proxies import ProxyRecord
from config.settings.runtime import Stored


def reset_password(data: DataDir, username: str, password: str | None) -> str:
    """Give a user a new password, a random one when `password` is None, and return it. All their tokens end.

    A disabled user stays disabled. The caller holds the lock of the data directory.
    Raises `password_reset.UnknownUser`, `first_start.WeakPassword`, `StoreError`.
    """
    store = open_store(data)
    try:
        with audited(data, store, "command_line", OPERATION) as recorded:
            user, chosen = reset(recorded, username, password)
        if user.username == ADMINISTRATOR:
            forget_initial_password(data)
        return chosen
    finally:
        store.close()


def is_disabled(data: DataDir, username: str) -> bool:
    """Whether this user's account is disabled. The caller holds the lock. Raises `StoreError`."""
    store = open_store(data)
    try:
        user = users.by_name(store, username)
        return user is not None and user.status != "active"
    finally:
        store.close()


def reset_settings(data: DataDir) -> list[str]:
    """Delete all settings changed through the API; their keys. The caller holds the lock. Raises `StoreError`."""
    store = open_store(data)
    try:
        stored = settings.read_stored(store)
        if stored:
            with audited(data, store, "command_line", "reset-settings") as recorded:
                recorded.delete(settings.COLLECTION, settings.DOCUMENT)
        return [f"{group}.{key}" for group, values in stored.items() for key in values]
    finally:
        store.close()


def rotate_signing_key(data: DataDir) -> tuple[str, float]:
    """Sign access tokens with a new key: its id, and until when those of the older one are taken.

    The caller holds the lock. Raises `StoreError`.
    """
    store, trail = open_store(data), Trail(data)
    try:
        with on_behalf_of("command_line", "rotate-signing-key"):
            trail.append("signing_key.rotated", {"type": "signing_key", "id": None, "name": None})
        until = last_token_end(store, time.time())
        return SigningKeys(data).rotate(until).id, until
    finally:
        trail.close()
        store.close()


def peek_proxies(data: DataDir) -> list[ProxyRecord]:
    """The proxies that are stored, read without a lock as `peek_settings` does. Raises `ValueError`."""
    return [ProxyRecord.model_validate(body) for body in _peek(data, "proxies").values()]


def has_users(data: DataDir) -> bool:
    """Whether there are users. Read as `peek_proxies` does; raises `ValueError`."""
    return bool(_peek(data, users.COLLECTION))


def peek_settings(data: DataDir) -> Stored:
    """The settings changed through the API, read without a lock while the product may run. Raises `ValueError`.

    Empty when the data directory may not be read: such a caller checks the configuration file alone.
    """
    body = _peek(data, settings.COLLECTION).get(settings.DOCUMENT)
    return {} if body is None else settings.stored_of(body)


def _peek(data: DataDir, collection: str) -> dict[str, Any]:
    """The bodies of a collection by their ids."""
    file = data.store / f"{collection}.json"
    try:
        entries = parse(file, file.read_bytes())
    except (FileNotFoundError, PermissionError):
        return {}
    except (OSError, StoreError) as error:
        raise ValueError(f"{file}: {error}") from error
    return {name: entry["body"] for name, entry in entries.items() if entry.get("body") is not None}
