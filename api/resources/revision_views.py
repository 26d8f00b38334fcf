"""Views of revisions. Values are masked as in the audit trail, and fields have the names of the API."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from api.audit.masking import BOOKKEEPING, HIDING, STORED_AS, mask
from api.history.documents import DocumentChange, is_renewed, kind_of
from api.history.reader import Revision, Summary
from api.import_export.diff import differences
from config.model.webhooks import MASK

_INTERNAL = frozenset({"renewal_hash"})
"""What says nothing to people beside the other fields."""
_OMITTED = frozenset({"id", *BOOKKEEPING, *_INTERNAL})
_ELEMENT = re.compile(r"\[[^\]]*+\]?")


def revision_view(revision: Revision, objects: Sequence[Summary]) -> dict[str, Any]:
    """A revision with its first objects."""
    created, updated, deleted = revision.counts
    return {
        "revision": revision.number,
        "timestamp": revision.timestamp,
        **revision.author,
        "restored": revision.restored,
        "undone": revision.undone,
        "summary": {"create": created, "update": updated, "delete": deleted},
        "kinds": list(revision.kinds),
        "objects": [
            {
                "kind": kind_of(each.collection),
                "id": each.id,
                "name": each.name,
                "action": each.action,
                "fields": list(each.fields),
            }
            for each in objects
        ],
    }


def change_view(change: DocumentChange) -> dict[str, Any]:
    """An object with each field that differs, as `{field, before, after}`."""
    hiding = _hiding(change.collection)
    before, after = map(_compared, (change.before, change.after))
    if before and after and is_renewed(change.before or {}, change.after or {}):
        before["password_hash"] = after["password_hash"]
    found = differences(before, after)
    return {
        "kind": kind_of(change.collection),
        "id": change.id,
        "name": change.name,
        "action": change.action,
        "fields": [
            {
                "field": STORED_AS.sub("", each.field),
                "before": _masked(each.field, each.before, hiding),
                "after": _masked(each.field, each.after, hiding),
            }
            for each in found
        ],
    }


def object_view(revision: int, collection: str, identifier: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
    """An object as it was after a revision, without secrets; None if there was none."""
    hiding = _hiding(collection)
    document = None if body is None else _named({name: mask(name, each, hiding) for name, each in body.items()})
    name = None if body is None else body.get("name") or body.get("username")
    return {
        "revision": revision,
        "kind": kind_of(collection),
        "id": identifier,
        "name": name,
        "document": document,
    }


def _compared(body: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if body is None else {name: value for name, value in body.items() if name not in _OMITTED}


def _hiding(collection: str) -> frozenset[str]:
    """In proxies `headers` are settings, and no secret."""
    return frozenset() if collection == "proxies" else HIDING


def _masked(path: str, value: Any, hiding: frozenset[str]) -> Any:
    names = _ELEMENT.sub("", path).split(".")
    if value is not None and hiding.intersection(names[:-1]):
        return MASK
    return _named(mask(names[-1], value, hiding))


def _named(value: Any) -> Any:
    """Masked documents with the names of the API: `password` for `password_hash`."""
    if isinstance(value, Mapping):
        return {STORED_AS.sub("", name): _named(item) for name, item in value.items() if name not in _INTERNAL}
    return [_named(item) for item in value] if isinstance(value, list) else value
