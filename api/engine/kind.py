"""What a kind of object is: one declaration, from which all the rest is derived."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple

from pydantic import BaseModel

from api.engine.records import R
from api.engine.responses import ResponseModel
from api.engine.transfer import Transfer
from config.files.secret_box import SecretBox
from config.model.declaration import LongList, entries_of
from config.model.object_fields import Named
from config.model.proxy_parts import FieldWarning


class Texts(NamedTuple):
    """What the descriptions of the operations say."""

    list: str
    create: str
    get: str
    update: str
    delete: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """How the API has a kind.

    `one` and `page` are models of the data of responses: about one, and about many. A kind that is `paged` is listed in
    pages, with a filter, others whole.
    """

    texts: Texts
    one: type[ResponseModel]
    page: type[ResponseModel]
    created: type[ResponseModel] | None = None
    """Of a create, where it has more than `one`."""
    read: str
    write: str
    delete: str = ""
    """The permissions; `write` for those that delete, unless there is one for it."""
    paged: bool = False
    large_bodies: bool = False
    """Requests may be as large as an import."""
    allows_self: bool = False
    """Callers may read and change what they are themselves; hooks decide which fields."""
    in_scopes: bool = False
    """A key with a scope of proxies may read those that the scope names."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Kind(Generic[R]):
    """A kind of object. `name` is what one is called, `collection` where documents are.

    `refers` gives the objects of other kinds that a record names.
    """

    name: str
    collection: str
    model: type[R]
    transfer: Transfer[R]
    most: int | None = None
    """How many there may be."""
    in_document: int | None = None
    """How many a document of the configuration may have, where it is less than `most`."""
    refers: Callable[[R], Iterator[Named]] = lambda _record: iter(())
    warnings: Callable[[R], list[FieldWarning]] | None = None
    """What is worth knowing about a record."""
    by_name: bool = False
    """Paths name one by its id or by its name."""
    unique_names: bool = True
    events: bool = False
    """Each change is published, as `list.created` (`config.model.events`)."""
    in_events: tuple[str, ...] = ("name",)
    """What events say about one beside its id."""

    @property
    def parameter(self) -> str:
        """What paths call the one that they name."""
        return f"{self.name}_id"

    def about(self, record: Any) -> dict[str, Any]:
        """The data of events about an object."""
        return {self.parameter: record.id, **{name: getattr(record, name) for name in self.in_events}}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ObjectKind(Kind[R]):
    """A kind whose operations the engine has.

    `new` and `change` make the record of a body; they raise `InvalidResource` and `SecretBoxError`.
    """

    create: type[BaseModel]
    update: type[BaseModel]
    read_only: frozenset[str]
    """Fields of responses that no request may set."""
    fixed: frozenset[str] = frozenset()
    """Fields that only a create sets."""
    new: Callable[[Any, float, SecretBox], R]
    change: Callable[[R, Any, float, SecretBox], R]
    resource: Resource

    @property
    def long_field(self) -> tuple[str, LongList]:
        """The field of entries, which lists of objects leave out. Raises `StopIteration` for a kind without one."""
        found = ((name, entries_of(info)) for name, info in self.model.model_fields.items())
        return next((name, entries) for name, entries in found if entries is not None)

    @property
    def entries(self) -> str:
        """The name of that field."""
        return self.long_field[0]

    @property
    def count(self) -> str:
        """The field of responses that has the number of entries."""
        return self.long_field[1].count
