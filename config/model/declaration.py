"""One declaration for each stored field, from which the models of requests and responses are derived.

A stored model has plain types, since what is on disk was checked when it came; a stricter check of a later release must
not make old data unreadable. Metadata of a field says the rest:

| metadata | meaning |
|---|---|
| `Given(type)` | a request may give it, written as this strict type |
| `NULLABLE` | null takes it away: it has its default again |
| `SECRET` | it is in no response |
| `INTERNAL` | a response has it as a part of another field |
| `MOMENT` | it is Unix seconds, and ISO 8601 in responses |
| `LongList(…)` | only the response about one object has it; all responses have the number of its entries |
| none of them | a request can't set it; a response has it |

A field whose type is a `Group` needs no metadata: of a group, a request gives any part, and the others stay. One that
may be null instead is `NULLABLE`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import UnionType
from typing import Annotated, Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, create_model
from pydantic.fields import FieldInfo

from config.model.fields import NULLABLE, Body, Input

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Given:
    """How a request writes a field: `type` is an annotation of pydantic's, strict and with all its checks."""

    type: Any


@dataclass(frozen=True, slots=True)
class _Unseen:
    why: str


SECRET = _Unseen("secret")
"""Metadata of a field that no response has."""
INTERNAL = _Unseen("internal")
"""Metadata of a field that responses have as a part of another one."""


@dataclass(frozen=True, slots=True)
class _Moment:
    pass


MOMENT = _Moment()
"""Metadata of a field that is Unix seconds."""
Instant = Annotated[float, MOMENT]


@dataclass(frozen=True, slots=True)
class LongList:
    """A field that may be long. `one` is what one of its entries is called."""

    one: str

    @property
    def count(self) -> str:
        """The field of responses that has their number."""
        return f"{self.one}_count"


def entries_of(info: FieldInfo) -> LongList | None:
    """The metadata of a field that may be long."""
    return next((each for each in info.metadata if isinstance(each, LongList)), None)


class Viewed(BaseModel):
    """A part of a stored document that says itself how responses have it."""

    def view(self) -> dict[str, Any]:
        """As responses have it: without its secrets, and without what is null."""
        return self.model_dump(exclude_none=True, include=_visible_names(type(self)))


class Group(Viewed):
    """A part of a stored document: an object whose fields have defaults."""


class Storable(Body):
    """A part of a request that is stored as a model of its own."""

    def stored(self) -> BaseModel:
        """That model."""
        raise NotImplementedError


def group_in(annotation: Any) -> type[Group] | None:
    """The group that a field is, or may be beside null."""
    parts = get_args(annotation) if get_origin(annotation) is UnionType else (annotation,)
    return next((each for each in parts if isinstance(each, type) and issubclass(each, Group)), None)


def partial(model: type[BaseModel], name: str) -> type[Input]:
    """The model of a request that gives any part of `model`; None is how "not given" is written in it."""
    return create_model(name, __base__=Body, __doc__=model.__doc__, **_given(model))


def extended(cls: type[M], fields: Mapping[str, Any]) -> type[M]:
    """The model `cls` with further fields: by name a pair of type and default, `...` for one without."""
    more: Any = dict(fields)
    derived = create_model(cls.__name__, __base__=cls, __module__=cls.__module__, __doc__=cls.__doc__, **more)
    derived.__qualname__ = cls.__qualname__
    return derived


def gives(model: type[BaseModel]) -> Callable[[type[M]], type[M]]:
    """Decorates the model of a request: it takes what can be given of `model`, beside the fields of its own."""

    def derive(cls: type[M]) -> type[M]:
        return extended(cls, {name: field for name, field in _given(model).items() if name not in cls.model_fields})

    return derive


def update(stored: M, body: BaseModel) -> dict[str, Any]:
    """The fields of `stored` that `body`, a model made by `gives`, changes: plain values, and whole groups."""
    changed: dict[str, Any] = {}
    for name in _given(type(stored)):
        value, info = getattr(body, name), type(stored).model_fields[name]
        if value is None and name in body.model_fields_set and _is_nullable(info):
            changed[name] = info.get_default(call_default_factory=True)
        elif value is not None:
            before, group = getattr(stored, name), group_in(info.annotation)
            if before is None and group is not None:
                before = group()
            if isinstance(before, Group):
                changed[name] = before.model_copy(update=value.model_dump(exclude_unset=True))
            else:
                changed[name] = value.stored() if isinstance(value, Storable) else value
    return changed


def visible(model: type[BaseModel]) -> Iterator[tuple[str, FieldInfo]]:
    """The fields of `model` that a response has, by name."""
    return (
        (name, info)
        for name, info in model.model_fields.items()
        if not any(isinstance(each, _Unseen) for each in info.metadata)
    )


@cache
def _visible_names(model: type[BaseModel]) -> set[str]:
    return {name for name, _ in visible(model)}


@cache
def _given(model: type[BaseModel]) -> Mapping[str, Any]:
    """How a request writes each field that it may give. Kept, since models of requests are dear to make."""
    found: dict[str, Any] = {}
    for name, info in model.model_fields.items():
        given = next((each.type for each in info.metadata if isinstance(each, Given)), None)
        group = group_in(info.annotation)
        if given is None and group is not None and (info.annotation is group or _is_nullable(info)):
            given = partial(group, f"{group.__name__}Input")
        if given is not None:
            found[name] = (Annotated[given | None, NULLABLE] if _is_nullable(info) else given | None, None)
    return found


def _is_nullable(info: FieldInfo) -> bool:
    return NULLABLE in info.metadata
