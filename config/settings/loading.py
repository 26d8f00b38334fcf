"""Read the operator's configuration: defaults < TOML file < credentials of systemd < environment < command line.

Unknown keys and bad values are refused with the key, the value and what is allowed; all of them at once. Environment
variables are `PROXYFLEET_` plus the key in capitals, levels joined by two underscores (`PROXYFLEET_SERVER__PORT`);
lists are JSON.

`Origins` says where the value of each key comes from, by one reading of the sources in this order. `described` adds
what a change of it needs, what was set through the API, and what waits for a restart. Secrets are masked.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, get_origin

from pydantic import BaseModel, SecretStr, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, TomlConfigSettingsSource
from pydantic_settings.exceptions import SettingsError

from config.files.secret_box import CredentialError, as_settings
from config.model.choices import MASK
from config.model.fields import field_path
from config.settings.env import ENV_PREFIX, OPTION_VARIABLES
from config.settings.runtime import LIVE_KEYS, Stored
from config.settings.settings import ConfigError, Settings
from config.text.formatting import TOML, worded
from config.text.toml_positions import line_of, lines_of

_EXAMPLES: dict[type, str] = {list: "list such as '[\"127.0.0.0/8\"]'", dict: 'object such as \'{"name": "value"}\''}


def load(file: Path | None = None, overrides: Mapping[str, Any] | None = None) -> Settings:
    """The settings from all sources. `overrides` are those of the command line, without what was not given.

    Raises `ConfigError`.
    """
    unreadable = _unreadable(file)
    if unreadable:
        raise ConfigError(unreadable)
    problems = _unknown_environment()
    try:
        settings = _reading(file)(**dict(overrides or {}))
    except ValidationError as error:
        places = Places(file, overrides or {})
        found = sorted(error.errors(), key=lambda each: places.line_of(each["loc"]))
        raise ConfigError(problems + [_sentence(each, places) for each in found]) from error
    except SettingsError as error:
        raise ConfigError(problems or [str(error)]) from error  # malformed JSON, which `problems` reports better
    except CredentialError as error:
        raise ConfigError([*problems, str(error)]) from error
    if problems:
        raise ConfigError(problems)
    return settings


class Places:
    """The source of each key's value: the line of the file, or the variable. Keys may be written in any case."""

    def __init__(self, file: Path | None, overrides: Mapping[str, Any]) -> None:
        self._file = file
        found = lines_of(file.read_text(encoding="utf-8")) if file else {}
        self._lines = {tuple(part.lower() for part in path): line for path, line in found.items()}
        self._overrides = overrides

    def of(self, path: tuple[Any, ...]) -> str:
        """`FILE:LINE: ` or `VARIABLE: `; empty for an option of the command line."""
        if reaches(self._overrides, path):
            return ""
        for length in range(len(path), 0, -1):
            variable = ENV_PREFIX + "__".join(str(part).upper() for part in path[:length])
            if variable in os.environ:
                return f"{variable}: "
        line = self.line_of(path)
        return f"{self._file}:{line}: " if line else ""

    def line_of(self, path: tuple[Any, ...]) -> int:
        """In the file; 0 for what isn't there."""
        return line_of(self._lines, [str(part).lower() for part in path]) or 0


def reaches(given: Any, path: tuple[Any, ...]) -> bool:
    """Whether the nested `given` has something at `path`."""
    for part in path:
        if not isinstance(given, Mapping) or part not in given:
            return False
        given = given[part]
    return True


def _reading(file: Path | None) -> type[Settings]:
    """`Settings` with `file` as the lowest of its sources."""
    if file is None:
        return Settings

    class SettingsOfFile(Settings):
        @classmethod
        def settings_customise_sources(
            cls, settings_cls: type[BaseSettings], *given: Any, **sources: Any
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            above = super().settings_customise_sources(settings_cls, *given, **sources)
            return (*above, TomlConfigSettingsSource(settings_cls, file))

    return SettingsOfFile


def _unreadable(file: Path | None) -> list[str]:
    if file is None:
        return []
    try:
        tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        return [f"{file}: {error.strerror or error}"]
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        line = re.search(r"at line (\d+)", str(error))
        unquoted = "Invalid value" in str(error) or "after a statement" in str(error)
        text = f"not TOML: {error}{'; texts need quotes' if unquoted else ''}"
        return [f"{file}:{line[1]}: {text}" if line else f"{file}: {text}"]
    return []


def _unknown_environment() -> list[str]:
    """Errors about variables of our prefix that name no key, which pydantic-settings ignores."""
    known = {name.upper() for name in Settings.model_fields} | OPTION_VARIABLES
    problems = []
    structured = _structured(Settings)
    for variable, value in os.environ.items():
        if variable.startswith(ENV_PREFIX):
            first = variable.removeprefix(ENV_PREFIX).partition("__")[0]
            if first.upper() not in known:
                problems.append(f"{variable}: unknown key; allowed: {', '.join(sorted(Settings.model_fields))}")
            elif variable in structured and not _is_json(value, structured[variable]):
                problems.append(f"{variable}: must be a JSON {_EXAMPLES[structured[variable]]}")  # it may be a secret
    return problems


def _structured(group: type[BaseModel], prefix: str = ENV_PREFIX) -> dict[str, type]:
    """The variables of a group that hold JSON: each with `list`, or `dict` for a table or a whole group."""
    found: dict[str, type] = {}
    for name, each in group.model_fields.items():
        variable = f"{prefix}{name.upper()}"
        kind = get_origin(each.annotation) or each.annotation
        if kind in (tuple, list):
            found[variable] = list
        elif kind is dict:
            found[variable] = dict
        elif isinstance(kind, type) and issubclass(kind, BaseModel):
            found |= {variable: dict, **_structured(kind, f"{variable}__")}
    return found


def _is_json(text: str, kind: type) -> bool:
    try:
        return isinstance(json.loads(text), kind)
    except ValueError:
        return False


_OF_THE_API = (("proxies",), ("users",), ("keys",), ("api_keys",), ("upstreams",), ("accounts",))
"""Sections that belong to the API, for a hint when the configuration has them."""


def _sentence(error: Any, places: Places) -> str:
    key = field_path(error["loc"])
    place = f"{places.of(error['loc'])}{key}"
    if error["type"] == "extra_forbidden":
        allowed = _siblings(error["loc"])
        near = get_close_matches(str(error["loc"][-1]), allowed, n=1)
        meant = f"; did you mean {near[0]}?" if near else ""
        if error["loc"] in _OF_THE_API:
            meant = "; it is made through the API, from a file by `proxyfleet apply -f FILE`"
        return f"{place}: unknown key; allowed here: {', '.join(allowed)}{meant}"
    given = "" if _may_hold_secret(key, error["input"]) else f" (got {error['input']!r})"
    return f"{place}: {worded(error, TOML)}{given}"


def _may_hold_secret(key: str, given: Any) -> bool:
    in_url = isinstance(given, str) and "://" in given and "@" in given
    return (
        "password" in key
        or "secret" in key
        or "headers" in key
        or key.endswith("_token")
        or in_url
        or isinstance(given, (dict, BaseModel))
    )


def _siblings(location: tuple[Any, ...]) -> list[str]:
    model: Any = Settings
    for part in location[:-1]:
        model = model.model_fields[part].annotation
    return sorted(model.model_fields)


UNTIL_RESTART = ("data_dir", "run_dir", "server.host", "server.port", "server.tls", "metrics.publish", "telemetry")
"""Keys of the configuration that are read at the start only."""

Source = Literal["default", "file", "credential", "environment", "command_line", "api"]
Change = Literal["at_once", "reload", "restart", "first_start"]
"""What a change of a key needs: nothing but a request to the API; that the configuration is read again; a restart of
the product. `first_start`: it has an effect at the first start alone."""

Path_ = tuple[str, ...]
_FIXED_SOURCES = ("environment", "command_line")
"""Sources that a running process keeps as they are."""
_SESSION_TIMEOUT, _TOKEN_TTL = ("auth", "session_timeout"), ("auth", "jwt", "access_token_ttl")
_USERINFO = re.compile(r"://[^/@\s]*@")


def _paths(group: type[BaseModel], above: Path_ = ()) -> Iterator[Path_]:
    for name, each in group.model_fields.items():
        inner = each.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from _paths(inner, (*above, name))
        else:
            yield (*above, name)


KEYS = tuple(_paths(Settings))
"""All keys, as paths."""


@dataclass(frozen=True, slots=True)
class SettingOrigin:
    """A source, and the place in it: `FILE:LINE` or the name of a variable."""

    source: Source = "default"
    place: str | None = None


@dataclass(frozen=True, slots=True)
class Origins:
    """The origins of the keys that have no default."""

    found: Mapping[Path_, SettingOrigin] = field(default_factory=dict)

    @classmethod
    def read(cls, file: Path | None = None, overrides: Mapping[str, Any] | None = None) -> Origins:
        """From the same sources as `load`. Raises `ConfigError`."""
        try:
            origin = _origin_in(file, overrides or {})
        except (OSError, ValueError, CredentialError) as error:
            raise ConfigError([f"{file}: {error}" if file else str(error)]) from error
        return cls({path: found for path in KEYS if (found := origin(path)) is not None})

    def of(self, path: Path_) -> SettingOrigin:
        """The origin of one key."""
        return self.found.get(path, SettingOrigin())

    def but(self, before: Origins, paths: frozenset[Path_]) -> Origins:
        """These, with the origins of `before` for the keys `paths`."""
        kept = {path: origin for path, origin in before.found.items() if path in paths}
        return Origins({path: origin for path, origin in self.found.items() if path not in paths} | kept)


def _origin_in(file: Path | None, overrides: Mapping[str, Any]) -> Callable[[Path_], SettingOrigin | None]:
    written = _lowered(tomllib.loads(file.read_text(encoding="utf-8"))) if file else {}
    credentials, places = as_settings(), Places(file, overrides)

    def origin(path: Path_) -> SettingOrigin | None:
        if reaches(overrides, path):
            return SettingOrigin("command_line")
        variable = _variable(path)
        if variable is not None:
            return SettingOrigin("environment", variable)
        if reaches(credentials, path):
            return SettingOrigin("credential")
        return SettingOrigin("file", f"{file}:{places.line_of(path)}") if reaches(written, path) else None

    return origin


def _lowered(given: Any) -> Any:
    return {name.lower(): _lowered(value) for name, value in given.items()} if isinstance(given, dict) else given


def _variable(path: Path_) -> str | None:
    """The variable that has the key, alone or in the JSON of its group."""
    for length in range(len(path), 0, -1):
        variable = ENV_PREFIX + "__".join(part.upper() for part in path[:length])
        if variable in os.environ and (length == len(path) or reaches(json.loads(os.environ[variable]), path[length:])):
            return variable
    return None


@dataclass(frozen=True, slots=True)
class Configured:
    """What the configuration says of a key where something else is effective."""

    value: Any
    source: Source
    place: str | None


@dataclass(frozen=True, slots=True)
class EffectiveValue:
    """A key with its effective value, masked if it is a secret.

    `configured` is None where that is the value of the configuration. `waits`: the configuration has another value,
    which waits for a restart.
    """

    key: str
    value: Any
    source: Source
    place: str | None
    change: Change
    waits: bool
    configured: Configured | None

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Reading:
    """The configuration as read, and its origins."""

    settings: Settings
    origins: Origins = field(default_factory=Origins)


def described(base: Reading, stored: Stored, now: Settings, latest: Reading | None = None) -> list[EffectiveValue]:
    """All keys. `base` is what `stored` was laid over to give `now`; `latest` has also what waits for a restart."""
    return [_described(path, base, stored, now, latest or base) for path in KEYS]


def waiting(base: Settings, fresh: Settings) -> frozenset[Path_]:
    """The keys that `fresh` has other values of."""
    return frozenset(path for path in KEYS if _at(base, path) != _at(fresh, path))


def _described(path: Path_, base: Reading, stored: Stored, now: Settings, latest: Reading) -> EffectiveValue:
    value, origin = _effective(now, path), base.origins.of(_deciding(base.settings, path))
    overridden = reaches(stored, path) or _at(now, path) != _at(base.settings, path)
    waits = _at(latest.settings, path) != _at(base.settings, path)
    beside = latest.origins.of(_deciding(latest.settings, path))
    configured = Configured(_masked(_effective(latest.settings, path)), beside.source, beside.place)
    return EffectiveValue(
        ".".join(path),
        _masked(value),
        "api" if overridden else origin.source,
        None if overridden else origin.place,
        _change(path, beside.source),
        waits,
        configured if overridden or waits else None,
    )


def _change(path: Path_, source: Source) -> Change:
    if path in LIVE_KEYS:
        return "at_once"
    if path == ("admin_password",):
        return "first_start"
    name = ".".join(path)
    read_once = any(name == each or name.startswith(f"{each}.") for each in UNTIL_RESTART)
    return "restart" if read_once or source in _FIXED_SOURCES else "reload"


def _deciding(settings: Settings, path: Path_) -> Path_:
    """The key that the value of `path` is taken from: `auth.jwt.access_token_ttl` stands above the older key."""
    return _TOKEN_TTL if path == _SESSION_TIMEOUT and settings.auth.jwt.access_token_ttl is not None else path


def _effective(settings: Settings, path: Path_) -> Any:
    return _at(settings, _deciding(settings, path))


def _at(settings: Settings, path: Path_) -> Any:
    return attrgetter(".".join(path))(settings)


def _masked(value: Any) -> Any:
    if isinstance(value, SecretStr):
        return MASK if value.get_secret_value() else None
    if isinstance(value, Mapping):
        return {name: _masked(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_masked(each) for each in value]
    if isinstance(value, Path):
        return str(value)
    return _USERINFO.sub(f"://{MASK}@", value) if isinstance(value, str) else value
