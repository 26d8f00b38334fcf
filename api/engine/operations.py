"""The operations that each kind of object has: list, create, show, update and delete, with their handlers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from api.call import Call, Reply
from api.engine.kind import ObjectKind
from api.engine.objects import Objects
from api.engine.operation import V1, Operation, create, delete, get, resource, update
from api.engine.records import Stored
from api.engine.responses import Deleted
from api.errors import Denied, Invalid, NotFound
from api.http.body import MAX_BODY, MAX_IMPORT
from api.http.query import (
    EXAMPLE,
    PATTERN,
    ListCursor,
    NodesAlone,
    Query,
    checksum,
    cursor,
    foreign_cursor,
    integer,
    text,
)

Handler = Callable[[Call], Reply]


class ListObjects(Query):
    """The filter of objects, and the page."""

    q: str | None = text("Only with this in the name or the description; ignores case", "office", 128, lowest=1)
    limit: int = integer("The size of the page", 1, 1000, 100)
    cursor: ListCursor | None = cursor(
        "The `next_cursor` of the previous page, with the same filter", EXAMPLE, PATTERN, ListCursor.of
    )


def operations(
    kind: ObjectKind[Any], creates: Handler | None = None, shows: Handler | None = None
) -> tuple[Operation, ...]:
    """The rows of a kind. `creates` is the handler of a create whose response has more than others.

    `shows` is that of showing an object of which nodes know what others don't.
    """
    api, one = kind.resource, f"/{{{kind.parameter}}}"
    title, titles = kind.name.capitalize(), kind.collection.capitalize()
    largest = MAX_IMPORT if api.large_bodies else MAX_BODY
    reads = kind.collection if api.in_scopes else ""

    def described(handler: Handler, deed: str, description: str) -> Handler:
        def handle(call: Call) -> Reply:
            return handler(call)

        handle.__doc__ = f"{deed}.\n\n{description}"
        return handle

    handlers: list[Handler] = [
        described(lambda call: _list(kind, call), f"List {kind.collection}", api.texts.list),
        described(creates or (lambda call: _create(kind, call)), f"Create a {kind.name}", api.texts.create),
        described(shows or (lambda call: _get(kind, call)), f"Show a {kind.name}", api.texts.get),
        described(lambda call: _update(kind, call), f"Update a {kind.name}", api.texts.update),
        described(lambda call: _delete(kind, call), f"Delete a {kind.name}", api.texts.delete),
    ]
    listing, creating, showing, updating, deleting = handlers
    own: dict[str, Any] = {"if_match": True, "allows_self": api.allows_self}
    query = ListObjects if api.paged else None
    return resource(f"{V1}/{kind.collection}", read=api.read, write=api.write, delete=api.delete)(
        get("", f"list{titles}", listing, api.page, query=query, reads=reads),
        create(
            "",
            f"create{title}",
            creating,
            api.created or api.one,
            body=kind.create,
            read_only=kind.read_only,
            largest_body=largest,
        ),
        get(one, f"get{title}", showing, api.one, query=NodesAlone if shows else None, reads=reads, **own),
        *update(
            one,
            (f"replace{title}", f"update{title}"),
            updating,
            api.one,
            body=kind.update,
            read_only=kind.read_only | kind.fixed,
            largest_body=largest,
            **own,
        ),
        delete(one, f"delete{title}", deleting, Deleted, if_match=True),
    )


def readable(kind: ObjectKind[Any], call: Call) -> Stored[Any]:
    """The object in the path. Raises `Denied` for one that the scope of the caller's key doesn't name, `NotFound`."""
    key, reaches = call.params[kind.parameter], call.caller.reaches
    if not kind.resource.in_scopes:
        return _objects(kind, call).get(key)
    try:
        found = _objects(kind, call).get(key)
    except NotFound:
        if reaches(kind.collection, key):
            raise
        found = None
    if found is None or not reaches(kind.collection, found.record.name):
        raise Denied(f"the {kind.name} is not in the key's scope")
    return found


def reply_with(
    kind: ObjectKind[Any], stored: Stored[Any], view: dict[str, Any], call: Call, status: int = 200, **headers: str
) -> Reply:
    """The response about one object, of which this is the view."""
    data: dict[str, Any] = {kind.name: view}
    if kind.warnings is not None:
        data["warnings"] = [each._asdict() for each in _objects(kind, call).warnings(stored)]
    return Reply(data, status, stored.revision, headers)


# --- handlers -----------------------------------------------------------------------------------------------------


def _objects(kind: ObjectKind[Any], call: Call) -> Objects[Any]:
    return call.services.objects[kind.collection]


def _list(kind: ObjectKind[Any], call: Call) -> Reply:
    found, views = _objects(kind, call).all(), _objects(kind, call).views
    if not kind.resource.paged:
        return Reply({kind.collection: views(call.caller, found, False), "total": len(found)})
    query: ListObjects = call.query
    filters = checksum([kind.collection, query.q])
    found = [each for each in found if _matches(each, query.q) and _is_in_scope(kind, call, each)]
    if query.cursor is not None:
        found = _behind(found, query.cursor.position_in(filters))
    page, more = found[: query.limit], len(found) > query.limit
    return Reply(
        {
            kind.collection: views(call.caller, page, False),
            "has_more": more,
            "next_cursor": ListCursor(_place(page[-1]), filters).text() if more else None,
        }
    )


def _is_in_scope(kind: ObjectKind[Any], call: Call, stored: Stored[Any]) -> bool:
    return not kind.resource.in_scopes or call.caller.reaches(kind.collection, stored.record.name)


def _behind(found: Sequence[Stored[Any]], place: tuple[Any, str]) -> list[Stored[Any]]:
    if not isinstance(place[0], str):
        raise Invalid("cursor", str(foreign_cursor()))
    return [each for each in found if _place(each) > place]


def _matches(stored: Stored[Any], q: str | None) -> bool:
    record = stored.record
    return q is None or q.casefold() in record.name.casefold() or q.casefold() in record.description.casefold()


def _place(stored: Stored[Any]) -> tuple[str, str]:
    """The position of an object in the order of age."""
    return f"{stored.record.created_at:020.6f}", stored.record.id


def _create(kind: ObjectKind[Any], call: Call) -> Reply:
    stored = _objects(kind, call).create(call.body, call.caller)
    return _one(kind, call, stored, 201, Location=f"{V1}/{kind.collection}/{stored.record.id}")


def _get(kind: ObjectKind[Any], call: Call) -> Reply:
    return _one(kind, call, readable(kind, call))


def _update(kind: ObjectKind[Any], call: Call) -> Reply:
    stored = _objects(kind, call).update(call.params[kind.parameter], call.body, call.if_match, call.caller)
    return _one(kind, call, stored)


def _delete(kind: ObjectKind[Any], call: Call) -> Reply:
    deleted = _objects(kind, call).delete(call.params[kind.parameter], call.if_match, call.caller)
    return Reply({"id": deleted, "deleted": True})


def _one(kind: ObjectKind[Any], call: Call, stored: Stored[Any], status: int = 200, **headers: str) -> Reply:
    (view,) = _objects(kind, call).views(call.caller, [stored], True)
    return reply_with(kind, stored, view, call, status, **headers)
