"""Bodies of requests from the command line: options, `--set a.b=value`, and files in TOML or JSON; writing TOML."""

from __future__ import annotations

import json
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
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
    from config.text.toml_positions import line_of, lines_of

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


# --- writing TOML ---

_BARE = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
WIDE = 100
"""Characters of a line; a longer array is written over several, and a longer table with a header."""


def as_toml(document: Mapping[str, Any]) -> str:
    """`document` as TOML 1.0. `tomllib.loads` gives it back, but for members that are None, which TOML has none for.

    A table inside of an entry that fits into a line is written in one, as a person would: `quota = { bytes = 5 }`; so
    are those of an array, each in a line of its own. Sections, and what is at the top of the document, are never. None
    in an array can't be written and is a `ValueError`.

    tomli-w writes each entry of an array on a line of its own, and short tables of an array inside of brackets,
    sections too. Exports would not have the form that the documentation shows, and the defaults in
    `docs/proxyfleet.toml` would take several lines each.
    """
    return "\n".join(_table(document, ())).strip("\n") + "\n"


def _table(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    """Plain members first: members after a header belong to it."""
    inner: list[tuple[str, Any]] = []
    for name, value in table.items():
        if value is None:
            continue
        if (isinstance(value, Mapping) or _of_tables(value)) and not (path and _fits(name, value)):
            inner.append((name, value))
        else:
            yield f"{_key(name)} = {_value(value)}"
    for name, value in inner:
        header = ".".join(_key(part) for part in (*path, name))
        for each in [value] if isinstance(value, Mapping) else value:
            yield ""
            yield f"[{header}]" if isinstance(value, Mapping) else f"[[{header}]]"
            yield from _table(each, (*path, name))


def _fits(name: str, value: Any) -> bool:
    """Whether a table, or each of an array, is short enough for a line."""
    lines = [f"  {_value(each)}," for each in value] if _of_tables(value) else [f"{_key(name)} = {_value(value)}"]
    return all(len(line) <= WIDE and "\n" not in line for line in lines)


def _of_tables(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and bool(value) and all(isinstance(each, Mapping) for each in value)


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else toml_string(name)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str):
        return toml_string(value)
    if isinstance(value, Mapping):
        members = ", ".join(f"{_key(name)} = {_value(each)}" for name, each in value.items() if each is not None)
        return f"{{ {members} }}" if members else "{}"
    if isinstance(value, (list, tuple)):
        return _array([_value(each) for each in value], wrapped=_of_tables(value))
    raise ValueError(f"{type(value).__name__} can't be written as TOML")


def _array(values: list[str], wrapped: bool = False) -> str:
    """In one line if it fits, unless its values are to be in lines of their own."""
    line = f"[{', '.join(values)}]"
    return line if len(line) <= WIDE and not wrapped else "".join(["[\n", *(f"  {value},\n" for value in values), "]"])


def toml_string(text: str) -> str:
    """A basic string. JSON escapes all that TOML wants escaped but DEL, and as TOML reads it outside the BMP."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
