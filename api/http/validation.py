"""A body as a model, and everything that is wrong with it at once.

A null is refused before other fields are validated (`config.model.fields.Body`). To report the others as well, the
nulls are removed and the rest is validated without them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from api.errors import InvalidMany
from config.model.fields import field_path
from config.text.validation_messages import worded

ROUNDS = 20
"""Validations of one body at most: each may find more nulls."""

M = TypeVar("M", bound=BaseModel)
Path = tuple[str | int, ...]


def validated(model: type[M], given: dict[str, Any], read_only: frozenset[str]) -> M:
    """`given` as a `model`. Raises `InvalidMany` that names everything that is wrong."""
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise InvalidMany([_problem(each, read_only) for each in _all_problems(model, given, error)]) from error


def _all_problems(model: type[BaseModel], given: dict[str, Any], error: ValidationError) -> Sequence[Any]:
    rest = {name: value for name, value in given.items() if name in model.model_fields}
    unknown = [{"type": "extra_forbidden", "loc": (name,)} for name in given if name not in rest]
    problems = _problems(model, rest) if unknown else list(error.errors(include_url=False))
    nulls: list[Any] = []
    for _ in range(ROUNDS):
        found = [each for each in problems if each["type"] == "null_field"]
        smaller = _without(rest, map(_path, found)) if found else None
        if smaller is None:
            break
        nulls, rest = nulls + found, smaller
        problems = _problems(model, rest)
    paths = set(map(_path, nulls))
    others = [each for each in problems if each["type"] != "missing" or each["loc"] not in paths]
    return [*nulls, *others, *unknown]


def _problems(model: type[BaseModel], given: dict[str, Any]) -> list[Any]:
    try:
        model.model_validate(given)
    except ValidationError as error:
        return list(error.errors(include_url=False))
    return []


def _path(null: Any) -> Path:
    """The path of a null: that of the model that refused it, and the name of the field below it."""
    return (*null["loc"], *str(null["ctx"]["field"]).split("."))


def _without(given: dict[str, Any], paths: Iterable[Path]) -> dict[str, Any] | None:
    """A copy without these members; None when one of them is not found (a name may contain a dot)."""
    copy = deepcopy(given)
    for path in paths:
        holder: Any = copy
        try:
            for part in path[:-1]:
                holder = holder[part]
            del holder[path[-1]]
        except (KeyError, IndexError, TypeError):
            return None
    return copy


def _problem(error: Any, read_only: frozenset[str]) -> tuple[str, str]:
    field = field_path(error["loc"])
    if error["type"] == "extra_forbidden":
        return field, "is read-only" if field in read_only else "is not a known field"
    if error["type"] == "null_field":
        return field_path((*error["loc"], str(error["ctx"]["field"]))), "must not be null"
    if error["type"] == "bad_entry":
        return f"{field}[{error['ctx']['index']}]", str(error["msg"])
    return field, worded(error)
