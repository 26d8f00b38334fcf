"""The operations on the settings: the five groups that the API can change, and the sources of all keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from api.call import Call, Reply
from api.engine.operation import V1, delete, get, resource, update
from api.engine.responses import F, ResponseModel, having, mirrors
from api.http.query import Query, text
from api.objects.live_settings import SettingsView
from config.settings.groups import History, Logging, SettingsGroup
from config.settings.loading import Configured, EffectiveValue
from config.settings.runtime import SettingsUpdate, live_fields
from config.settings.settings import Auth, ProxyGroup, Server


def _shows(group: type[SettingsGroup]) -> Callable[[type[F]], type[F]]:
    """A decorator: the response has the live settings of `group`, too."""
    return having({key: field.annotation for key, (field, _) in live_fields(group).items()})


@_shows(Server)
class ServerSettings(ResponseModel):
    """The management API: where it listens, and for how many connections."""

    ssl_enabled: bool


@_shows(Logging)
class LoggingSettings(ResponseModel):
    """The log of the service, and the access records that are kept. `output` is the destination of both."""


@_shows(Auth)
class AuthSettings(ResponseModel):
    """`session_timeout` in seconds."""

    enabled: Literal[True]


@_shows(ProxyGroup)
class ProxyDefaults(ResponseModel):
    """Times are seconds. `policy` is the name of the policy that comes before all others, empty for none."""


@_shows(History)
class HistoryRetention(ResponseModel):
    """How long revisions of the configuration are kept, in days, and how many of them."""


class SystemSettings(ResponseModel):
    """The effective settings."""

    server: ServerSettings
    logging: LoggingSettings
    auth: AuthSettings
    proxy: ProxyDefaults
    history: HistoryRetention


@mirrors(Configured)
class ConfiguredValue(ResponseModel):
    """What the configuration says of a key; `source` and `place` as in the setting."""


@mirrors(EffectiveValue)
class SettingSource(ResponseModel):
    """A key of the configuration. `place` is the line of the file, or the variable.

    `change` is what a change of it needs: nothing (`at_once`, by `PATCH /settings`), that the configuration is read
    again (`reload`), or a restart of the product. `configured` is null unless the configuration has another value,
    which an override hides, or which waits for a restart (`waits`).
    """

    change: Literal["at_once", "reload", "restart"]
    configured: ConfiguredValue | None


class SettingSourceList(ResponseModel):
    """All keys of the configuration, in its order."""

    settings: list[SettingSource]


def get_settings(call: Call) -> Reply:
    """Show the settings.

    Returns the settings that are in effect, from the configuration file and the API together. Secrets are not among
    them. With `node` they are those of this node of a fleet, where the API has set them; else those of the asked node.
    """
    return _reply(call.services.live.view(call.query.node))


def list_setting_sources(call: Call) -> Reply:
    """Show where settings come from.

    Returns each key of the configuration with its effective value, the source of that, and what a change needs: a
    request to `PATCH /settings`, a reload of the configuration, or a restart. Secrets are masked.
    """
    return Reply({"settings": list(call.services.live.sources())})


def update_settings(call: Call) -> Reply:
    """Update the settings.

    Changes the given settings and keeps all others. One invalid field changes nothing. In a fleet the change is of all
    nodes, or with `node` of this one, where it wins.
    """
    return _reply(call.services.live.update(call.body, call.if_match, call.query.node))


def unset_setting(call: Call) -> Reply:
    """Reset a setting.

    Removes the value that was set through the API for one setting, such as `logging.level`, so that the value of the
    configuration file is in effect again. Returns all settings.
    """
    return _reply(call.services.live.unset(call.params["setting"], call.if_match, call.query.node))


def _reply(settings: SettingsView) -> Reply:
    return Reply(dict(settings.groups), revision=settings.revision)


class OfNode(Query):
    """Settings of all nodes of a fleet, or of one."""

    node: str | None = text("Of this node of a fleet alone; its name or id", "fra1", 64, lowest=1)


ROWS = resource(f"{V1}/settings", read="settings.read", write="settings.write")(
    get("", "getSettings", get_settings, SystemSettings, query=OfNode, if_match=True, errors=(404, 409)),
    get("/sources", "listSettingSources", list_setting_sources, SettingSourceList),
    *update(
        "",
        ("replaceSettings", "updateSettings"),
        update_settings,
        SystemSettings,
        body=SettingsUpdate,
        query=OfNode,
        if_match=True,
        errors=(404, 409),
    ),
    delete("/{setting}", "unsetSetting", unset_setting, SystemSettings, query=OfNode, if_match=True, errors=(409,)),
)
