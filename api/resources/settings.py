"""The operations on the settings: the five groups that the API can change, and the sources of all keys."""

from __future__ import annotations

from api.call import Call, Reply
from api.engine.operation import V1, delete, get, resource, update
from api.openapi.schemas.system import SettingSourceList, SystemSettings
from api.services.settings import SettingsView
from config.settings.runtime import SettingsUpdate


def get_settings(call: Call) -> Reply:
    """Show the settings.

    Returns the settings that are in effect, from the configuration file and the API together. Secrets are not among
    them.
    """
    return _reply(call.services.live.view())


def list_setting_sources(call: Call) -> Reply:
    """Show where settings come from.

    Returns each key of the configuration with its effective value, the source of that, and what a change needs: a
    request to `PATCH /settings`, a reload of the configuration, or a restart. Secrets are masked.
    """
    return Reply({"settings": list(call.services.live.sources())})


def update_settings(call: Call) -> Reply:
    """Update the settings.

    Changes the given settings and keeps all others. One invalid field changes nothing.
    """
    return _reply(call.services.live.update(call.body, call.if_match))


def unset_setting(call: Call) -> Reply:
    """Reset a setting.

    Removes the value that was set through the API for one setting, such as `logging.level`, so that the value of the
    configuration file is in effect again. Returns all settings.
    """
    return _reply(call.services.live.unset(call.params["setting"], call.if_match))


def _reply(settings: SettingsView) -> Reply:
    return Reply(dict(settings.groups), revision=settings.revision)


ROWS = resource(f"{V1}/settings", read="settings.read", write="settings.write")(
    get("", "getSettings", get_settings, SystemSettings, if_match=True),
    get("/sources", "listSettingSources", list_setting_sources, SettingSourceList),
    *update(
        "",
        ("replaceSettings", "updateSettings"),
        update_settings,
        SystemSettings,
        body=SettingsUpdate,
        if_match=True,
    ),
    delete("/{setting}", "unsetSetting", unset_setting, SystemSettings, if_match=True),
)
