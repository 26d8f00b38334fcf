"""Models of the data of responses: what all share, and how they follow from the models that are stored
(`config.model.declaration`).

They only describe: no response is built from them, and a start makes none of them but as a plain class: models of
pydantic (`model_of`) are made when the description is asked for. Tests validate every real response against its model,
with exactly its fields.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import cache
from types import GenericAlias
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, create_model
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema

from config.model.declaration import MOMENT, Group, entries_of, group_in, visible
from config.model.plans import Day

Moment = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
"""ISO 8601, UTC."""
Reason = Literal[
    "certificate",
    "upstream_down",
    "upstreams_unreachable",
    "out_of_descriptors",
    "bind_address",
    "accounts_table",
    "list_unreadable",
    "workers",
    "listener",
    "process",
]
"""Why a proxy or an actor is degraded or has failed (`actors.bus.messages.common.REASONS`)."""
HealthState = Literal["healthy", "degraded", "unhealthy"]


Fields = Mapping[str, Any]
"""Types by the names of fields; a type with a default is a pair."""


class ResponseModel:
    """A part of a response. Later versions may add fields; none is renamed, retyped or removed."""

    further: ClassVar[Callable[[Collection[str]], Fields]]
    """Of a class that has it: returns its fields beside those with these names, which it states."""

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return handler(model_of(cls))


_MODELS: dict[type, type[BaseModel]] = {}


def model_of(cls: type[ResponseModel]) -> type[BaseModel]:
    """The model of a response."""
    if cls not in _MODELS:
        _MODELS[cls] = _modelled(cls)
    return _MODELS[cls]


def _modelled(cls: type[ResponseModel]) -> type[BaseModel]:
    hints, fields = get_type_hints(cls, include_extras=True), dict[str, Any]()
    for each in reversed(cls.__mro__[:-2]):
        own = vars(each)
        fields |= {name: (hints[name], own.get(name, ...)) for name in own.get("__annotations__", ())}
        added = own["further"].__func__(fields.keys()) if "further" in own else {}
        pairs = {name: kind if isinstance(kind, tuple) else (kind, ...) for name, kind in added.items()}
        fields |= {name: pair for name, pair in pairs.items() if name not in fields}
    return create_model(cls.__name__, __base__=_Model, __module__=cls.__module__, __doc__=cls.__doc__, **fields)


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


def _made(name: str, doc: str | None, fields: Fields) -> type[ResponseModel]:
    return type(name, (ResponseModel,), {"__doc__": doc, "further": staticmethod(lambda _stated: fields)})


class Deleted(ResponseModel):
    """A deleted resource."""

    id: str
    deleted: Literal[True]


class Revoked(ResponseModel):
    """A revoked key or credential."""

    id: str
    revoked: Literal[True]


class Message(ResponseModel):
    """A message about the outcome."""

    message: str


class Warned(ResponseModel):
    """A probably unintended effect of a field."""

    field: str
    warning: str


class MissingNode(ResponseModel):
    """A node that did not respond in time."""

    node: str
    reason: str


class NodesMeta(ResponseModel):
    """Of a fleet of several nodes: those of which nothing is in the response, or of the audit trail nothing new."""

    missing_nodes: list[MissingNode]


_WINDOW: dict[str, Any] = {"days": (list[Day], ...), "from": (str, ...), "to": (str, ...)}
ScheduleWindowView: Any = _made("ScheduleWindowView", "A window; it begins on each of the days.", _WINDOW)


class ScheduleView(ResponseModel):
    """When accounts may be used; without windows never."""

    timezone: str
    windows: list[ScheduleWindowView]


F = TypeVar("F", bound=ResponseModel)
OF_INSTALLATION = ("id", "created_at", "updated_at")
"""Fields that entries of documents do not have."""


def having(fields: Fields) -> Callable[[type[F]], type[F]]:
    """Decorates the model of a response: it has these fields beside those that it states."""
    return _with(lambda _stated: fields)


def _with(further: Callable[[Collection[str]], Fields]) -> Callable[[type[F]], type[F]]:
    def derive(cls: type[F]) -> type[F]:
        cls.further = staticmethod(further)
        return cls

    return derive


def shows(stored: type[BaseModel], but: Collection[str] = (), *, sparse: bool = False) -> Callable[[type[F]], type[F]]:
    """Decorates the model of a response: it has all fields of `stored` `but` these, beside those that it states.

    Of a field that may be long it has the number of entries. `sparse`: what says nothing is left out.
    """

    def visibly(stated: Collection[str]) -> Fields:
        fields: dict[str, Any] = {}
        for name, info in visible(stored):
            entries = entries_of(info)
            if name in but or name in stated:
                continue
            if entries is not None:
                fields[entries.count] = int
            else:
                kind = _moment(info) if MOMENT in info.metadata else _type(info.annotation)
                fields[name] = (kind | None, None) if sparse else kind
        return fields

    return _with(visibly)


def mirrors(message: type, empty_is_null: Collection[str] = ()) -> Callable[[type[F]], type[F]]:
    """Decorates the model of a response: it has all fields of a message of the bus, beside those that it states."""

    def mirrored(_stated: Collection[str]) -> Fields:
        kinds = {name: _as_list(kind) for name, kind in get_type_hints(message).items()}
        return {name: kind | None if name in empty_is_null else kind for name, kind in kinds.items()}

    return _with(mirrored)


def one_of(name: str, view: type[ResponseModel], doc: str = "", **more: Any) -> type[ResponseModel]:
    """The data of a response about one object of the kind `name`; `more` are fields beside it.

    A type with a default is a pair.
    """
    return _made(f"One{name.capitalize()}", doc or f"A {name}.", {name: view, **more})


def page_of(name: str, collection: str, listed: type[ResponseModel], left_out: str) -> type[ResponseModel]:
    """A page of objects of the kind `name`, without their field `left_out`."""
    fields: Fields = {collection: GenericAlias(list, (listed,)), "has_more": bool, "next_cursor": str | None}
    next_one = "`next_cursor` leads to the next one; it is null on the last."
    doc = f"A page of {collection}, without their {left_out}. {next_one}"
    return _made(f"{name.capitalize()}Page", doc, fields)


def all_of(title: str, collection: str, listed: type[ResponseModel]) -> type[ResponseModel]:
    """All objects of a collection."""
    fields: Fields = {collection: GenericAlias(list, (listed,)), "total": int}
    return _made(title, f"{collection.capitalize()}, oldest first.", fields)


def _as_list(kind: Any) -> Any:
    return list[get_args(kind)[0]] if get_origin(kind) is tuple else kind  # type: ignore[misc]


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
    return _made(stored.__name__, stored.__doc__, {name: _type(info.annotation) for name, info in visible(stored)})
