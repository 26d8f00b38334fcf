"""Models of responses that follow from the models that are stored (`config.model.declaration`)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cache
from typing import Any, TypeVar

from pydantic import BaseModel, create_model

from api.openapi.schemas.base import ResponseModel
from config.model.declaration import Group, visible

F = TypeVar("F", bound=ResponseModel)


def shows(stored: type[BaseModel], but: Collection[str] = ()) -> Callable[[type[F]], type[F]]:
    """Decorates the model of a response: it has all fields of `stored` `but` these, beside those that it states."""

    def derive(cls: type[F]) -> type[F]:
        fields: dict[str, Any] = {
            name: (_type(info.annotation), ...)
            for name, info in visible(stored)
            if name not in but and name not in cls.model_fields
        }
        derived = create_model(cls.__name__, __base__=cls, __module__=cls.__module__, __doc__=cls.__doc__, **fields)
        derived.__qualname__ = cls.__qualname__
        return derived

    return derive


def _type(annotation: Any) -> Any:
    return _group(annotation) if isinstance(annotation, type) and issubclass(annotation, Group) else annotation


@cache
def _group(stored: type[Group]) -> type[ResponseModel]:
    """A view of a group has all of its fields."""
    fields: dict[str, Any] = {name: (_type(info.annotation), ...) for name, info in visible(stored)}
    return create_model(stored.__name__, __base__=ResponseModel, __doc__=stored.__doc__, **fields)
