"""The settings."""

from __future__ import annotations

from api.openapi.schemas.system import SettingSourceList, SystemSettings
from api.operations.operation import V1, delete, get, resource, update
from api.resources import settings
from config.settings.runtime import SettingsUpdate

TABLE = resource(f"{V1}/settings", read="settings.read", write="settings.write")(
    get("", "getSettings", settings.get_settings, SystemSettings, if_match=True),
    get("/sources", "listSettingSources", settings.list_setting_sources, SettingSourceList),
    *update(
        "",
        ("replaceSettings", "updateSettings"),
        settings.update_settings,
        SystemSettings,
        body=SettingsUpdate,
        if_match=True,
    ),
    delete("/{setting}", "unsetSetting", settings.unset_setting, SystemSettings, if_match=True),
)
