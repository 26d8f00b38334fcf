"""Views of revisions, and their models. Values are masked as in the audit trail, fields have the names of the API."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from api.audit.masking import BOOKKEEPING, HIDING, STORED_AS, mask
from api.history.documents import DocumentChange, is_renewed, kind_of
from api.history.reader import Revision, Summary
from api.import_export.diff import differences
from api.objects.kinds import REVISED
from api.openapi.schemas.base import Moment, ResponseModel
from api.resources.audit import AuditActor, AuditCredential
from api.resources.transfer import FieldChange, Planned
from config.model.webhooks import MASK

Kind: Any = Literal[REVISED]
Action = Literal["create", "update", "delete"]


class RevisionSummary(ResponseModel):
    """The number of changed objects by action."""

    create: int
    update: int
    delete: int


class ChangedObject(ResponseModel):
    """An object that a revision has changed; `fields` are the names of those that differ after an update."""

    kind: Kind
    id: str
    name: str | None
    action: Action
    fields: list[str]


class RevisionView(ResponseModel):
    """A revision; `restored` is the one whose state it restored, `undone` the one that it undid.

    `kinds` are those of all changed objects, of which `objects` has the first ones. The first one may have no changes.
    """

    revision: int
    timestamp: Moment
    actor: AuditActor
    credential: AuditCredential | None
    address: str | None
    request_id: str | None
    operation: str | None
    restored: int | None
    undone: int | None
    summary: RevisionSummary
    kinds: list[Kind]
    objects: list[ChangedObject]


class RevisionList(ResponseModel):
    """Revisions, newest first."""

    revisions: list[RevisionView]
    total: int
    has_more: bool
    next_cursor: str | None


class ObjectChange(ResponseModel):
    """The change of an object, field by field."""

    kind: Kind
    id: str
    name: str | None
    action: Action
    fields: list[FieldChange]


class OneRevision(ResponseModel):
    """A revision with its changes; `newest` is the number of the last one, whose state is the present one."""

    revision: RevisionView
    newest: int
    changes: list[ObjectChange]
    has_more: bool
    next_cursor: str | None


class RevisionDiff(ResponseModel):
    """The differences from the state after one revision to that after another one."""

    from_revision: int
    to_revision: int
    changes: list[ObjectChange]
    has_more: bool
    next_cursor: str | None


class ObjectThen(ResponseModel):
    """An object as it was after a revision; `document` is null if there was none."""

    revision: int
    kind: Kind
    id: str
    name: str | None
    document: dict[str, Any] | None


class NotRestored(ResponseModel):
    """Something that is not as it was; `field` is null for a whole object."""

    kind: Kind
    id: str
    name: str
    field: str | None
    reason: str


class RestoredConfig(Planned):
    """The changes of a restore, or with `dry_run` those that it would make; `revision` is the one that it has made.

    `restored` is the revision whose state it is, or `undone` the one that it undoes; the other one is null.
    """

    restored: int | None
    undone: int | None
    revision: int | None
    not_restored: list[NotRestored]


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
