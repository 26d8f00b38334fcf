"""The settings."""

from __future__ import annotations

from api.operations.operation import V1, Operation
from api.resources import settings
from config.settings.runtime import SettingsUpdate

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "GET",
        f"{V1}/settings",
        "settings.read",
        "getSettings",
        "Show the settings",
        settings.get_settings,
        description=(
            "Returns the settings that are in effect, from the configuration file and the API together. Secrets "
            "are not among them."
        ),
        matches=True,
    ),
    Operation(
        "PUT",
        f"{V1}/settings",
        "settings.write",
        "replaceSettings",
        "Update the settings",
        settings.update_settings,
        SettingsUpdate,
        description=(
            "Changes the given settings and keeps all others; PUT and PATCH are the same here. One invalid field "
            "changes nothing."
        ),
        matches=True,
    ),
    Operation(
        "PATCH",
        f"{V1}/settings",
        "settings.write",
        "updateSettings",
        "Update the settings",
        settings.update_settings,
        SettingsUpdate,
        description=("Changes the given settings and keeps all others. One invalid field changes nothing."),
        matches=True,
    ),
    Operation(
        "DELETE",
        f"{V1}/settings/{{setting}}",
        "settings.write",
        "unsetSetting",
        "Reset a setting",
        settings.unset_setting,
        description=(
            "Forgets what was set through the API of one setting, such as `logging.level`, so that the value of the "
            "configuration is in effect again. Returns all settings."
        ),
        matches=True,
    ),
)
