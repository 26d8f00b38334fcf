"""`proxyfleet config show`: every key of the configuration with its value and the source of it."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from api.cli.local.offline import ConfigOption, DataOption, peek
from api.cli.terminal.output import Column, Output

if TYPE_CHECKING:  # the settings take time to import
    from config.settings.loading import Places

DEFAULT, BY_API, BY_CREDENTIAL, BY_COMMAND_LINE = "default", "API", "credential", "command line"
COLUMNS = (Column("KEY", "key"), Column("VALUE", "text"), Column("FROM", "source"))

ChangedOption = Annotated[bool, typer.Option("--changed", help="Only keys whose value is not the default.")]


def show_config(
    out: Output, config: ConfigOption = None, data_dir: DataOption = None, changed: ChangedOption = False
) -> None:
    """Show the whole configuration with the source of each value: a line of the file, a variable, the API.

    Secrets are masked. Options of a running `serve` are not included.
    """
    from config.files.credentials import as_settings
    from config.settings.loading import Places

    overrides: dict[str, Any] = {"data_dir": data_dir} if data_dir else {}
    _settings, _data, stored, in_effect = peek(config, data_dir)
    layers = ((overrides, BY_COMMAND_LINE), (stored, BY_API))
    below = (as_settings(), _written(config), Places(config, overrides))
    rows = [
        {"key": ".".join(path), "value": value, "source": source}
        for path, value in _leaves(in_effect.model_dump(mode="json"), ())  # which masks secrets
        if (source := _source(path, layers, *below)) != DEFAULT or not changed
    ]
    texts = [{**row, "text": _text(row["value"])} for row in rows]
    out.data({"config": rows}, lambda: out.table(COLUMNS, texts, "All keys have their defaults."))


def _source(
    path: tuple[str, ...],
    layers: Sequence[tuple[Mapping[str, Any], str]],
    credentials: Any,
    written: Any,
    places: Places,
) -> str:
    """`default`, `FILE:LINE`, the name of a variable, `credential`, or the name of the layer that overrides these."""
    for given, name in layers:
        if _has(given, path):
            return name
    place = places.of(path).removesuffix(": ")
    if place not in os.environ and not _has(written, path):
        place = ""  # it is the line of the key's group
    if place in os.environ or not _has(credentials, path):
        return place or DEFAULT
    return BY_CREDENTIAL


def _written(file: Path | None) -> dict[str, Any]:
    """The content of the file, which is valid; keys in lower case."""
    return _lowered(tomllib.loads(file.read_text(encoding="utf-8"))) if file else {}


def _lowered(given: Any) -> Any:
    return {name.lower(): _lowered(value) for name, value in given.items()} if isinstance(given, dict) else given


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
