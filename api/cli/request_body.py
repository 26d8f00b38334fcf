"""Bodies of requests out of the command line: options, `--set a.b=value`, and files in TOML or JSON."""

from __future__ import annotations

import json
import re
import shlex
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from api.cli.errors import CommandError, Status
from api.cli.quantities import field_value


def set_option(*examples: str) -> Any:
    """The option `--set` of a command, with examples of fields that the command has."""
    shown = ", ".join(shlex.quote(each) if set(each) & set("\"'[{*") else each for each in examples)
    text = f"Any field of the API by its dotted name; the value is JSON or text: {shown}."
    return typer.Option("--set", metavar="FIELD=VALUE", help=text)


FileOption = Annotated[
    Path | None, typer.Option("--from", metavar="FILE", help="A body in TOML or JSON; - is standard input.")
]


def body_of(given: Mapping[str, Any], settings: Sequence[str] | None, file: Path | None = None) -> dict[str, Any]:
    """The file, with the options laid over it, with what was `--set` laid over that. What is None was not given."""
    body: dict[str, Any] = {} if file is None else read_mapping(file)
    for name, value in given.items():
        if value is not None:
            put(body, name, value)
    for setting in settings or ():
        name, equals, text = setting.partition("=")
        if not equals or not name:
            raise CommandError(
                f"--set {setting!r}: must be FIELD=VALUE", "Such as --set settings.timeout=60", Status.USAGE
            )
        put(body, name, _meant(name, text))
    return body


def put(body: dict[str, Any], name: str, value: Any) -> None:
    """Put `value` at the dotted `name`. Raises `CommandError` when something on the way is no object."""
    *way, last = name.split(".")
    for part in way:
        body = body.setdefault(part, {})
        if not isinstance(body, dict):
            raise CommandError(f"{name}: {part} is no object that fields could be put into", status=Status.USAGE)
    body[last] = value


def _meant(name: str, text: str) -> Any:
    """A number with a unit where the field is a size or a rate; else as `value_of`."""
    value = value_of(text)
    if not isinstance(value, str):
        return value
    try:
        number = field_value(name, value)
    except ValueError as error:
        raise CommandError(f"{name}={text}: {error}", status=Status.USAGE) from error
    return value if number is None else number


def value_of(text: str) -> Any:
    """JSON if it is that, else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def read_mapping(file: Path) -> dict[str, Any]:
    """A table of TOML or an object of JSON, told apart by what it is. Raises `CommandError` with file and line."""
    return mapping_of(file, read_text(file))


def mapping_of(file: Path, text: str) -> dict[str, Any]:
    """As `read_mapping`, with the text of the file read already."""
    try:
        found = json.loads(text) if text.lstrip().startswith("{") else tomllib.loads(text)
    except ValueError as error:  # both decode errors are
        raise CommandError(f"{shown_name(file)}: {error}", "The file must be TOML, or a JSON object") from error
    except RecursionError as error:
        raise CommandError(f"{shown_name(file)}: nested too deeply") from error
    if not isinstance(found, dict):
        raise CommandError(f"{shown_name(file)}: must be a table")
    return found


def with_lines(file: Path, text: str, problems: Sequence[tuple[str | None, str]]) -> tuple[tuple[str, str], ...]:
    """Problems of a document with the file, and the line where it is TOML, before their fields."""
    from config.settings.toml_positions import line_of, lines_of

    lines = {} if text.lstrip().startswith("{") else lines_of(text)

    def place(field: str | None) -> str:
        line = line_of(lines, _STEP.findall(field or ""))
        return ":".join([shown_name(file), *([str(line)] if line else []), f" {field}" if field else ""]).rstrip(":")

    return tuple((place(field), error) for field, error in problems)


_STEP = re.compile(r"[^.\[\]]+")
"""A step on the way that the API describes as `proxies[1].auth.username`."""


def read_text(file: Path) -> str:
    """The text of a file, or of standard input for `-`."""
    try:
        return sys.stdin.buffer.read().decode() if str(file) == "-" else file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise CommandError(f"{shown_name(file)}: is not UTF-8 text") from error
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror or error}") from error


def shown_name(file: Path) -> str:
    """How messages call it."""
    return "standard input" if str(file) == "-" else str(file)
