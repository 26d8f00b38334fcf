"""What a start needs: its checks, the administrator of the first one, and the desired state.

`proxyfleet serve --check` is whether this program would start, beside the one that runs now. Nothing is written, bound
or locked. The modules of all actors are loaded, which finds a broken installation; the settings with what was set
through the API, and the files of the store, are read as a start would read them.
"""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Sequence
from pathlib import Path

from actors.bus.messages.specs import FleetObject, ProxySpec
from actors.supervision.processes.actor_specs import ActorClasses
from api.audit.audit_context import on_behalf_of
from api.engine.commit import Engine
from api.objects.named.list_contents import ListStates
from api.objects.named.shared_objects import PoolSources, SharedObjects
from api.objects.proxies.proxy_cache import StoredProxy
from api.objects.proxies.proxy_specs import specs_of
from api.operator.cluster import node_of
from api.operator.offline import peek_settings
from api.security import users
from api.security.users import ADMINISTRATOR, check_strength, new_password
from api.store import FleetStore, StoreError, StoreWriteError, check_fleet_file
from config import OperatorError
from config.files.durable import require_own_format, write_synced
from config.files.paths import DataDir, PathError, unwritable
from config.files.secret_box import secret_box_of
from config.settings.runtime import InvalidOverride, with_overrides
from config.settings.settings import ConfigError, Settings
from config.text.formatting import size_text

LEAST_SPACE = 1024 * 1024
"""Free bytes that SQLite needs for its shared memory to open databases again."""


class WouldNotStart(OperatorError):
    """The program would not start; the text says why."""


def check_start(settings: Settings, data: DataDir, entries: ActorClasses | None = None) -> None:
    """Raise `WouldNotStart` when a start with these settings and data would fail."""
    for name, entry in (entries or ActorClasses())._asdict().items():
        if name != "telemetry" or settings.telemetry.otlp.endpoint:  # it needs what only its users have installed
            _load(entry)
    if error_text := unwritable(data.path):
        raise WouldNotStart(error_text)
    try:
        check_fleet_file(data)
        if (node := node_of(data)) is not None:
            node.close()
    except StoreError as error:
        raise WouldNotStart(str(error)) from error
    try:
        _check_space(data)
        require_own_format(data.path)
        with_overrides(settings, peek_settings(data)).server.tls.check_certificate()
    except (ConfigError, InvalidOverride, PathError, ValueError) as error:
        raise WouldNotStart(str(error)) from error


def _check_space(data: DataDir) -> None:
    """The running program serves on a full disk; a new one would wait for space before its API serves."""
    free = shutil.disk_usage(data.path).free if data.path.exists() else LEAST_SPACE
    if free < LEAST_SPACE:
        raise WouldNotStart(f"{data.path}: the disk is full; {size_text(LEAST_SPACE)} of free space are needed")


def _load(entry: str) -> None:
    module, _, name = entry.partition(":")
    try:
        getattr(importlib.import_module(module), name)
    except Exception as error:
        raise WouldNotStart(f"{entry} can't be loaded: {type(error).__name__}: {error}") from error


def ensure_administrator(engine: Engine, data: DataDir, password: str | None) -> str | None:
    """Create `admin` when there are no users.

    Returns the random password that was made up and written to `data.initial_password`, or None when nothing was made
    up: there are users already, or `password` was taken. Raises `StoreError`, `WeakPassword`.
    """
    if engine.find(users.COLLECTION):
        return None
    chosen = new_password() if password is None else check_strength(password)
    if password is None:
        _write_private(data.initial_password, chosen)
    body = users.UserCreate(username=ADMINISTRATOR, password=chosen, role="administrator")
    with on_behalf_of("system", "first-start"):
        engine.put(users.COLLECTION, users.new_user(body).model_dump(mode="json"), expect=0)
    return chosen if password is None else None


def _write_private(path: Path, text: str) -> None:
    """Write the password before the user exists: else a crash between would lose the only way to sign in."""
    try:
        write_synced(path, f"{text}\n".encode())
    except OSError as error:
        raise StoreWriteError(f"{path}: {error.strerror or error}") from error


def read_desired_proxies(proxies: Sequence[StoredProxy], data: DataDir) -> tuple[ProxySpec, ...]:
    """These proxies, active or not. The caller holds the lock of the data directory. Raises `OperatorError`.

    The key file of sealed secrets is made here at the first start; without it no secret that is there could be read.
    """
    seal = secret_box_of(data)
    specs = specs_of(proxies, seal)
    seal.ensure()
    return specs


def read_desired_objects(store: FleetStore, data: DataDir) -> tuple[FleetObject, ...]:
    """All lists, pools and policies, and what accounts and plans name.

    The caller holds the lock of the data directory. Raises `OperatorError`.
    """
    seal, file_of = secret_box_of(data), ListStates(data.lists).current_file
    return SharedObjects(store, seal, file_of, PoolSources(store, seal), store.accounts.named_policies).messages()
