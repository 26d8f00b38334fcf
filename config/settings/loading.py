"""Read the operator's configuration: defaults < TOML file < credentials of systemd < environment < command line.

Unknown keys and bad values are refused with the key, the value and what is allowed; all of them at once. Environment
variables are `PROXYFLEET_` plus the key in capitals, levels joined by two underscores (`PROXYFLEET_SERVER__PORT`);
lists are JSON.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, TomlConfigSettingsSource
from pydantic_settings.exceptions import SettingsError

from config.files.secret_box import CredentialError
from config.model.fields import field_path
from config.settings.env import ENV_PREFIX, OPTION_VARIABLES
from config.settings.settings import ConfigError, Settings
from config.settings.toml_positions import line_of, lines_of
from config.text.validation_messages import TOML, worded

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
    for name, field in group.model_fields.items():
        variable = f"{prefix}{name.upper()}"
        kind = get_origin(field.annotation) or field.annotation
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
