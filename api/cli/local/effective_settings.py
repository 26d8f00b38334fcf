"""`proxyfleet config show`: every key of the configuration with its value and the source of it."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from api.cli.commands import local_command
from api.cli.local.offline import ConfigOption, DataOption, refuse_newer, settings_of, translated
from api.cli.terminal.output import Column, Output

if TYPE_CHECKING:  # the settings take time to import
    from config.settings.settings import Places, Settings

DEFAULT, BY_API, BY_CREDENTIAL, BY_COMMAND_LINE = "default", "API", "credential", "command line"
COLUMNS = (Column("KEY", "key"), Column("VALUE", "text"), Column("FROM", "source"))

ChangedOption = Annotated[bool, typer.Option("--changed", help="Only keys whose value is not the default.")]


def add_commands(app: typer.Typer) -> None:
    """Add the command to `app`."""
    local_command(app, "show")(show_config)


def show_config(
    out: Output, config: ConfigOption = None, data_dir: DataOption = None, changed: ChangedOption = False
) -> None:
    """Show the whole configuration with the source of each value: a line of the file, a variable, the API.

    Secrets are masked. Options of a running `serve` are not included.
    """
    from actors.supervision.effective_settings import with_overrides
    from api.operator.offline import peek_settings
    from config.files.credentials import as_settings
    from config.files.paths import DataDir, default_data_dir
    from config.settings.runtime import InvalidOverride
    from config.settings.settings import Places

    overrides: dict[str, Any] = {"data_dir": data_dir} if data_dir else {}
    settings = settings_of(config, overrides)
    data = DataDir(settings.data_dir or default_data_dir())
    if os.access(data.path, os.R_OK | os.X_OK):
        refuse_newer(data.path)
    stored = translated(ValueError, lambda: peek_settings(data))
    in_effect = translated(InvalidOverride, lambda: with_overrides(settings, stored))
    sources = _Sources(overrides, stored, as_settings(), _written(config), Places(config, overrides))
    rows = [row for row in _rows(in_effect, sources) if not changed or row["source"] != DEFAULT]
    texts = [{**row, "text": _text(row["value"])} for row in rows]
    out.data({"config": rows}, lambda: out.table(COLUMNS, texts, "All keys have their defaults."))


class _Sources:
    """The sources of values in their order of precedence, which is that of a start."""

    def __init__(
        self,
        command_line: Mapping[str, Any],
        stored: Mapping[str, Any],
        credentials: Mapping[str, Any],
        written: Mapping[str, Any],
        places: Places,
    ) -> None:
        self._by_precedence = ((command_line, BY_COMMAND_LINE), (stored, BY_API))
        self._credentials = credentials
        self._written = written
        self._places = places

    def of(self, path: tuple[str, ...]) -> str:
        """`default`, `FILE:LINE`, the name of a variable, `credential`, `command line` or `API`."""
        for given, name in self._by_precedence:
            if _has(given, path):
                return name
        place = self._places.of(path).removesuffix(": ")
        if place not in os.environ and not _has(self._written, path):
            place = ""  # it is the line of the key's group
        if place in os.environ or not _has(self._credentials, path):
            return place or DEFAULT
        return BY_CREDENTIAL


def _written(file: Path | None) -> dict[str, Any]:
    """The content of the file, which is valid; keys in lower case."""
    return _lowered(tomllib.loads(file.read_text(encoding="utf-8"))) if file else {}


def _lowered(given: Any) -> Any:
    return {name.lower(): _lowered(value) for name, value in given.items()} if isinstance(given, dict) else given


def _rows(settings: Settings, sources: _Sources) -> Iterator[dict[str, Any]]:
    for path, value in _leaves(settings.model_dump(mode="json"), ()):  # which masks secrets
        yield {"key": ".".join(path), "value": value, "source": sources.of(path)}


def _leaves(values: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, (*path, name))
        else:
            yield (*path, name), value


def _text(value: Any) -> str:
    """The value as in the file; `-` if it is not set."""
    if value is None or value == "":
        return "-"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _has(given: Any, path: tuple[str, ...]) -> bool:
    for part in path:
        if not isinstance(given, Mapping) or part not in given:
            return False
        given = given[part]
    return True
