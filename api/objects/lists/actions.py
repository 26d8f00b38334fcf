"""What can be done with a list: asked whether it matches a target, and fetched now."""

from __future__ import annotations

from api.call import Call, Reply
from api.engine.operation import V1, get, post, resource
from api.engine.operations import readable
from api.errors import Invalid
from api.http.query import Query, text
from api.objects.fetching import refresh
from api.objects.lists.kind import LISTS
from api.objects.named import Refreshing
from api.openapi.schemas.base import ResponseModel
from config.model.choices import ListKind
from config.net.entries import GEO


class CheckTarget(Query):
    """The target that may be in a list."""

    target: str | None = text("A host, `host:port` or a URL", "www.example.com", 2048, lowest=1)


class ListChecked(ResponseModel):
    """Whether a list matches a target, and the entry that does.

    Of a database it is whether it knows the address, the network that it knows, and where that is.
    """

    matches: bool
    entry: str | None
    kind: ListKind
    country: str | None = None
    asn: int | None = None


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
    return refresh(LISTS, call)


ROWS = resource(f"{V1}/lists/{{list_id}}", read="proxy.read", write="proxy.write")(
    get("/check", "checkList", check_list, ListChecked, query=CheckTarget, reads="lists"),
    post("/refresh", "refreshList", refresh_list, Refreshing, audit="list.refreshed"),
)
