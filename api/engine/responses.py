"""Models of responses that follow from the models that are stored (`config.model.declaration`)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cache
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, create_model
from pydantic.fields import FieldInfo

from api.openapi.schemas.base import Moment, ResponseModel
from config.model.declaration import MOMENT, Group, entries_of, group_in, visible

F = TypeVar("F", bound=ResponseModel)
OF_INSTALLATION = ("id", "created_at", "updated_at")
"""Fields that entries of documents do not have."""


def shows(stored: type[BaseModel], but: Collection[str] = (), *, sparse: bool = False) -> Callable[[type[F]], type[F]]:
    """Decorates the model of a response: it has all fields of `stored` `but` these, beside those that it states.

    Of a field that may be long it has the number of entries. `sparse`: what says nothing is left out.
    """

    def derive(cls: type[F]) -> type[F]:
        fields: dict[str, Any] = {}
        for name, info in visible(stored):
            entries = entries_of(info)
            if entries is not None and name not in but and name not in cls.model_fields:
                fields[entries.count] = (int, ...)
            elif name not in but and name not in cls.model_fields:
                described = _moment(info) if MOMENT in info.metadata else _type(info.annotation)
                fields[name] = (described | None, None) if sparse else (described, ...)
        derived = create_model(cls.__name__, __base__=cls, __module__=cls.__module__, __doc__=cls.__doc__, **fields)
        derived.__qualname__ = cls.__qualname__
        return derived

    return derive


def one_of(name: str, view: type[ResponseModel], doc: str = "", **more: Any) -> type[ResponseModel]:
    """The data of a response about one object of the kind `name`; `more` are fields beside it."""
    fields: dict[str, Any] = {name: (view, ...), **{field: (each, ...) for field, each in more.items()}}
    return create_model(f"One{name.capitalize()}", __base__=ResponseModel, __doc__=doc or f"A {name}.", **fields)


def page_of(name: str, collection: str, listed: type[ResponseModel], left_out: str) -> type[ResponseModel]:
    """A page of objects of the kind `name`, without their field `left_out`."""
    fields: dict[str, Any] = {collection: (list[listed], ...), "has_more": (bool, ...)}  # type: ignore[valid-type]
    next_one = "`next_cursor` leads to the next one; it is null on the last."
    doc = f"A page of {collection}, without their {left_out}. {next_one}"
    fields["next_cursor"] = (str | None, ...)
    return create_model(f"{name.capitalize()}Page", __base__=ResponseModel, __doc__=doc, **fields)


def all_of(title: str, collection: str, listed: type[ResponseModel]) -> type[ResponseModel]:
    """All objects of a collection."""
    fields: dict[str, Any] = {collection: (list[listed], ...), "total": (int, ...)}  # type: ignore[valid-type]
    return create_model(title, __base__=ResponseModel, __doc__=f"{collection.capitalize()}, oldest first.", **fields)


def _moment(info: FieldInfo) -> Any:
    return Moment | None if type(None) in get_args(info.annotation) else Moment


def _type(annotation: Any) -> Any:
    group = group_in(annotation)
    if group is None:
        return annotation
    return group_view(group) if annotation is group else group_view(group) | None


@cache
def group_view(stored: type[Group]) -> type[ResponseModel]:
    """A view of a group has all of its fields."""
    fields: dict[str, Any] = {name: (_type(info.annotation), ...) for name, info in visible(stored)}
    return create_model(stored.__name__, __base__=ResponseModel, __doc__=stored.__doc__, **fields)
