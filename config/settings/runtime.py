"""The settings that are changed through the management API, while the product runs: those marked `Live`.

What was set through the API is kept as a *sparse* map of groups, `{"logging": {"level": "debug"}}`, in the
configuration store; it is laid over what defaults, file, environment and command line give (`overlay`), and so wins
over them until `proxyfleet settings unset` or `reset-settings` forgets it. `SettingsUpdate` is the body of a change;
`visible_settings` is what the API shows. Both have the keys that the groups mark, and those that only the API has
(`FIXED`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Annotated, Any, Protocol, TypeVar

from pydantic import BaseModel, StrictBool, StrictInt, StrictStr, ValidationError
from pydantic.fields import FieldInfo

from config import OperatorError
from config.model.declaration import extended
from config.model.fields import Body, example, field_path
from config.settings.groups import OUTPUTS, History, Live, Logging, SettingsGroup
from config.settings.settings import Auth, ProxyGroup, Server, Settings
from config.text.formatting import worded

Stored = dict[str, dict[str, Any]]
"""What was set through the API: values by group and key, nothing that was not set."""

PATH_REASON = "a path is chosen in the configuration alone, since who may change settings may not write anywhere"
_STRICT: dict[Any, Any] = {bool: StrictBool, int: StrictInt, str: StrictStr}

M = TypeVar("M", bound=BaseModel)


def live_fields(group: type[SettingsGroup]) -> dict[str, tuple[FieldInfo, Live]]:
    """The settings of `group` that the API shows and changes, by key."""
    return {
        key: (field, marker)
        for key, field in group.model_fields.items()
        for marker in field.metadata
        if isinstance(marker, Live)
    }


def _changes_of(group: type[SettingsGroup]) -> Callable[[type[M]], type[M]]:
    """A decorator: the model has the live settings of `group`, too, as a request may set them; all are optional."""
    fields = {key: (_request_type(field, marker) | None, None) for key, (field, marker) in live_fields(group).items()}
    return lambda model: extended(model, fields)


def _request_type(field: FieldInfo, marker: Live) -> Any:
    if marker.request is not None:
        return marker.request
    strict = _STRICT.get(field.annotation, field.annotation)
    limits = [each for each in field.metadata if each is not marker]
    return Annotated[(strict, *limits)] if limits else strict


@_changes_of(Server)
class ServerInput(Body):
    """`server` of a change: the limit of connections; the address of the management API changes with a restart."""

    ssl_enabled: StrictBool | None = None


@_changes_of(Logging)
class LoggingInput(Body):
    """`logging` of a change; it holds at once, in all processes."""


@_changes_of(Auth)
class AuthSettingsInput(Body):
    """`auth` of a change. `session_timeout` is the lifetime in seconds of access tokens that are issued from now on."""

    enabled: StrictBool | None = None


@_changes_of(ProxyGroup)
class ProxyInput(Body):
    """`proxy` of a change: times are seconds. `policy` is the name of the policy that comes before all others.

    `public_name` is the host by which clients reach proxies that listen at all addresses.
    """


@_changes_of(History)
class HistoryInput(Body):
    """`history` of a change: days, and a number of revisions."""


class SettingsUpdate(Body):
    """The body of PUT and PATCH of the settings: any part of the five groups."""

    model_config = example({"logging": {"level": "info"}, "proxy": {"default_timeout": 30}})

    server: ServerInput | None = None
    logging: LoggingInput | None = None
    auth: AuthSettingsInput | None = None
    proxy: ProxyInput | None = None
    history: HistoryInput | None = None


_KEYS: dict[str, type[Body]] = {
    "server": ServerInput, "logging": LoggingInput, "auth": AuthSettingsInput, "proxy": ProxyInput,
    "history": HistoryInput,
}  # fmt: skip
LIVE_GROUPS = tuple(_KEYS)


class ReadOnlySetting(ValueError):
    """The setting `field` can't be changed while the product runs; `error` says why."""

    def __init__(self, field: str, error: str) -> None:
        super().__init__(f"{field}: {error}")
        self.field = field
        self.error = error


class InvalidOverride(OperatorError, ValueError):
    """What was set through the API is not good any more, by hand or by an older release; the text names the key."""


class Grouped(Protocol):
    """Anything that has the five groups as they are in force."""

    @property
    def server(self) -> Server: ...
    @property
    def logging(self) -> Logging: ...
    @property
    def auth(self) -> Auth: ...
    @property
    def proxy(self) -> ProxyGroup: ...
    @property
    def history(self) -> History: ...


_EFFECTIVE: dict[tuple[str, str], Callable[[Any], Any]] = {
    ("server", "ssl_enabled"): attrgetter("tls.enabled"),
    ("auth", "enabled"): lambda _auth: True,
    ("auth", "session_timeout"): attrgetter("access_token_ttl"),
}
"""What the API shows of a group where that is not its field of the same name."""


def visible_settings(settings: Grouped) -> dict[str, dict[str, Any]]:
    """The five groups as the API shows them: what is in force."""
    return {
        name: {key: _EFFECTIVE.get((name, key), attrgetter(key))(getattr(settings, name)) for key in model.model_fields}
        for name, model in _KEYS.items()
    }


_READ_ONCE = "is read at the start; change it in the configuration, and restart"
FIXED = {
    ("server", "host"): _READ_ONCE,
    ("server", "port"): _READ_ONCE,
    ("server", "ssl_enabled"): "is server.tls.enabled of the configuration; it changes with a restart",
    ("auth", "enabled"): "must be true: the management API never serves without authentication",
}


LIVE_KEYS = frozenset(
    (group, key) for group, model in _KEYS.items() for key in model.model_fields if (group, key) not in FIXED
)
"""The settings that the API changes."""


def changes(now: Mapping[str, Mapping[str, Any]], update: SettingsUpdate) -> Stored:
    """What of `update` differs from what is in force; so what was read can be sent back and sets nothing.

    A key that `now` doesn't have differs. Raises `ReadOnlySetting`.
    """
    changed: Stored = {}
    for group, values in update.model_dump(exclude_none=True).items():
        for key, value in values.items():
            if key in now[group] and value == now[group][key]:
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
    """`stored` without one key, so that the configuration's value is effective again."""
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
        raise InvalidOverride(f"{field_path((group, *first['loc']))}: {worded(first)}") from error


def with_overrides(base: Settings, stored: Stored) -> Settings:
    """`base` with `stored` on top. Raises `InvalidOverride`."""
    return base.model_copy(update=dict(overlay(base, stored)))


def shadowed_keys(base: Settings, stored: Stored) -> list[str]:
    """A sentence for each key whose value in the configuration differs from its override."""
    found = []
    for group, values in stored.items():
        for key, value in values.items():
            shadowed = value_of(base, f"{group}.{key}")
            if shadowed != value:
                found.append(f"{group}.{key} is {value!r} as set through the API; the configuration says {shadowed!r}")
    return found


def value_of(settings: Settings, name: str) -> Any:
    """The value of a key, with its group before a dot."""
    group, _, key = name.partition(".")
    return getattr(getattr(settings, group), key) if key else getattr(settings, group)
