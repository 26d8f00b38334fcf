"""Numbers as people read them (`2d 4h 31m`, `1.50 GB`, ISO 8601 in UTC), and text that does no harm in a line of a log,
in a terminal or in a cell of a spreadsheet.

A line break forges a line, an escape sequence (ESC, or CSI as the one character U+009B) gives orders to a terminal, and
the marks that turn the direction of writing (U+202E and its like) show another text than there is. Such characters
become what Python would write for them. All other characters stay.

And what is wrong with a value, in words that say what is allowed: the one translation of pydantic's errors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(:\d\d(\.\d+)?)?([Zz]|[+-]\d\d:?\d\d)?", re.ASCII)
_SIZES = ("B", "KB", "MB", "GB", "TB", "PB")


def uptime_text(seconds: float) -> str:
    """`2d 4h 31m`; leading zero parts are left out, and less than a minute is `0m`."""
    minutes = max(0, int(seconds)) // 60
    days, minutes = divmod(minutes, 24 * 60)
    hours, minutes = divmod(minutes, 60)
    parts = [(days, "d"), (hours, "h"), (minutes, "m")]
    while len(parts) > 1 and parts[0][0] == 0:
        parts.pop(0)
    return " ".join(f"{number}{unit}" for number, unit in parts)


def size_text(count: float) -> str:
    """`1.50 GB`: 1024-based with two decimals, as the contract wants; bytes keep the decimals too."""
    value = float(count)
    for unit in _SIZES[:-1]:
        if abs(round(value, 2)) < 1024:
            return f"{value:.2f} {unit}"
        value /= 1024
    return f"{value:.2f} {_SIZES[-1]}"


MANY = {
    "proxy": "proxies",
    "policy": "policies",
    "settings": "settings",
    "entry": "entries",
    "byte of usage": "bytes of usage",
    "entry of the audit trail": "entries of the audit trail",
}
"""Plurals without an s."""


def counted(number: int, one: str) -> str:
    """`1 user`, `2 users`, `3 proxies`."""
    return f"{number} {one if number == 1 else MANY.get(one, f'{one}s')}"


def timestamp_text(epoch_seconds: float) -> str:
    """`2026-01-31T12:00:00.123Z` of Unix seconds."""
    moment = datetime.fromtimestamp(epoch_seconds, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_moment(value: Any) -> float:
    """Unix seconds of an ISO 8601 date and time; without an offset it is UTC. Raises `ValueError`."""
    if not isinstance(value, str) or not _MOMENT.fullmatch(value):
        raise ValueError("must be an ISO 8601 date and time, such as 2030-01-31T12:00:00Z")
    moment = datetime.fromisoformat(value.upper())
    if not 1970 <= moment.year <= 9000:
        raise ValueError("must be a year from 1970 to 9000")
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # C0, DEL, C1
    "\u00ad\u061c\u180e"  # soft hyphen, Arabic letter mark, Mongolian vowel separator
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f"  # no width, left or right, ends of lines, embeddings, isolates
    "\ufeff\ufff9-\ufffb"  # byte order mark, annotations
    "\ud800-\udfff"  # halves of characters: what can't be encoded
    "\U000e0000-\U000e007f]"  # tags
)


def printable(text: str) -> str:
    """`text` with its unsafe characters escaped. The backslash is none: what was escaped stays as it is."""
    return text if text.isascii() and text.isprintable() else _UNSAFE.sub(_escaped, text)


def printable_json(line: str) -> str:
    """A line of JSON in which the unsafe characters, which can only be in its texts, are `\\uXXXX`."""
    return line if line.isascii() and line.isprintable() else _UNSAFE.sub(_escaped_json, line)


def _escaped(match: re.Match[str]) -> str:
    return repr(match[0])[1:-1] if not "\ud800" <= match[0] <= "\udfff" else f"\\u{ord(match[0]):04x}"


def _escaped_json(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


FORMULA = frozenset("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")
"""Characters by which a spreadsheet recognizes a formula at the beginning of a cell, those of full width too."""


def with_apostrophe(cell: str) -> str:
    """`cell` as no spreadsheet takes it for a formula; `without_apostrophe` returns the text."""
    return f"'{cell}" if cell[:1] in FORMULA or cell[:1] == "'" else cell


def without_apostrophe(cell: str) -> str:
    """The text that `with_apostrophe` made a cell of."""
    return cell[1:] if cell[:1] == "'" and (cell[1:2] in FORMULA or cell[1:2] == "'") else cell


TOML = {
    "list": 'a list, such as ["…", "…"]',
    "object": "a table",
    "integer": "a whole number",
    "number": "a number, without a unit",
    "boolean": "true or false",
    "string": "a text, in quotes",
    "path": "a path, in quotes",
}
"""The types of values as the configuration file writes them."""
JSON = {
    "list": "a list",
    "object": "an object",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "string": "a string",
    "path": "a path",
}
"""As bodies of requests write them."""

_TYPES = {
    "list_type": "list",
    "tuple_type": "list",
    "set_type": "list",
    "frozen_set_type": "list",
    "dict_type": "object",
    "model_type": "object",
    "model_attributes_type": "object",
    "int_type": "integer",
    "int_parsing": "integer",
    "int_from_float": "integer",
    "float_type": "number",
    "float_parsing": "number",
    "bool_type": "boolean",
    "bool_parsing": "boolean",
    "string_type": "string",
    "path_type": "path",
}
_BOUNDS = {
    "greater_than_equal": ("ge", "at least"),
    "greater_than": ("gt", "greater than"),
    "less_than_equal": ("le", "at most"),
    "less_than": ("lt", "less than"),
}
_LENGTHS = {
    "string_too_short": ("min_length", "at least"),
    "string_too_long": ("max_length", "at most"),
    "too_short": ("min_length", "at least"),
    "too_long": ("max_length", "at most"),
}


def worded(error: Mapping[str, Any], types: Mapping[str, str] = JSON) -> str:
    """One of `ValidationError.errors()` as what follows the name of its field; `types` is `JSON` or `TOML`."""
    kind, context = str(error["type"]), error.get("ctx", {})
    if kind in _TYPES:
        return f"must be {types[_TYPES[kind]]}"
    if kind in _BOUNDS:
        name, bound = _BOUNDS[kind]
        return f"must be {bound} {context[name]}"
    if kind in _LENGTHS:
        name, bound = _LENGTHS[kind]
        unit = "item" if isinstance(error.get("input"), list | tuple | dict) else "character"
        return f"must have {bound} {context[name]} {unit}{'' if context[name] == 1 else 's'}"
    if kind == "literal_error":  # pydantic writes 'a', 'b' or 'c', as TOML does
        expected = str(context["expected"])
        return f"must be {expected}" if types is TOML else f"must be one of {_unquoted(expected)}"
    if kind == "missing":
        return "is required"
    text = str(error["msg"]).removeprefix("Value error, ")
    return text[:1].lower() + text[1:]


def _unquoted(expected: str) -> str:
    return expected.replace(" or ", ", ").replace("'", "")
