"""The operations on revisions of the configuration: their list, one of them, the difference of two, and restoring a
state. Values are masked as in the audit trail, fields have the names of the API (`api.import_export.diff`)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Literal

from api.call import Call, Reply
from api.engine import records
from api.engine.operation import V1, get, post, resource
from api.engine.responses import Moment, ResponseModel, mirrors
from api.errors import NotFound
from api.history.document_changes import collection_of, kind_of
from api.history.reader import Key, Revision, RevisionSelection, Summary
from api.http.query import Query, choice, integer, moment, place, text, texts
from api.import_export import restoring
from api.import_export.diff import change_view, object_view
from api.import_export.restoring import RestoreRequest, restore
from api.import_export.transfer_operations import FieldChange, Planned, import_view
from api.objects.kinds import REVISED
from api.objects.nodes.node_kind import NODES
from api.queries.audit_operations import AuditActor, AuditCredential
from api.security.permissions import ADMIN, AUDITOR

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
    In a fleet `node` is the name of the node that made it, its id if it was removed, and null for what was before.
    """

    revision: int
    timestamp: Moment
    actor: AuditActor
    credential: AuditCredential | None
    address: str | None
    request_id: str | None
    operation: str | None
    node: str | None = None
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


@mirrors(restoring.RestoreFailure)
class NotRestored(ResponseModel):
    """Something that is not as it was; `field` is null for a whole object."""

    kind: Kind


class RestoredConfig(Planned):
    """The changes of a restore, or with `dry_run` those that it would make; `revision` is the one that it has made.

    `restored` is the revision whose state it is, or `undone` the one that it undoes; the other one is null.
    """

    restored: int | None
    undone: int | None
    revision: int | None
    not_restored: list[NotRestored]


def revision_view(call: Call, revision: Revision, objects: Sequence[Summary]) -> dict[str, Any]:
    """A revision with its first objects."""
    created, updated, deleted = revision.counts
    return {
        "revision": revision.number,
        "timestamp": revision.timestamp,
        **revision.author,
        **({} if call.services.node.node_id is None else {"node": _node_name(call, revision.node)}),
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


def _node_name(call: Call, node: str | None) -> str | None:
    found = None if node is None else call.services.store.get(NODES.collection, node)
    return node if found is None else str(found.body["name"])


NAMED_MAX = 20
"""Objects of a revision that a list names."""

_NUMBER = re.compile(r"[1-9][0-9]{0,14}", re.ASCII)
_PLACE = re.compile("^[0-9]{1,9}$", re.ASCII)
_KEY = re.compile(f"^({'|'.join(REVISED)}):[A-Za-z0-9_-]{{1,128}}$", re.ASCII)


def _read_key(value: str) -> Key:
    kind, _, identifier = value.partition(":")
    return collection_of(kind), identifier


class ListRevisions(Query):
    """Filters of revisions, and the page."""

    kind: str | None = choice("Only revisions that changed an object of this kind", REVISED)
    object_id: str | None = text("Only revisions that changed this object", "prx_0123456789abcdef", 128)
    object_name: str | None = text("Only revisions that changed an object of this name", "office", 128)
    user_id: str | None = text("Only by this user", "usr_0123456789abcdef", 128)
    username: str | None = text("Only by the user of this name", "alice", 64)
    start_time: float | None = moment("Not before")
    end_time: float | None = moment("Not after")
    limit: int = integer("The size of the page", 1, 1000, 100)
    cursor: int | None = place("100", _PLACE)


class ReadRevision(Query):
    """The page of the changes of a revision."""

    limit: int = integer("The number of changed objects at most", 1, 1000, 100)
    cursor: int | None = place("99", _PLACE)


class CompareRevisions(Query):
    """The page of the objects that differ."""

    limit: int = integer("The number of objects at most", 1, 1000, 100)
    cursor: Key | None = place("proxy:prx_0123456789abcdef", _KEY, _read_key)


class RestoreState(Query):
    """Options of restoring a state, and of undoing a revision."""

    dry_run: str = choice("Change nothing; only return the changes that it would make", ("false", "true"), "false")
    with_passwords: str = choice(
        "Restore passwords of users, accounts and proxies, too; else those that are there keep their present ones",
        ("false", "true"),
        "false",
    )
    object_id: tuple[str, ...] = texts("Restore only this object", "prx_0123456789abcdef", 128, 100)


def list_revisions(call: Call) -> Reply:
    """List revisions of the configuration.

    Returns who changed which objects, when and from which address, newest first. `fields` names what differs;
    `objects` has the first 20 objects of a revision, or those that the filter names.
    """
    query: ListRevisions = call.query
    reader = call.services.revisions
    selection = RevisionSelection(
        query.kind,
        query.object_id,
        query.object_name,
        query.user_id,
        query.username,
        records.moment(query.start_time),
        records.moment(query.end_time),
        query.cursor,
    )
    found, total = reader.page(selection, query.limit + 1)
    page, more = found[: query.limit], len(found) > query.limit
    views = [revision_view(call, each, reader.summaries(each.number, NAMED_MAX, selection)) for each in page]
    following = str(page[-1].number) if more else None
    return Reply({"revisions": views, "total": total, "has_more": more, "next_cursor": following})


def get_revision(call: Call) -> Reply:
    """Show a revision of the configuration.

    Returns who made it, and each changed field with its value before and after. Secrets are masked.
    """
    query: ReadRevision = call.query
    revision = _found(call, call.params["revision_id"])
    after = -1 if query.cursor is None else query.cursor
    found = call.services.revisions.changes(revision.number, after, query.limit + 1)
    page, more = found[: query.limit], len(found) > query.limit
    return Reply(
        {
            "revision": revision_view(call, revision, call.services.revisions.summaries(revision.number, NAMED_MAX)),
            "newest": call.services.revisions.newest,
            "changes": [change_view(each) for _, each in page],
            "has_more": more,
            "next_cursor": str(page[-1][0]) if more else None,
        }
    )


def compare_revisions(call: Call) -> Reply:
    """Compare two revisions of the configuration.

    Returns each object that differs between the states after the one and after the other, field by field. Secrets are
    masked.
    """
    query: CompareRevisions = call.query
    base, other = (_found(call, call.params[name]).number for name in ("revision_id", "other_id"))
    first, last = sorted((base, other))
    reader = call.services.revisions
    keys = reader.keys(first, last, query.cursor, query.limit + 1)
    page, more = keys[: query.limit], len(keys) > query.limit
    changes = [reader.between(first, last, key) for key in page]
    views = [change_view(each if base <= other else each.reversed()) for each in changes]
    return Reply(
        {
            "from_revision": base,
            "to_revision": other,
            "changes": [each for each in views if each["fields"]],
            "has_more": more,
            "next_cursor": f"{kind_of(page[-1][0])}:{page[-1][1]}" if more else None,
        }
    )


def get_object_then(call: Call) -> Reply:
    """Show an object as it was.

    Returns a proxy, user, API key, webhook, plan, account or the overrides of settings as it was after a revision, as
    it is stored, without secrets. `document` is null if it did not exist then.
    """
    services, identifier = call.services, call.params["object_id"]
    revision = _found(call, call.params["revision_id"])
    last = services.revisions.newest
    change = services.revisions.of_object(identifier, revision.number, last)
    if change is not None:
        return Reply(object_view(revision.number, change.collection, identifier, change.before))
    for collection in map(collection_of, REVISED):
        store = services.account_store if collection in ("plans", "accounts") else services.store
        present = store.get(collection, identifier)
        if present is not None:
            return Reply(object_view(revision.number, collection, identifier, present.body))
    raise NotFound("The object")


def restore_revision(call: Call) -> Reply:
    """Restore a state of the configuration.

    Changes the configuration to what it was after a revision, all or nothing, and returns the differences; the result
    is a new revision. API keys stay, and passwords unless `with_passwords`: `not_restored` names them.
    """
    return _restored(call, undo=False)


def undo_revision(call: Call) -> Reply:
    """Undo one revision.

    Takes back what the revision changed, all or nothing, and keeps all later changes; the result is a new revision. A
    field that was changed again is an error that names the later revision. API keys stay, and passwords unless
    `with_passwords`: `not_restored` names them.
    """
    return _restored(call, undo=True)


def _restored(call: Call, undo: bool) -> Reply:
    query: RestoreState = call.query
    revision, dry_run = _found(call, call.params["revision_id"]).number, query.dry_run == "true"
    request = RestoreRequest(
        revision,
        call.caller.user.id,
        undo,
        dry_run,
        call.if_match,
        query.object_id,
        query.with_passwords == "true",
    )
    restored = restore(call.services, request)
    outcome = restored.outcome
    data = {
        **import_view(outcome, dry_run),
        "restored": None if undo else revision,
        "undone": revision if undo else None,
        "revision": outcome.revision,
        "not_restored": list(map(asdict, restored.left)),
    }
    return Reply(data, revision=outcome.mark)


def _found(call: Call, text: str) -> Revision:
    number = int(text) if _NUMBER.fullmatch(text) else 0
    revision = call.services.revisions.get(number) if number else None
    if revision is None:
        raise NotFound("The revision")
    return revision


_ONE = "/{revision_id}"

ROWS = resource(f"{V1}/revisions", read=ADMIN, write=ADMIN)(
    get("", "listRevisions", list_revisions, RevisionList, role=AUDITOR, query=ListRevisions),
    get(_ONE, "getRevision", get_revision, OneRevision, role=AUDITOR, query=ReadRevision),
    get(
        f"{_ONE}...{{other_id}}",
        "compareRevisions",
        compare_revisions,
        RevisionDiff,
        role=AUDITOR,
        query=CompareRevisions,
    ),
    get(f"{_ONE}/objects/{{object_id}}", "getObjectThen", get_object_then, ObjectThen, role=AUDITOR),
    post(
        f"{_ONE}/restore",
        "restoreRevision",
        restore_revision,
        RestoredConfig,
        query=RestoreState,
        if_match=True,
        audit=False,
    ),
    post(
        f"{_ONE}/undo",
        "undoRevision",
        undo_revision,
        RestoredConfig,
        query=RestoreState,
        if_match=True,
        audit=False,
    ),
)
