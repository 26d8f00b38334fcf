"""Revisions of the configuration."""

from __future__ import annotations

from api.openapi.schemas.revisions import ObjectThen, OneRevision, RestoredConfig, RevisionDiff, RevisionList
from api.operations.operation import V1, get, post, resource
from api.resources import revisions
from api.security.permissions import ADMIN, AUDITOR

_ONE = "/{revision_id}"

TABLE = resource(f"{V1}/revisions", read=ADMIN, write=ADMIN)(
    get("", "listRevisions", revisions.list_revisions, RevisionList, role=AUDITOR, query=revisions.ListRevisions),
    get(_ONE, "getRevision", revisions.get_revision, OneRevision, role=AUDITOR, query=revisions.ReadRevision),
    get(
        f"{_ONE}...{{other_id}}",
        "compareRevisions",
        revisions.compare_revisions,
        RevisionDiff,
        role=AUDITOR,
        query=revisions.CompareRevisions,
    ),
    get(f"{_ONE}/objects/{{object_id}}", "getObjectThen", revisions.get_object_then, ObjectThen, role=AUDITOR),
    post(
        f"{_ONE}/restore",
        "restoreRevision",
        revisions.restore_revision,
        RestoredConfig,
        query=revisions.RestoreState,
        if_match=True,
        audit=False,
    ),
    post(
        f"{_ONE}/undo",
        "undoRevision",
        revisions.undo_revision,
        RestoredConfig,
        query=revisions.RestoreState,
        if_match=True,
        audit=False,
    ),
)
