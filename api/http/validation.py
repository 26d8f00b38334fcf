"""A body as a model, and all that is wrong with it at once.

A null is refused before the rest is looked at (`config.model.fields.refuse_nulls`). So that the rest is told too, what
is null is taken out and the others are judged without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from api.errors import InvalidMany
from config.model.fields import field_path

ROUNDS = 20
"""Each looks through all of a body; nobody sends more nulls in earnest."""

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
    """Where a null stands: what names it is below where the model that refused it stands."""
    return (*null["loc"], *str(null["ctx"]["field"]).split("."))


def _without(given: dict[str, Any], paths: Iterable[Path]) -> dict[str, Any] | None:
    """A copy without these members; None when one of them is not to be found (a name may hold a dot)."""
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
    if error["type"] == "missing":
        return field, "is required"
    if error["type"] in ("model_type", "model_attributes_type", "dict_type"):
        return field, "must be an object"
    if error["type"] == "literal_error":
        return field, f"must be one of {_choices(str(error['ctx']['expected']))}"
    text = str(error["msg"]).removeprefix("Value error, ")
    return field, text[:1].lower() + text[1:]


def _choices(expected: str) -> str:
    """pydantic's `'a', 'b' or 'c'`, as the other messages write it."""
    return expected.replace(" or ", ", ").replace("'", "")
