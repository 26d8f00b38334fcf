"""Models of the data of responses: what all share, and how they follow from the models that are stored
(`config.model.declaration`).

They only describe: no response is built from them. Tests validate every real response against its model, with
exactly its fields.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.fields import FieldInfo

from config.model.declaration import MOMENT, Group, entries_of, extended, group_in, visible
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


class ResponseModel(BaseModel):
    """A part of a response. Later versions may add fields; none is renamed, retyped or removed."""

    model_config = ConfigDict(extra="forbid", defer_build=True)  # few are built before the document is asked for


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
ScheduleWindowView: Any = create_model(
    "ScheduleWindowView", __base__=ResponseModel, __doc__="A window; it begins on each of the days.", **_WINDOW
)


class ScheduleView(ResponseModel):
    """When accounts may be used; without windows never."""

    timezone: str
    windows: list[ScheduleWindowView]


F = TypeVar("F", bound=ResponseModel)
OF_INSTALLATION = ("id", "created_at", "updated_at")
"""Fields that entries of documents do not have."""


def having(fields: Mapping[str, Any]) -> Callable[[type[F]], type[F]]:
    """Decorates the model of a response: it has fields with these names and types, beside those that it states.

    A type with a default is a pair.
    """

    def derive(cls: type[F]) -> type[F]:
        added = {name: kind for name, kind in fields.items() if name not in cls.model_fields}
        return extended(cls, {name: kind if isinstance(kind, tuple) else (kind, ...) for name, kind in added.items()})

    return derive


def shows(stored: type[BaseModel], but: Collection[str] = (), *, sparse: bool = False) -> Callable[[type[F]], type[F]]:
    """Decorates the model of a response: it has all fields of `stored` `but` these, beside those that it states.

    Of a field that may be long it has the number of entries. `sparse`: what says nothing is left out.
    """

    def derive(cls: type[F]) -> type[F]:
        fields: dict[str, Any] = {}
        for name, info in visible(stored):
            entries = entries_of(info)
            if name in but or name in cls.model_fields:
                continue
            if entries is not None:
                fields[entries.count] = int
            else:
                kind = _moment(info) if MOMENT in info.metadata else _type(info.annotation)
                fields[name] = (kind | None, None) if sparse else kind
        return having(fields)(cls)

    return derive


def mirrors(message: type, empty_is_null: Collection[str] = ()) -> Callable[[type[F]], type[F]]:
    """Decorates the model of a response: it has all fields of a message of the bus, beside those that it states."""
    kinds = {name: _as_list(kind) for name, kind in get_type_hints(message).items()}
    return having({name: kind | None if name in empty_is_null else kind for name, kind in kinds.items()})


def one_of(name: str, view: type[ResponseModel], doc: str = "", **more: Any) -> type[ResponseModel]:
    """The data of a response about one object of the kind `name`; `more` are fields beside it.

    A type with a default is a pair.
    """
    more = {field: each if isinstance(each, tuple) else (each, ...) for field, each in more.items()}
    fields: dict[str, Any] = {name: (view, ...), **more}
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
    fields: dict[str, Any] = {name: (_type(info.annotation), ...) for name, info in visible(stored)}
    return create_model(stored.__name__, __base__=ResponseModel, __doc__=stored.__doc__, **fields)
