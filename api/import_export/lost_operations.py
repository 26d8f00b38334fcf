"""Making changes again that the database of a fleet has lost (`api.history.lost_changes`), as a restore is made."""

from __future__ import annotations

import json
import time
from dataclasses import asdict

from api.call import Call, Reply
from api.container import Services
from api.engine.operation import V1, post, resource
from api.errors import NotFound
from api.history.document_changes import UNREVISED, Body, DocumentChange, Packing, kind_of
from api.history.lost_changes import LostChanges, NothingLost, lost_changes
from api.http.query import Query, choice, texts
from api.import_export import restoring
from api.import_export.imports import carry_out
from api.import_export.plan import ImportPlan
from api.import_export.present_state import State, read_state
from api.import_export.revision_operations import NotRestored
from api.import_export.transfer_operations import Planned, import_view
from api.objects.kinds import KINDS
from api.security.permissions import ADMIN
from api.store import Document

CHANGED_SINCE = "it was changed again since then, and stays so"
NAME_TAKEN = "its name is taken since then, by"


def reapply(
    services: Services, lost: LostChanges, request: restoring.RestoreRequest, overwrite: bool
) -> restoring.Restored:
    """Make the changes that the fleet's database has lost again, or try it. Raises as an import.

    What was changed again since then stays, unless `overwrite`; so does what has the name of a lost object now.
    """
    left: list[restoring.RestoreFailure] = []
    packing = Packing(services.seal)

    def make() -> ImportPlan:
        objects, state = restoring.RestoredObjects(services, time.time(), request), read_state(services.store)
        for each in lost.documents:
            collection, identifier, body = each["collection"], each["id"], each["body"]
            if collection in UNREVISED or (request.objects and identifier not in request.objects):
                continue
            if body is not None:
                body = packing.unpack(json.dumps(body, separators=(",", ":")).encode())
            present = services.store.get(collection, identifier)
            reason = _clash(state, lost, collection, body, None if overwrite else present)
            if reason is not None:
                name = each["name"] or identifier
                objects.left.append(restoring.RestoreFailure(kind_of(collection), identifier, name, None, reason))
            elif present is not None or body is not None:
                objects.add(DocumentChange(collection, identifier, body, None if present is None else present.body))
        left[:] = objects.left
        return restoring.plan_of(services, objects, request.caller_id)

    return restoring.Restored(carry_out(services, make, request.if_match, request.dry_run), left)


def _clash(state: State, lost: LostChanges, collection: str, body: Body | None, present: Document | None) -> str | None:
    """Why a lost document does not come back."""
    if present is not None:
        return CHANGED_SINCE if present.revision > lost.revision else None
    if body is not None and collection in state.records:
        identity = KINDS[collection].transfer.identity
        names = {str(getattr(each.record, identity)).lower(): each for each in state.records[collection]}
        found = names.get(str(body.get(identity)).lower())
        return None if found is None or found.record.id == body["id"] else f"{NAME_TAKEN} {found.record.id}"
    return None


class ReappliedConfig(Planned):
    """The changes that were made again, or with `dry_run` those that would be; `revision` is the one that it has made.

    `lost` is which ones these were, by when they were missed.
    """

    lost: str
    revision: int | None
    not_restored: list[NotRestored]


class ReapplyLost(Query):
    """Options of making lost changes again."""

    dry_run: str = choice("Change nothing; only return the changes that it would make", ("false", "true"), "false")
    overwrite: str = choice(
        "Also objects that were changed again since then; else they stay", ("false", "true"), "false"
    )
    object_id: tuple[str, ...] = texts("Only this object", "prx_0123456789abcdef", 128, 100)


def reapply_lost(call: Call) -> Reply:
    """Make lost changes again.

    Changes objects to what they were before the database of the fleet was restored or failed over, as the asked node
    knows it, all or nothing; the result is a new revision. `lost_id` is the moment in the name of the node's file
    `lost-….json`, or `last`. Objects that were changed since stay, unless `overwrite`, and so does what has the name of
    a lost object: `not_restored` names them.
    """
    query: ReapplyLost = call.query
    which, dry_run = call.params["lost_id"], query.dry_run == "true"
    try:
        lost = lost_changes(call.services.data, "" if which == "last" else which.rpartition("/")[2])
    except NothingLost as error:
        raise NotFound("The file of lost changes") from error
    request = restoring.RestoreRequest(
        lost.revision, call.caller.user.id, False, dry_run, call.if_match, query.object_id, with_passwords=True
    )
    done = reapply(call.services, lost, request, query.overwrite == "true")
    outcome = done.outcome
    data = {
        **import_view(outcome, dry_run),
        "lost": lost.id,
        "revision": outcome.revision,
        "not_restored": list(map(asdict, done.left)),
    }
    return Reply(data, revision=outcome.mark)


ROWS = resource(f"{V1}/lost-changes", read=ADMIN, write=ADMIN)(
    post(
        "/{lost_id}/reapply", "reapplyLostChanges", reapply_lost, ReappliedConfig, query=ReapplyLost, if_match=True,
        audit=False,
    ),
)  # fmt: skip
