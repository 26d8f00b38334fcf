"""Where the value of each key of the configuration comes from, and what a change of it needs.

`Origins` is made of one reading of the sources, in the order of `config.settings.loading`. `described` adds what was
set through the API, and what waits for a restart. Secrets are masked.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, SecretStr

from config.files.secret_box import CredentialError, as_settings
from config.model.webhooks import MASK
from config.settings.env import ENV_PREFIX
from config.settings.loading import Places, reaches
from config.settings.runtime import LIVE_KEYS, Stored
from config.settings.settings import ConfigError, Settings

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
        """From the same sources as `config.settings.loading.load`. Raises `ConfigError`."""
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
