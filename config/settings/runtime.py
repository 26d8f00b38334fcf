"""The part of the settings that is changed through the management API, while the product runs.

What was set through the API is kept as a *sparse* map of groups, `{"server": {"port": 8081}}`, in the configuration
store; it is laid over what defaults, file, environment and command line give (`overlay`), and so wins over them until
`proxyfleet settings unset` or `reset-settings` forgets it. `SettingsUpdate` is the body of a change; `groups` is what
the API shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Protocol, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    ValidationError,
    model_validator,
)

from config.model.proxies import Host, MaxConnections, Port, Timeout, refuse_nulls
from config.settings.groups import FILE_FORMATS, OUTPUTS, Logging, good_output
from config.settings.settings import Auth, Proxy, Server

Stored = dict[str, dict[str, Any]]
"""What was set through the API: values by group and key, nothing that was not set."""

LONGEST_SESSION = 366 * 24 * 3600


OUTPUT_PATTERN = rf"^({'|'.join(OUTPUTS)}|({'|'.join(FILE_FORMATS)}):/[^\x00]{{1,4096}})$"
PATH_REASON = "a path is chosen in the configuration alone, since who may change settings may not write anywhere"


class _Input(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ServerInput(_Input):
    """`server` of a change: where the management API listens, and for how many connections."""

    host: Host | None = None
    port: Port | None = None
    ssl_enabled: StrictBool | None = None
    max_connections: MaxConnections | None = None


class LoggingInput(_Input):
    """`logging` of a change; it holds at once, in all processes."""

    level: Literal["debug", "info", "warning", "error", "critical"] | None = None
    access: Literal["all", "errors", "off"] | None = None
    format: Literal["text", "json"] | None = None
    output: (
        Annotated[StrictStr, AfterValidator(good_output), Field(json_schema_extra={"pattern": OUTPUT_PATTERN})] | None
    ) = None


class AuthInput(_Input):
    """`auth` of a change. `session_timeout` is the lifetime in seconds of access tokens that are issued from now on."""

    enabled: StrictBool | None = None
    session_timeout: Annotated[StrictInt, Field(ge=1, le=LONGEST_SESSION)] | None = None
    max_login_attempts: Annotated[StrictInt, Field(ge=1, le=1000)] | None = None


class ProxyInput(_Input):
    """`proxy` of a change: seconds, seconds, and connections of each proxy."""

    default_timeout: Timeout | None = None
    keep_alive_timeout: Timeout | None = None
    max_idle_connections: Annotated[StrictInt, Field(ge=0, le=10_000)] | None = None


class SettingsUpdate(_Input):
    """The body of PUT and PATCH of the settings: any part of the four groups."""

    server: ServerInput | None = None
    logging: LoggingInput | None = None
    auth: AuthInput | None = None
    proxy: ProxyInput | None = None

    @model_validator(mode="before")
    @classmethod
    def _nothing_is_null(cls, given: Any) -> Any:
        return refuse_nulls(given)


class ReadOnlySetting(ValueError):
    """The setting `field` can't be changed while the product runs; `error` says why."""

    def __init__(self, field: str, error: str) -> None:
        super().__init__(f"{field}: {error}")
        self.field = field
        self.error = error


class InvalidOverride(ValueError):
    """What was set through the API is not good any more, by hand or by an older release; the text names the key."""


class Grouped(Protocol):
    """Anything that has the four groups as they are in force."""

    @property
    def server(self) -> Server: ...
    @property
    def logging(self) -> Logging: ...
    @property
    def auth(self) -> Auth: ...
    @property
    def proxy(self) -> Proxy: ...


G = TypeVar("G", bound=_Input | BaseModel)


def groups(settings: Grouped) -> dict[str, dict[str, Any]]:
    """The four groups as the API shows them: what is in force."""
    server, auth, proxy, logging = settings.server, settings.auth, settings.proxy, settings.logging
    return {
        "server": {
            "host": server.host,
            "port": server.port,
            "ssl_enabled": server.tls.enabled,
            "max_connections": server.max_connections,
        },
        "logging": {name: getattr(logging, name) for name in ("level", "access", "format", "output")},
        "auth": {
            "enabled": True,
            "session_timeout": auth.access_token_ttl,
            "max_login_attempts": auth.max_login_attempts,
        },
        "proxy": {
            "default_timeout": proxy.default_timeout,
            "keep_alive_timeout": proxy.keep_alive_timeout,
            "max_idle_connections": proxy.max_idle_connections,
        },
    }


FIXED = {
    ("server", "ssl_enabled"): "is server.tls.enabled of the configuration; it changes with a restart",
    ("auth", "enabled"): "must be true: the management API never serves without authentication",
}


def changes(settings: Grouped, update: SettingsUpdate) -> Stored:
    """What of `update` differs from what is in force; so what was read can be sent back and sets nothing.

    Raises `ReadOnlySetting`.
    """
    now = groups(settings)
    changed: Stored = {}
    for group, values in update.model_dump(exclude_none=True).items():
        for key, value in values.items():
            if value == now[group][key]:
                continue
            if (group, key) in FIXED:
                raise ReadOnlySetting(f"{group}.{key}", FIXED[group, key])
            if (group, key) == ("logging", "output") and value not in OUTPUTS:
                raise ReadOnlySetting("logging.output", f"must be one of {', '.join(OUTPUTS)}; {PATH_REASON}")
            changed.setdefault(group, {})[key] = value
    return changed


def merge(stored: Stored, changed: Stored) -> Stored:
    """`stored` with `changed` laid over it, key by key."""
    names = {**stored, **changed}
    return {group: {**stored.get(group, {}), **changed.get(group, {})} for group in names}


def without(stored: Stored, group: str, key: str) -> Stored:
    """`stored` without one key: what the configuration says of it counts again."""
    left = {name: dict(values) for name, values in stored.items()}
    left.get(group, {}).pop(key, None)
    return {name: values for name, values in left.items() if values}


def overlay(base: Grouped, stored: Mapping[str, Mapping[str, Any]]) -> dict[str, BaseModel]:
    """The groups that `stored` changes, as models, for `model_copy(update=…)` or `dataclasses.replace`.

    Raises `InvalidOverride`.
    """
    return {group: _laid_over(group, getattr(base, group, None), values) for group, values in stored.items()}


def _laid_over(group: str, base: Any, values: Mapping[str, Any]) -> BaseModel:
    if not isinstance(base, BaseModel):
        raise InvalidOverride(f"{group}: unknown group")
    whole = {**base.model_dump(), **values}  # not as JSON, which would mask secrets
    if group == "auth" and "session_timeout" in values:
        whole["jwt"] = {**whole["jwt"], "access_token_ttl": None}
    try:
        return type(base).model_validate(whole)
    except ValidationError as error:
        first = error.errors()[0]
        raise InvalidOverride(f"{group}.{'.'.join(str(part) for part in first['loc'])}: {first['msg']}") from error
