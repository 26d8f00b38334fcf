"""The checks of `proxyfleet serve --check`: whether this program would start, beside the one that runs now.

Nothing is written, bound or locked. The modules of all actors are loaded, which finds a broken installation; the
settings with what was set through the API, and the files of the store, are read as a start would read them.
"""

from __future__ import annotations

import importlib
import shutil

from actors.supervision.actor_specs import ActorClasses
from actors.supervision.effective_settings import with_overrides
from api.operator.offline import peek_settings
from api.store import StoreError, check_fleet_file
from config.files.data_format import require_own_format
from config.files.paths import DataDir, PathError, unwritable
from config.settings.runtime import InvalidOverride
from config.settings.settings import ConfigError, Settings
from config.text.formatting import size_text

LEAST_SPACE = 1024 * 1024
"""Free bytes that SQLite needs for its shared memory to open databases again."""


class WouldNotStart(Exception):
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
