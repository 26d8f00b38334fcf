"""The declaration of lists of destinations."""

from __future__ import annotations

from typing import Any

from actors.bus.messages.specs import ListRef
from api.engine.kind import Texts
from api.engine.records import Stored
from api.engine.responses import OF_INSTALLATION, ResponseModel, Warned, one_of, page_of, shows
from api.engine.transfer import PlannedRecord, Planning, Transfer
from api.objects.named.named_kind import (
    ListStatus,
    NamedKind,
    NamedResource,
    UsedBy,
    UsedByThese,
    entry_with_source,
    openable_source,
    usual_source,
    with_sealed_headers,
)
from api.objects.proxies.proxy_specs import spec
from config.files.secret_box import SecretBox
from config.model.fields import InvalidResource
from config.model.object_fields import ObjectName
from config.model.shared_objects.lists import DestinationList, ListCreate, ListSource, ListUpdate, change_list, new_list
from config.net.entries import GEO


class ListEntry(ListUpdate):
    """A list, known by its `name`. A new one needs `kind`."""

    name: ObjectName


def _wanted(stored: Stored[DestinationList] | None, entry: Any, planning: Planning) -> PlannedRecord:
    entry = with_sealed_headers(entry, planning.sealed.lists)
    if stored is not None:
        return PlannedRecord(change_list(stored.record, entry, planning.now, planning.seal))
    if entry.kind is None:
        raise InvalidResource("kind", "is required for a new list")
    return PlannedRecord(new_list(entry, planning.now, planning.seal))


def _usual(entry: Any, _rules: Any) -> dict[str, Any]:
    left_out = ("format",) if entry.kind == GEO else ()
    if entry.source is not None:
        return {"description": "", "source": usual_source(ListSource(), *left_out)}
    return {"description": ""} if entry.entries is not None else {"description": "", "entries": []}


@shows(ListSource, but=("url", "file", "headers"))
class ListSourceView(ResponseModel):
    """Where the entries of a list come from: a `url`, or a `file`. `interval` is the seconds between two requests.

    The values of `headers` are `***`, and null in an export.
    """

    url: str | None = None
    file: str | None = None
    headers: dict[str, str | None] | None = None


@shows(DestinationList)
class ListedList(ResponseModel):
    """A list in a list of them."""

    source: ListSourceView | None
    status: ListStatus
    used_by: UsedBy


class ListView(ListedList):
    """A list. `entries` are those that it has itself."""

    entries: list[str]
    used_by: UsedByThese


@shows(DestinationList, but=OF_INSTALLATION)
class ExportedList(ResponseModel):
    """A list, with `entries` or a `source`."""

    entries: list[str] | None = None
    source: ListSourceView | None = None


def list_ref(record: DestinationList, revision: int, file: str = "") -> ListRef:
    """The message about a list, whose compiled file has this name."""
    return spec(ListRef, record, revision=revision, file=file)


def _openable(record: DestinationList, seal: SecretBox) -> tuple[DestinationList, list[str]]:
    source, fields = openable_source(record.source, seal)
    return (record.model_copy(update={"source": source}) if fields else record), fields


TRANSFER = Transfer(
    model=ListEntry,
    exported=ExportedList,
    entry=lambda record: entry_with_source(record, "entries"),
    wanted=_wanted,
    blank={"description": ""},
    usual=_usual,
    required=("kind",),
    refit=lambda record, now, seal: change_list(record, ListUpdate(), now, seal),
    openable=_openable,
)

LISTS = NamedKind(
    name="list",
    collection="lists",
    transfer=TRANSFER,
    model=DestinationList,
    create=ListCreate,
    update=ListUpdate,
    new=new_list,
    change=change_list,
    spec=lambda record, revision, _seal, file_of: list_ref(record, revision, file_of(record)),
    warnings=lambda _record: [],
    resource=NamedResource(
        texts=Texts(
            list="Returns one page of lists, the oldest first, without their entries. Follow `next_cursor` for the "
            "next page.",
            create="Stores domains or networks, or the address that they are fetched from. A domain stands for itself "
            "and for all names below it.",
            get="Returns a list with its entries. The path has its id or its name.",
            update="Changes the given fields and keeps all others. `entries` take the place of a source, and a source "
            "that of entries.",
            delete="Deletes a list that nothing names. If it is in use, the response is 400 with the number of its "
            "users and the first ten.",
        ),
        one=one_of("list", ListView, warnings=list[Warned]),
        page=page_of("list", "lists", ListedList, left_out="entries"),
    ),
)
