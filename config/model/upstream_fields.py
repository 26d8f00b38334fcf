"""The field `upstreams` of a request: a list of objects and lines, or one text
(`config.model.upstream_list_parser`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from pydantic import ValidationError, ValidationInfo
from pydantic_core import PydanticCustomError

from config.model.fields import field_path
from config.model.upstream_list_parser import DEFAULT_PROTOCOL, BadLine, read_line, read_text
from config.text.validation_messages import worded


def no_nulls(given: Any) -> Any:
    """`given`, if no member of it is null; else a validation error that names it."""
    if isinstance(given, dict):
        for name, value in given.items():
            if value is None:
                raise PydanticCustomError("null_inside", "{name} must not be null", {"name": name})
    return given


class _Line(NamedTuple):
    """An entry that was a line of a text."""

    number: int
    entry: dict[str, Any]


def listed(given: Any, info: ValidationInfo) -> Any:
    """A text of lines as a list of them."""
    if not isinstance(given, str):
        return given
    try:
        return [_Line(*line) for line in read_text(given, _bare_protocol(info))]
    except BadLine as error:
        raise PydanticCustomError("bad_line", "{error}", {"error": str(error)}) from None


def _bare_protocol(info: ValidationInfo) -> str:
    """What lines without a scheme are of: the field `upstream_protocol` before this one."""
    return (info.data or {}).get("upstream_protocol") or DEFAULT_PROTOCOL


def read_upstream(given: Any, read: Callable[[Any], Any], info: ValidationInfo) -> Any:
    """An upstream as an object, or as one line."""
    if isinstance(given, str):
        try:
            given = read_line(given, _bare_protocol(info))
        except BadLine as error:
            raise PydanticCustomError("bad_line", "{error}", {"error": str(error)}) from None
    if not isinstance(given, _Line):
        return read(no_nulls(given))
    try:
        upstream = read(given.entry)
    except ValidationError as error:
        raise _of_line(given.number, error) from None
    upstream.was_line(given.number)
    return upstream


def _of_line(number: int, error: ValidationError) -> PydanticCustomError:
    first = error.errors(include_url=False, include_input=False)[0]
    is_of_pools = first["type"] == "extra_forbidden" and first["loc"] == ("labels",)
    why = "is only for upstreams of a pool" if is_of_pools else worded(first)
    text = f"line {number}: {field_path(first['loc'])}: {why}"
    return PydanticCustomError("bad_line", "{error}", {"error": text})


class OrText:
    """For the description: what may be a text instead."""

    def __init__(self, longest: int) -> None:
        self._longest = longest

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        return {"anyOf": [handler(schema), {"type": "string", "minLength": 1, "maxLength": self._longest}]}
