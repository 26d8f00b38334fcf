"""The contents of lists: whether they match a target; and fetching them and upstreams of pools now."""

from __future__ import annotations

from api.call import Call, Reply
from api.errors import Invalid
from api.http.query import Query, text
from api.resources.shared_objects import readable
from api.services.object_kinds import LISTS, POOLS, ObjectKind
from config.net.entries import GEO


class CheckTarget(Query):
    """The target that may be in a list."""

    target: str | None = text("A host, `host:port` or a URL", "www.example.com", 2048, lowest=1)


def check_list(call: Call) -> Reply:
    """Check whether a list matches a target.

    Returns the entry of the list that matches: the domain that the target is or is below of, or the most specific
    network of an address. A list of networks is checked with an address, since nothing is resolved. A database of
    places (kind `geo`) says what it knows of the address: its network, `country` and `asn`.
    """
    record = readable(LISTS, call).record
    if call.query.target is None:
        raise Invalid("target", "is required")
    found = call.services.list_contents.check(record, call.query.target)
    place = {"country": found.country, "asn": found.asn} if record.kind == GEO else {}
    return Reply({"matches": found.entry is not None, "entry": found.entry, "kind": record.kind, **place})


def refresh_list(call: Call) -> Reply:
    """Fetch a list now.

    Begins to fetch the list from its source and returns at once; `status` of the list has the result. Whatever fails,
    the list keeps its content.
    """
    return _refresh(LISTS, call)


def refresh_pool(call: Call) -> Reply:
    """Fetch a pool's upstreams now.

    Begins to fetch the upstreams from the source of the pool and returns at once; `status.source` of the pool has the
    result. Whatever fails, the pool keeps its upstreams.
    """
    return _refresh(POOLS, call)


def _refresh(kind: ObjectKind, call: Call) -> Reply:
    record = readable(kind, call).record
    if record.source is None:
        raise Invalid(None, f"the {kind.name} {record.name!r} has its {kind.entries} itself, and no source")
    call.services.list_fetches.refresh(record.id)
    return Reply({"id": record.id, "refreshing": True})
