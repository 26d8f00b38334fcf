"""Bodies of requests from the command line: options, `--set a.b=value`, and files in TOML or JSON."""

from __future__ import annotations

import json
import re
import shlex
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from api.cli.errors import CommandError, Status
from api.cli.options import Option, file_option, texts
from api.cli.quantities import field_value
from config.files.durable import replace_file_of_user


def set_option(*examples: str) -> Option:
    """The option `--set`, with examples of the command's fields."""
    listed = ", ".join(shlex.quote(each) if set(each) & set("\"'[{*") else each for each in examples)
    about = f"Any field of the API by its dotted name; the value is JSON or text: {listed}."
    return texts("--set", about, metavar="FIELD=VALUE")


def whole_body(*examples: str) -> dict[str, Option]:
    """The options `--set` and `--from`, which `body_of` finds among the fields."""
    return {
        "set_": set_option(*examples),
        "from_": file_option("--from", "A body in TOML or JSON; - is standard input."),
    }


def body_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The content of the file `from_`, overridden by options (None means not given), overridden by `set_`.

    Of an option that is a file the body has its text.
    """
    file = fields.get("from_")
    body: dict[str, Any] = {} if file is None else read_mapping(file)
    for name, value in fields.items():
        if value is not None and name not in ("set_", "from_"):
            put(body, name, read_text(value) if isinstance(value, Path) else value)
    for setting in fields.get("set_") or ():
        name, equals, text = setting.partition("=")
        if not equals or not name:
            hint = "Such as --set settings.timeout=60"
            raise CommandError(f"--set {setting!r}: must be FIELD=VALUE", hint, Status.USAGE)
        put(body, name, _parsed_value(name, text))
    return body


def require_changes(body: Mapping[str, Any], group: str) -> None:
    """Raise `CommandError` if an `update` of the group of commands has nothing to change."""
    if not body:
        raise CommandError("Nothing to change was given", f"See proxyfleet {group} update --help", Status.USAGE)


def header_fields(option: str, texts: Sequence[str] | None) -> dict[str, str] | None:
    """Names and values of header fields, each given as `NAME: VALUE`; None where there are none."""
    pairs = [(text, *text.partition(":")) for text in texts or ()]
    for text, _name, colon, _value in pairs:
        if not colon:
            raise CommandError(f"{option} {text!r}: must be NAME: VALUE", status=Status.USAGE)
    return {name.strip(): value.strip() for _text, name, _colon, value in pairs} or None


def put(body: dict[str, Any], name: str, value: Any) -> None:
    """Set the dotted `name` to `value`. Raises `CommandError` if a part of the path is not an object."""
    *path, last = name.split(".")
    for part in path:
        body = body.setdefault(part, {})
        if not isinstance(body, dict):
            raise CommandError(f"{name}: {part} is not an object", status=Status.USAGE)
    body[last] = value


def _parsed_value(name: str, text: str) -> Any:
    """The value of `text`: a number with a unit for sizes and rates, else as `value_of`. Raises `CommandError`."""
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
    """A table of TOML or an object of JSON; the first character tells which. Raises `CommandError` with file and
    line."""
    return mapping_of(file, read_text(file))


def mapping_of(file: Path, text: str) -> dict[str, Any]:
    """The mapping in `text`, the content of `file`. Raises `CommandError` with file and line."""
    try:
        found = json.loads(text) if text.lstrip().startswith("{") else tomllib.loads(text)
    except ValueError as error:  # both decode errors are
        hint = "The file must be TOML, or a JSON object"
        raise CommandError(f"{display_name(file)}: {error}", hint, Status.USAGE) from error
    except RecursionError as error:
        raise CommandError(f"{display_name(file)}: nested too deeply", status=Status.USAGE) from error
    if not isinstance(found, dict):
        raise CommandError(f"{display_name(file)}: must be a table", status=Status.USAGE)
    return found


def with_lines(file: Path, text: str, problems: Sequence[tuple[str | None, str]]) -> tuple[tuple[str, str], ...]:
    """Problems of a document, each field preceded by the file, and in TOML by the line."""
    from config.settings.toml_positions import line_of, lines_of

    lines = {} if text.lstrip().startswith("{") else lines_of(text)

    def place(field: str | None) -> str:
        line = line_of(lines, _STEP.findall(field or ""))
        return ":".join([display_name(file), *([str(line)] if line else []), f" {field}" if field else ""]).rstrip(":")

    return tuple((place(field), error) for field, error in problems)


_STEP = re.compile(r"[^.\[\]]+")
"""A step of a path of the API such as `proxies[1].auth.username`."""


def is_stream(file: Path) -> bool:
    """Whether it stands for standard input or output."""
    return str(file) == "-"


def read_text(file: Path) -> str:
    """The text of a file, or of standard input for `-`. Raises `CommandError`; a bad file is a wrong argument."""
    try:
        return sys.stdin.buffer.read().decode() if is_stream(file) else file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise CommandError(f"{display_name(file)}: is not UTF-8 text", status=Status.USAGE) from error
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror or error}", status=Status.USAGE) from error


def write_private(file: Path, text: str) -> None:
    """Write a file for this user alone, whole or not at all: it has names, or hashes. Raises `CommandError`."""
    try:
        replace_file_of_user(file, text.encode())
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror or error}") from error


def display_name(file: Path) -> str:
    """The name of a file in messages."""
    return "standard input" if is_stream(file) else str(file)
