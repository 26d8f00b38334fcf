"""Searches of the audit trail.

In a fleet each node has a trail of its own, and the database has all of them, as far as nodes have sent theirs: that is
what a search reads, in the order of time. While the database can't be read there are the entries of the asked node.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import asdict, replace
from typing import Any, Literal

from actors.bus.messages.cluster import TrailVerified, VerifyTrail
from actors.bus.messages.common import API
from api.audit.trail import GENESIS, Broken, Entry, FleetTrails, FoundEntries, Head, Place, Selection, verify
from api.call import Call, Reply
from api.concurrency_limit import ConcurrencyLimit
from api.engine import records
from api.engine.operation import V1, get, resource
from api.engine.responses import Moment, NodesMeta, ResponseModel, mirrors
from api.errors import Invalid
from api.http.query import (
    PATTERN,
    NodesAlone,
    OfNodes,
    address,
    choice,
    cursor,
    cursor_content,
    cursor_text,
    foreign_cursor,
    integer,
    moment,
    text,
)
from api.objects.nodes.node_operations import LATE
from api.security.permissions import ADMIN, AUDITOR
from api.store import StoreError

EXACT = (
    "seq",
    "action",
    "outcome",
    "user_id",
    "username",
    "credential_id",
    "address",
    "request_id",
    "resource_type",
    "resource_id",
    "resource_name",
)
_NUMBER = re.compile("[0-9]{1,18}", re.ASCII)
_PLACE = 6
"""The kind of a cursor over several nodes."""
_OTHER_NODES = "is of a search over other nodes: begin again"
VERIFIED_WITHIN = 10.0
"""Seconds that other nodes have for theirs."""
_VERIFICATIONS = ConcurrencyLimit(1, 1, "verifications of the audit trail")


def _cursor(given: str) -> int | Place:
    """Raises `ValueError`."""
    if _NUMBER.fullmatch(given):
        return int(given)
    at, node, seq = cursor_content(given, _PLACE, 3)
    are_texts = isinstance(at, str) and isinstance(node, str) and "\0" not in at + node
    if not (are_texts and type(seq) is int and 0 <= seq < 2**63):
        raise foreign_cursor()
    return at, node, seq


class QueryAudit(OfNodes):
    """Filters of entries, and the page."""

    seq: int | None = integer("Only the entry of this number, of each node", 1, 2**31 - 1)
    start_time: float | None = moment("Not before")
    end_time: float | None = moment("Not after")
    action: str | None = text("Only this action; `proxy.*` stands for all actions of a group", "proxy.updated", 64)
    outcome: str | None = choice("Only changes that were made, or that failed", ("done", "failed"))
    user_id: str | None = text("Only by this user", "usr_0123456789abcdef", 128)
    username: str | None = text("Only by the user of this name", "alice", 64)
    credential_id: str | None = text("Only by this API key or sign-in", "key_0123456789abcdef", 128)
    address: str | None = address("Only from this address")
    request_id: str | None = text("Only by this request", "req_0123456789abcdef", 128)
    resource_type: str | None = text("Only of resources of this type", "proxy", 64)
    resource_id: str | None = text("Only of this resource", "prx_0123456789abcdef", 128)
    resource_name: str | None = text("Only of resources of this name", "office", 128)
    limit: int = integer("The size of the page", 1, 1000, 100)
    offset: int = integer("How many entries to skip", 0, 1_000_000_000, 0)
    cursor: int | Place | None = cursor("The `next_cursor` of the previous page", "100", PATTERN, _cursor)


class AuditActor(ResponseModel):
    """The author of a change. `user_id` is the id of the account where its holder has made it."""

    type: Literal["user", "account", "anonymous", "system", "command_line"]
    user_id: str | None
    username: str | None
    role: str | None


class AuditCredential(ResponseModel):
    """The credential of the author; `id` is that of the API key or of the sign-in, `name` that of the key."""

    method: Literal["bearer", "basic", "api_key", "password", "oauth2", "cookie", "account_token"]
    id: str | None
    name: str | None = None


class AuditResource(ResponseModel):
    """The changed resource."""

    type: str
    id: str | None
    name: str | None


class AuditEntry(ResponseModel):
    """An entry; for an update, `before` and `after` are the parts that differ, without secrets.

    In a fleet of several nodes `node` is the one whose trail has it: each has a trail, and numbers, of its own.
    """

    seq: int
    timestamp: Moment
    action: str
    outcome: Literal["done", "failed"]
    actor: AuditActor
    credential: AuditCredential | None
    address: str | None
    request_id: str | None
    operation: str | None
    resource: AuditResource | None
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    details: dict[str, Any] | None
    hash: str
    node: str | None = None


@mirrors(Head)
class AuditHead(ResponseModel):
    """The last entry of the trail."""


class NodeHead(AuditHead):
    """The last entry of the trail of a node, as far as the node has sent it."""

    node: str


@mirrors(Broken)
class BrokenEntry(ResponseModel):
    """The first entry that is not what was written, and why."""


class AuditVerification(ResponseModel):
    """Whether the chain is intact, with its number of entries and its head; or where it is broken."""

    intact: bool
    entries: int | None
    head: AuditHead | None
    broken: BrokenEntry | None


class VerificationOfNode(AuditVerification):
    """The same of the trail of a node: as the database has it, and as the node has it, if it has responded."""

    node: str


class AuditVerifications(AuditVerification):
    """That of the asked node; in a fleet of several `nodes` has all of them."""

    nodes: list[VerificationOfNode] | None = None
    meta: NodesMeta | None = None


class AuditTrail(ResponseModel):
    """Entries, newest first. `head` is that of the asked node.

    In a fleet of several nodes `heads` are those of all, and in `meta` is of which nodes entries may be missing. If
    counting takes too long there, `total` is a lower bound.
    """

    audit: list[AuditEntry]
    total: int
    total_is_lower_bound: bool | None = None
    has_more: bool
    next_cursor: str | None
    head: AuditHead
    heads: list[NodeHead] | None = None
    meta: NodesMeta | None = None


def query_audit(call: Call) -> Reply:
    """Search the audit trail.

    Returns who changed what, when and from which address, newest first. Secrets are masked in the changes. In a fleet
    these are the entries of all nodes as they have sent them, a few seconds late, and of nodes that are gone by now;
    while the database can't be read, those of the asked node.
    """
    query: QueryAudit = call.query
    if call.nodes.are_several:
        return Reply(_of_nodes(call))
    if isinstance(query.cursor, tuple):
        raise Invalid("cursor", _OTHER_NODES)
    entries, total = call.services.audit.find(_selection(query), query.limit + 1, query.offset)
    page, more = entries[: query.limit], len(entries) > query.limit
    data = {
        "audit": list(map(_view, page)),
        "total": total,
        "has_more": more,
        "next_cursor": str(page[-1].seq) if more else None,
        "head": asdict(call.services.audit.head),
    }
    return Reply(data)


def _of_nodes(call: Call) -> dict[str, Any]:
    query: QueryAudit = call.query
    if isinstance(query.cursor, int):
        raise Invalid("cursor", _OTHER_NODES)
    selection = replace(_selection(query), node=call.nodes.own_id, before=query.cursor)
    names = {each.record.id: each.record.name for each in call.services.nodes.all()}
    found, heads = _found(call, selection, names)
    page, more = found.rows[: query.limit], len(found.rows) > query.limit
    return {
        "audit": [
            {**_view(entry), "node": names.get(node, node)} for (_at, node, _seq), entry in page if entry is not None
        ],
        "total": found.total,
        "total_is_lower_bound": found.at_least,
        "has_more": more,
        "next_cursor": cursor_text([_PLACE, *page[-1][0]]) if more else None,
        "head": asdict(call.services.audit.head),
        "heads": [{"node": names.get(each, each), **asdict(head)} for each, head in sorted(heads.items())],
    }


def _found(call: Call, selection: Selection, names: Collection[str]) -> tuple[FoundEntries, Mapping[str, Head]]:
    """A page with one entry more, and the last entries: of this node alone where no other can be read."""
    query, nodes, trail = call.query, call.nodes, call.services.audit
    trails: FleetTrails | None = call.services.node.trails
    page, own = (query.limit + 1, query.offset), nodes.own_id
    if trails is not None and nodes.others:
        try:
            found = trails.find(selection, [*nodes.ids] if nodes.key else None, *page)
            heads = trails.heads(names)
        except StoreError as error:
            _note_unread(call, error)
        else:
            _note_late(call)
            return found, {**heads, own: trail.head}
    entries, total = trail.find(selection, *page) if nodes.here else ([], 0)
    rows = [((each.content["timestamp"], own, each.seq), each) for each in entries]
    return FoundEntries(rows, total), {own: trail.head}


def _note_unread(call: Call, error: StoreError) -> None:
    for each in call.nodes.others:
        call.nodes.note_silent(each.id, f"the database, which has its entries, can't be read: {error}")


def _note_late(call: Call) -> None:
    """Of a node without a heartbeat the last entries may be there alone."""
    known = call.services.node.presence()
    for each in call.nodes.others:
        if each.id in known and known[each.id].silent >= LATE:
            silent = known[each.id].silent
            call.nodes.note_silent(each.id, f"no heartbeat for {silent:.0f} s: what it wrote since then is missing")


def verify_audit(call: Call) -> Reply:
    """Verify the audit trail.

    Follows the hash chain of the audit trail from its first entry, and returns where it is broken, if it is. One
    verification runs at a time; a million entries take some seconds. In a fleet this is the chain of the asked node,
    and `nodes` has each chain of the database, compared with what its node has.
    """
    with _VERIFICATIONS.acquire(call.caller.user.id):
        own = _verification(verify(call.services.data))
        trails: FleetTrails | None = call.services.node.trails
        if trails is None or not call.nodes.others:
            return Reply(own)
        try:
            return Reply({**own, "nodes": _verified(call, trails.verify())})
        except StoreError as error:
            _note_unread(call, error)
            return Reply({**own, "nodes": []})


def _verified(call: Call, chains: Mapping[str, Head | Broken]) -> list[dict[str, Any]]:
    """Each chain of the database, with what its node says of its own, in which the last entry of that has to be."""
    nodes, services, requests = call.nodes, call.services, dict[str, VerifyTrail]()
    for each in nodes.ids:
        last = chains.get(each)
        requests[nodes.at(each, API)] = (
            VerifyTrail(last.seq, last.hash) if isinstance(last, Head) else VerifyTrail(0, "")
        )
    replies = services.bridge.ask_all(requests, VERIFIED_WITHIN)
    names = {each.record.id: each.record.name for each in services.nodes.all()}
    found = []
    wanted = nodes.ids if nodes.key else nodes.ids | chains.keys()
    for node in sorted(wanted, key=lambda each: names.get(each, each)):
        at, last = nodes.at(node, API), chains.get(node, Head(0, GENESIS))
        there = replies.get(at)
        if isinstance(last, Broken):
            last = Broken(last.seq, f"in the database: {last.error}")
        elif isinstance(there, TrailVerified):
            last = Broken(there.seq, f"on the node: {there.error}") if there.error else Head(there.seq, there.hash)
        elif there is not None:
            nodes.note(at, there)
        found.append({"node": names.get(node, node), **_verification(last)})
    return found


def _verification(found: Head | Broken) -> dict[str, Any]:
    if isinstance(found, Broken):
        return {"intact": False, "entries": None, "head": None, "broken": asdict(found)}
    return {"intact": True, "entries": found.seq, "head": asdict(found), "broken": None}


def _selection(query: QueryAudit) -> Selection:
    equal = {name: value for name in EXACT if (value := getattr(query, name)) is not None}
    below = query.cursor if isinstance(query.cursor, int) else None
    return Selection(equal, records.moment(query.start_time), records.moment(query.end_time), below)


def _view(entry: Entry) -> dict[str, Any]:
    return {**entry.content, "hash": entry.hash}


ROWS = resource(V1, read=ADMIN)(
    get("/audit/verify", "verifyAudit", verify_audit, AuditVerifications, role=AUDITOR, query=NodesAlone),
    get("/audit", "queryAudit", query_audit, AuditTrail, role=AUDITOR, query=QueryAudit),
)
