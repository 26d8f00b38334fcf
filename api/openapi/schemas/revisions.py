"""Views of revisions of the configuration."""

from __future__ import annotations

from typing import Any, Literal

from api.objects.kinds import REVISED
from api.openapi.schemas.base import Moment, ResponseModel
from api.openapi.schemas.system import AuditActor, AuditCredential
from api.openapi.schemas.transfer import FieldChange, Planned

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
