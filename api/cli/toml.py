"""Writes TOML 1.0: tables, arrays of tables, and values; `tomllib` reads it.

A table inside of an entry that fits into a line is written in one, as a person would: `quota = { bytes = 5 }`; so are
those of an array, each in a line of its own. Sections, and what is at the top of the document, are never.

TOML has no null, so members that are None are left out; None in an array can't be written and is a `ValueError`.

tomli-w writes each entry of an array on a line of its own, and short tables of an array inside of brackets, sections
too. Exports would not have the form that the documentation shows, and the defaults in `docs/proxyfleet.toml` would take
several lines each.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
WIDE = 100
"""Characters of a line; a longer array is written over several, and a longer table with a header."""


def dumps(document: Mapping[str, Any]) -> str:
    """`document` as TOML. `tomllib.loads` gives it back, but for members that are None."""
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
    return name if _BARE.fullmatch(name) else string(name)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str):
        return string(value)
    if isinstance(value, Mapping):
        members = ", ".join(f"{_key(name)} = {_value(each)}" for name, each in value.items() if each is not None)
        return f"{{ {members} }}" if members else "{}"
    if isinstance(value, (list, tuple)):
        return _array([_value(each) for each in value], apart=_of_tables(value))
    raise ValueError(f"{type(value).__name__} can't be written as TOML")


def _array(values: list[str], apart: bool = False) -> str:
    """In one line if it fits, unless its values are to be in lines of their own."""
    line = f"[{', '.join(values)}]"
    return line if len(line) <= WIDE and not apart else "".join(["[\n", *(f"  {value},\n" for value in values), "]"])


def string(text: str) -> str:
    """A basic string. JSON escapes all that TOML wants escaped but DEL, and as TOML reads it outside the BMP."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
