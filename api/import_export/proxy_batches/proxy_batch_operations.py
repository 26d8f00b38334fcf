"""The operations on many proxies at once."""

from __future__ import annotations

import re

from api.call import Call, Reply
from api.engine.operation import V1, post, resource
from api.engine.responses import ResponseModel, mirrors
from api.errors import InvalidMany, MissingPermission
from api.http.body import MAX_IMPORT
from api.http.query import Query, choice
from api.import_export.imports import Outcome, carry_out
from api.import_export.proxy_batches.batch_bodies import ProxyBatch, ProxySelection, ProxyTagging
from api.import_export.proxy_batches.proxy_batch import BatchPlanner, RefusedEntry
from api.import_export.transfer_operations import Planned, import_view
from api.objects.proxies.proxy_operations import ListProxies, usable
from config.model.proxies import READ_ONLY_FIELDS


@mirrors(RefusedEntry)
class RefusedChange(ResponseModel):
    """What would be refused, and why. `field` is that of the proxy, or of the request where that is at fault."""


class BatchedProxies(Planned):
    """The changes of a batch, or with `dry_run` those that it would make; `unchanged` are so already.

    `revision` is the one that it has made, null if nothing has changed. Only a dry run may have `refused`.
    """

    revision: int | None
    refused: list[RefusedChange]


class TaggedProxy(ResponseModel):
    """A proxy with its tags after the change."""

    id: str
    name: str
    tags: list[str]


class TaggedProxies(ResponseModel):
    """The proxies in the order of the request; `changed` is the number of those whose tags are others than before."""

    proxies: list[TaggedProxy]
    changed: int


class BatchProxies(Query):
    """How to change many proxies."""

    dry_run: str = choice("Check everything, and change nothing", ("false", "true"), "false")


TO_DELETE = "proxy.delete"
"""The permission that a batch with deletions needs besides."""


def batch_proxies(call: Call) -> Reply:
    """Change many proxies.

    Creates, changes and deletes proxies, all of them or none, in one revision. Errors name the entry, such as
    `update[3].port`. With `dry_run=true` it only returns what it would change, and `refused` in place of errors.
    """
    if call.body.delete and not call.caller.may(TO_DELETE):
        raise MissingPermission(TO_DELETE, by_key=call.caller.key is not None)
    dry_run, planner = call.query.dry_run == "true", _planner(call, call.body)
    refused: list[RefusedEntry] = []
    try:
        outcome = carry_out(call.services, planner.make, call.if_match, dry_run)
    except InvalidMany as error:
        if not dry_run:
            raise
        plan, refused = planner.refused(error)
        outcome = Outcome(plan, plan.state.mark)
    view = {**import_view(outcome, dry_run), "revision": outcome.revision}
    return Reply({**view, "refused": [each._asdict() for each in refused]}, revision=outcome.mark)


def tag_proxies(call: Call) -> Reply:
    """Tag many proxies.

    Adds tags to proxies and removes others, of all of them or none. Errors name the entry, such as `ids[3]`.
    """
    try:
        plan = carry_out(call.services, _planner(call, call.body.batch()).make, None, dry_run=False).plan
    except InvalidMany as error:
        raise InvalidMany([_of_tagging(*each) for each in error.problems]) from error
    views = [{"id": each.id, "name": each.name, "tags": list(each.record.tags)} for each in plan.of["proxies"]]
    return Reply({"proxies": views, "changed": len(plan.pending())})


def _planner(call: Call, batch: ProxyBatch) -> BatchPlanner:
    def find(where: ProxySelection) -> list[str]:
        query = ListProxies(where.model_dump(exclude_none=True, exclude={"all", "ids"}))
        return [each.record.id for each in query.matching(usable(call, where.account), None)]

    return BatchPlanner(call.services, batch, find, call.caller.user.id)


_ENTRY = re.compile(r"update\[([0-9]+)\](?:\.(?:id|(.*)))?", re.ASCII)


def _of_tagging(field: str | None, error: str) -> tuple[str | None, str]:
    """A problem of the batch as the shorter request has it: with the field of the proxy in the text."""
    found = _ENTRY.fullmatch(field or "")
    if found is None:
        return field, error
    return f"ids[{found[1]}]", f"{found[2]}: {error}" if found[2] else error


ROWS = resource(f"{V1}/proxies", write="proxy.write")(
    post("/tags", "tagProxies", tag_proxies, TaggedProxies, body=ProxyTagging),
    post(
        "/batch",
        "batchProxies",
        batch_proxies,
        BatchedProxies,
        body=ProxyBatch,
        read_only=READ_ONLY_FIELDS,
        query=BatchProxies,
        if_match=True,
        largest_body=MAX_IMPORT,
        audit=False,
    ),
)
