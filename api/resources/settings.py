"""The operations on the settings: the five groups that the API can change, and the sources of all keys."""

from __future__ import annotations

from api.call import Call, Reply
from api.services.settings import SettingsView


def get_settings(call: Call) -> Reply:
    """Show the settings.

    Returns the settings that are in effect, from the configuration file and the API together. Secrets are not among
    them.
    """
    settings = call.services.live.view()
    return Reply(dict(settings.groups), revision=settings.revision)


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
    return _changed(call, *call.services.live.update(call.body, call.if_match))


def unset_setting(call: Call) -> Reply:
    """Reset a setting.

    Removes the value that was set through the API for one setting, such as `logging.level`, so that the value of the
    configuration file is in effect again. Returns all settings.
    """
    return _changed(call, *call.services.live.unset(call.params["setting"], call.if_match))


def _changed(call: Call, settings: SettingsView, moved: bool) -> Reply:
    # A new address is used as soon as this response is written.
    after = call.services.on_moved if moved else None
    return Reply(dict(settings.groups), revision=settings.revision, after_response=after)
