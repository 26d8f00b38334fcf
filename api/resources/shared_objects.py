"""The operations on lists, pools and policies: the same for each kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from api.call import Call, Reply
from api.errors import Denied, Invalid, NotFound
from api.http.cursor import EXAMPLE, PATTERN, ListCursor, checksum, foreign_cursor
from api.http.query import Query, cursor, integer, text
from api.services.object_kinds import LISTS, POOLS, ObjectKind
from api.services.shared_objects import StoredObject
from config.model.webhooks import masked_url

Handler = Callable[[Call], Reply]


class ListObjects(Query):
    """The filter of objects, and the page."""

    q: str | None = text("Only with this in the name or the description; ignores case", "office", 128, lowest=1)
    limit: int = integer("The size of the page", 1, 1000, 100)
    cursor: ListCursor | None = cursor(
        "The `next_cursor` of the previous page, with the same filter", EXAMPLE, PATTERN, ListCursor.of
    )


class Handlers:
    """The handlers of one kind. Their docstrings are made of the words of the kind."""

    def __init__(self, kind: ObjectKind, texts: dict[str, str]) -> None:
        """`texts` has by operation (`list`, `create`, `get`, `update`, `delete`) what its description says."""
        self.list = _described(lambda call: _list(kind, call), f"List {kind.collection}.", texts["list"])
        self.create = _described(lambda call: _create(kind, call), f"Create a {kind.name}.", texts["create"])
        self.get = _described(lambda call: _get(kind, call), f"Show a {kind.name}.", texts["get"])
        self.update = _described(lambda call: _update(kind, call), f"Update a {kind.name}.", texts["update"])
        self.delete = _described(lambda call: _delete(kind, call), f"Delete a {kind.name}.", texts["delete"])


def _described(handler: Handler, title: str, description: str) -> Handler:
    handler.__doc__ = f"{title}\n\n{description}"
    return handler


def _list(kind: ObjectKind, call: Call) -> Reply:
    query: ListObjects = call.query
    filters = checksum([kind.collection, query.q])
    found = [
        each
        for each in call.services.shared_objects.all(kind)
        if _matches(each, query.q) and call.caller.reaches(kind.collection, each.record.name)
    ]
    if query.cursor is not None:
        found = _behind(found, query.cursor.position_in(filters))
    page, more = found[: query.limit], len(found) > query.limit
    return Reply(
        {
            kind.collection: [
                _masked(call, kind.brief(each.record)) | _status(kind, call, each.record)
                for each in map(call.services.shared_objects.complete, page)
            ],
            "has_more": more,
            "next_cursor": ListCursor(_place(page[-1]), filters).text() if more else None,
        }
    )


def _behind(found: Sequence[StoredObject], place: tuple[Any, str]) -> list[StoredObject]:
    if not isinstance(place[0], str):
        raise Invalid("cursor", str(foreign_cursor()))
    return [each for each in found if _place(each) > place]


def _matches(stored: StoredObject, q: str | None) -> bool:
    record = stored.record
    return q is None or q.casefold() in record.name.casefold() or q.casefold() in record.description.casefold()


def _place(stored: StoredObject) -> tuple[str, str]:
    """The position of an object in the order of age."""
    return f"{stored.record.created_at:020.6f}", stored.record.id


def _create(kind: ObjectKind, call: Call) -> Reply:
    stored = call.services.shared_objects.create(kind, call.body)
    return _one(kind, call, stored, 201, {"Location": f"/api/v1/{kind.collection}/{stored.record.id}"})


def _get(kind: ObjectKind, call: Call) -> Reply:
    return _one(kind, call, readable(kind, call))


def readable(kind: ObjectKind, call: Call) -> StoredObject:
    """The object in the path. Raises `Denied` for one that the scope of the caller's key doesn't name, `NotFound`."""
    try:
        found = call.services.shared_objects.get(kind, key := _key(kind, call))
    except NotFound:
        if call.caller.reaches(kind.collection, key):
            raise
        found = None
    if found is None or not call.caller.reaches(kind.collection, found.record.name):
        raise Denied(f"the {kind.name} is not in the key's scope")
    return found


def _update(kind: ObjectKind, call: Call) -> Reply:
    stored = call.services.shared_objects.update(kind, _key(kind, call), call.body, call.if_match)
    return _one(kind, call, stored)


def _delete(kind: ObjectKind, call: Call) -> Reply:
    deleted = call.services.shared_objects.delete(kind, _key(kind, call), call.if_match)
    if kind is POOLS:
        call.services.pool_states.forget(deleted)
    return Reply({"id": deleted, "deleted": True})


def _key(kind: ObjectKind, call: Call) -> str:
    return call.params[f"{kind.name}_id"]


def _one(
    kind: ObjectKind, call: Call, stored: StoredObject, status: int = 200, headers: dict[str, str] | None = None
) -> Reply:
    record = call.services.shared_objects.complete(stored).record
    warned = kind.warnings(record)
    if kind is LISTS:
        warned = [*warned, *call.services.list_contents.warnings(record)]
    warnings: Sequence[Any] = [each._asdict() for each in warned]
    view = _masked(call, kind.view(record)) | _status(kind, call, record)
    if kind is POOLS:
        view["status"]["upstreams"] = call.services.pool_states.upstreams(record)
    return Reply({kind.name: view, "warnings": warnings}, status, stored.revision, headers or {})


def _masked(call: Call, view: dict[str, Any]) -> dict[str, Any]:
    """The view as this caller may see it: the URL of a source may hold a key."""
    source = view.get("source")
    clear = call.caller.may("proxy.write") and call.caller.scope is None
    if not source or "url" not in source or clear:
        return view
    return {**view, "source": {**source, "url": masked_url(source["url"])}}


def _status(kind: ObjectKind, call: Call, record: Any) -> dict[str, Any]:
    """What a view says about the state of an object."""
    if kind is POOLS:
        source = None if record.source is None else call.services.list_contents.status(record)
        return {"status": {**call.services.pool_states.status(record), "source": source}}
    return {"status": call.services.list_contents.status(record)} if kind is LISTS else {}
