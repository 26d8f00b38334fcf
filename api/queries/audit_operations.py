"""Searches of the audit trail."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Any, Literal

from api.audit.trail import Broken, Entry, Head, Selection, verify
from api.call import Call, Reply
from api.concurrency_limit import ConcurrencyLimit
from api.engine import records
from api.engine.operation import V1, get, resource
from api.engine.responses import Moment, ResponseModel, mirrors
from api.http.query import Query, address, choice, integer, moment, place, text
from api.security.permissions import ADMIN, AUDITOR

EXACT = (
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
_CURSOR = re.compile("^[0-9]{1,18}$", re.ASCII)
_VERIFICATIONS = ConcurrencyLimit(1, 1, "verifications of the audit trail")


class QueryAudit(Query):
    """Filters of entries, and the page."""

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
    cursor: int | None = place("100", _CURSOR)


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


@mirrors(Broken)
class BrokenEntry(ResponseModel):
    """The first entry that is not what was written, and why."""


class AuditVerification(ResponseModel):
    """Whether the chain is intact, with its number of entries and its head; or where it is broken."""

    intact: bool
    entries: int | None
    head: AuditHead | None
    broken: BrokenEntry | None


class AuditTrail(ResponseModel):
    """Entries, newest first."""

    audit: list[AuditEntry]
    total: int
    has_more: bool
    next_cursor: str | None
    head: AuditHead


def query_audit(call: Call) -> Reply:
    """Search the audit trail.

    Returns who changed what, when and from which address, newest first. Secrets are masked in the changes. In a fleet
    these are the entries of the asked node.
    """
    query: QueryAudit = call.query
    entries, total = call.services.audit.find(_selection(query), query.limit + 1, query.offset)
    page, more = entries[: query.limit], len(entries) > query.limit
    nodes = call.services.nodes
    of_node = {"node": nodes.named(nodes.this_id).name} if nodes.this_id and nodes.are_several else {}
    data = {
        "audit": [{**_view(entry), **of_node} for entry in page],
        "total": total,
        "has_more": more,
        "next_cursor": str(page[-1].seq) if more else None,
        "head": asdict(call.services.audit.head),
    }
    return Reply(data)


def verify_audit(call: Call) -> Reply:
    """Verify the audit trail.

    Follows the hash chain of the audit trail from its first entry, and returns where it is broken, if it is. One
    verification runs at a time; a million entries take some seconds.
    """
    with _VERIFICATIONS.acquire(call.caller.user.id):
        found = verify(call.services.data)
    if isinstance(found, Broken):
        return Reply({"intact": False, "entries": None, "head": None, "broken": asdict(found)})
    return Reply({"intact": True, "entries": found.seq, "head": asdict(found), "broken": None})


def _selection(query: QueryAudit) -> Selection:
    equal = {name: value for name in EXACT if (value := getattr(query, name)) is not None}
    return Selection(equal, records.moment(query.start_time), records.moment(query.end_time), query.cursor)


def _view(entry: Entry) -> dict[str, Any]:
    return {**entry.content, "hash": entry.hash}


ROWS = resource(V1, read=ADMIN)(
    get("/audit/verify", "verifyAudit", verify_audit, AuditVerification, role=AUDITOR),
    get("/audit", "queryAudit", query_audit, AuditTrail, role=AUDITOR, query=QueryAudit),
)
