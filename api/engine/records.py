"""Stored records, and how responses have them by the metadata of their fields."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from config.model.declaration import MOMENT, LongList, Viewed, entries_of, visible
from config.text.formatting import timestamp_text

R = TypeVar("R", bound=BaseModel)
"""A stored model with the fields `id`, `name` (of people and accounts `username`) and `created_at`."""


@dataclass(frozen=True, slots=True)
class Stored(Generic[R]):
    """A record and its revision. Requests share it, so it must not be altered."""

    record: R
    revision: int


def view_of(record: BaseModel, whole: bool = True) -> dict[str, Any]:
    """All that a response has of a record, without its secrets; unless `whole`, as lists of objects have it."""
    view: dict[str, Any] = {}
    for name, is_moment, entries in _fields_of(type(record)):
        value = getattr(record, name)
        if entries is None:
            view[name] = moment(value) if is_moment else _plain(value)
            continue
        view[entries.count] = len(value)
        if whole:
            view[name] = _plain(value)
    return view


_FIRST = ("id", "name", "username")
"""What a person looks for; a model that inherits its rules has them before."""


@cache
def _fields_of(model: type[BaseModel]) -> tuple[tuple[str, bool, LongList | None], ...]:
    """The fields of a model that a response has: whether one is a moment, and how one that may be long is shown."""
    fields = sorted(visible(model), key=lambda field: field[0] not in _FIRST)
    return tuple((name, MOMENT in info.metadata, entries_of(info)) for name, info in fields)


def _plain(value: Any) -> Any:
    if isinstance(value, Viewed):
        return value.view()
    if isinstance(value, list) and value and isinstance(value[0], Viewed):
        return [each.view() for each in value]
    return value.model_dump(exclude_none=True) if isinstance(value, BaseModel) else value


def moment(seconds: float | None) -> str | None:
    """ISO 8601 of Unix seconds."""
    return None if seconds is None else timestamp_text(seconds)
