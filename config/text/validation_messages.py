"""What is wrong with a value, in words that say what is allowed: the one translation of pydantic's errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
