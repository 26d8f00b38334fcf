"""Changes of the configuration from the command line, most of them while the product is not running."""

from __future__ import annotations

import json
from typing import Any

from api.objects import live_settings
from api.objects.users.password_reset import OPERATION, reset
from api.operator.cluster import offline_engine
from api.security import users
from api.security.signing import SigningKeys
from api.security.tokens import Lifetimes, Tokens
from api.security.users import ADMINISTRATOR
from api.store import StoreError, Write, open_store, peek
from config.files.paths import DataDir, forget_initial_password
from config.files.secret_box import secret_box_of
from config.model.proxies import ProxyRecord
from config.settings.runtime import Stored, merge
from config.settings.settings import Auth


def reset_password(data: DataDir, username: str, password: str | None) -> str:
    """Give a user a new password, a random one when `password` is None, and return it. All their tokens end.

    A disabled user stays disabled. The caller holds the lock of the data directory.
    Raises `password_reset.UnknownUser`, `first_start.WeakPassword`, `StoreError`.
    """
    with offline_engine(data, OPERATION) as engine:
        user, chosen = reset(engine, username, password)
    if user.username == ADMINISTRATOR:
        forget_initial_password(data)
    return chosen


def is_disabled(data: DataDir, username: str) -> bool:
    """Whether this user's account is disabled. The caller holds the lock. Raises `StoreError`."""
    store = open_store(data)
    try:
        user = users.by_name(store, username)
        return user is not None and user.status != "active"
    finally:
        store.close()


def reset_settings(data: DataDir) -> list[str]:
    """Delete all settings changed through the API; their keys. The caller holds the lock. Raises `StoreError`.

    In a fleet those of all nodes, and those of this one alone.
    """
    collection = live_settings.COLLECTION
    with offline_engine(data, "reset-settings") as engine:
        node_id = _node_id(data)
        stored = live_settings.read_overrides(engine, node_id)
        known = [each for each in (live_settings.DOCUMENT, node_id) if each and engine.get(collection, each)]
        if stored:
            engine.commit([Write(collection, each, None, engine.revision_of(collection, each)) for each in known])
        return [f"{group}.{key}" for group, values in stored.items() for key in values]


def rotate_signing_key(data: DataDir, revoke_previous: bool = False) -> tuple[str, float]:
    """Sign access tokens with a new key: its id, and until when those of the older one are taken.

    The caller holds the lock. Raises `OperatorError`.
    """
    seal = secret_box_of(data)
    if not seal.is_made:
        raise StoreError(f"{data.keys}: the key that seals secrets is not here; rotate while the product runs")
    resource, details = {"type": "signing_key", "id": None, "name": None}, {"revoke_previous": revoke_previous}
    with (
        offline_engine(data, "rotate-signing-key") as engine,
        engine.recorded("signing_key.rotated", resource, details),
    ):
        keys = SigningKeys(engine, seal)
        return Tokens(engine, keys, lambda: Lifetimes.of(Auth())).rotate_key(revoke_previous)


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
    bodies = _peek(data, live_settings.COLLECTION)
    found: Stored = {}
    for each in (live_settings.DOCUMENT, _node_id(data)):
        found = merge(found, live_settings.stored_of(bodies.get(each, {})))
    return found


def _node_id(data: DataDir) -> str:
    """The id of the node that this installation is; empty without a fleet, or where it can't be read."""
    try:
        return str(json.loads(data.node.read_bytes())["id"])
    except (OSError, ValueError, KeyError):
        return ""


def _peek(data: DataDir, collection: str) -> dict[str, Any]:
    """The bodies of a collection by their ids."""
    try:
        return peek(data, collection)
    except StoreError as error:
        raise ValueError(str(error)) from error
