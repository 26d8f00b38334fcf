"""What pydantic finds wrong with a value of the configuration, in words that tell what is allowed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_LIST = 'must be a list, such as ["…", "…"]'
_KINDS = {
    "list_type": _LIST,
    "tuple_type": _LIST,
    "set_type": _LIST,
    "frozen_set_type": _LIST,
    "dict_type": "must be a table",
    "model_type": "must be a table",
    "model_attributes_type": "must be a table",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number, without a unit",
    "float_parsing": "must be a number, without a unit",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "string_type": "must be a text, in quotes",
    "path_type": "must be a path, in quotes",
}
_BOUNDS = {
    "greater_than_equal": ("ge", "at least {}"),
    "greater_than": ("gt", "greater than {}"),
    "less_than_equal": ("le", "at most {}"),
    "less_than": ("lt", "less than {}"),
    "literal_error": ("expected", "{}"),
    "string_too_short": ("min_length", "at least {} characters long"),
    "string_too_long": ("max_length", "at most {} characters long"),
}
_SECRET = {"too_short": ("min_length", "at least {}"), "too_long": ("max_length", "at most {}")}


def worded(error: Mapping[str, Any]) -> str:
    """One of `ValidationError.errors()` as what goes on after the name of the key."""
    kind, context = str(error["type"]), error.get("ctx", {})
    if kind in _KINDS:
        return _KINDS[kind]
    if kind in _BOUNDS:
        name, text = _BOUNDS[kind]
        return f"must be {text.format(context[name])}"
    if kind in _SECRET:
        name, text = _SECRET[kind]
        unit = "items" if isinstance(error["input"], list | tuple) else "characters"
        return f"must have {text.format(context[name])} {unit}"
    return str(error["msg"]).removeprefix("Value error, ")
