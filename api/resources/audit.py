"""The audit trail, searched."""

from __future__ import annotations

import re
from typing import Any

from api.audit import Entry, Selection
from api.errors import Invalid
from api.http.call import Call, Reply
from config.text.formatting import timestamp_text

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
OUTCOMES = ("done", "failed")
_CURSOR = re.compile(r"[0-9]{1,18}", re.ASCII)


def query_audit(call: Call) -> Reply:
    """Search the audit trail.

    Returns who changed what, when and from which address, newest first. Secrets are masked in the changes.
    """
    query = call.query
    query.refuse_others()
    limit = query.integer("limit", 100, 1, 1000)
    offset = query.integer("offset", 0, 0, 1_000_000_000)
    entries, total = call.services.audit.find(_selection(call), limit + 1, offset)
    shown, more = entries[:limit], len(entries) > limit
    head = call.services.audit.head
    data = {
        "audit": [_shown(entry) for entry in shown],
        "total": total,
        "has_more": more,
        "next_cursor": str(shown[-1].seq) if more else None,
        "head": {"seq": head.seq, "hash": head.hash},
    }
    return Reply(data)


def _selection(call: Call) -> Selection:
    query = call.query
    query.one_of("outcome", OUTCOMES)
    address = query.address("address")
    equal = {name: value for name in EXACT if (value := query.text(name)) is not None}
    if address is not None:
        equal["address"] = address
    return Selection(equal, _moment(call, "start_time"), _moment(call, "end_time"), _cursor(query.text("cursor")))


def _moment(call: Call, name: str) -> str | None:
    if call.query.text(name) is None:
        return None
    return timestamp_text(call.query.moment(name, 0.0))


def _cursor(text: str | None) -> int | None:
    if text is not None and not _CURSOR.fullmatch(text):
        raise Invalid("cursor", "must be a next_cursor of an earlier answer")
    return None if text is None else int(text)


def _shown(entry: Entry) -> dict[str, Any]:
    return {**entry.content, "hash": entry.hash}
