"""Fetching the content of a list or a pool now."""

from __future__ import annotations

from typing import Any

from api.call import Call, Reply
from api.engine.kind import ObjectKind
from api.engine.operations import readable
from api.errors import Invalid


def refresh(kind: ObjectKind[Any], call: Call) -> Reply:
    """Begin to fetch the object in the path. Raises `Invalid` for one without a source."""
    record = readable(kind, call).record
    if record.source is None:
        raise Invalid(None, f"the {kind.name} {record.name!r} has its {kind.entries} itself, and no source")
    call.services.list_fetches.refresh(record.id)
    return Reply({"id": record.id, "refreshing": True})
