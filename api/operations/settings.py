"""The settings."""

from __future__ import annotations

from api.operations.operation import V1, Operation
from api.resources import settings
from config.live import SettingsUpdate

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "GET",
        f"{V1}/settings",
        "settings.read",
        "getSettings",
        "Show the settings",
        settings.get_settings,
        matches=True,
    ),
    Operation(
        "PUT",
        f"{V1}/settings",
        "settings.write",
        "replaceSettings",
        "Change the settings",
        settings.update_settings,
        SettingsUpdate,
        matches=True,
    ),
    Operation(
        "PATCH",
        f"{V1}/settings",
        "settings.write",
        "updateSettings",
        "Change the settings",
        settings.update_settings,
        SettingsUpdate,
        matches=True,
    ),
)
