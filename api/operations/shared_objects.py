"""Lists, pools and policies: objects that any number of proxies name."""

from __future__ import annotations

from collections.abc import Iterator

from api.http.body import MAX_IMPORT
from api.openapi.schemas.base import Deleted
from api.openapi.schemas.shared_objects import (
    ONE,
    PAGES,
    ListChecked,
    PoolChecking,
    PoolUpstreamReported,
    Refreshing,
)
from api.operations.operation import V1, Operation, create, delete, get, post, resource, update
from api.resources import list_contents, pool_reports
from api.resources.shared_objects import Handlers, ListObjects
from api.services.object_kinds import KINDS, ObjectKind
from config.model.object_fields import READ_ONLY_FIELDS
from config.model.pools import UpstreamReport

_TEXTS: dict[str, dict[str, str]] = {
    "lists": {
        "list": "Returns one page of lists, the oldest first, without their entries. Follow `next_cursor` for the next "
        "page.",
        "create": "Stores domains or networks, or the address that they are fetched from. A domain stands for itself "
        "and for all names below it.",
        "get": "Returns a list with its entries. The path has its id or its name.",
        "update": "Changes the given fields and keeps all others. `entries` take the place of a source, and a source "
        "that of entries.",
        "delete": "Deletes a list that nothing names. If it is in use, the response is 400 with the number of its "
        "users and the first ten.",
    },
    "pools": {
        "list": "Returns one page of pools, the oldest first, without their upstreams. Follow `next_cursor` for the "
        "next page.",
        "create": "Stores upstreams under a name, with how one is chosen and when it is left alone. The warnings say "
        "when there is none.",
        "get": "Returns a pool with its upstreams. Passwords are not returned.",
        "update": "Changes the given fields and keeps all others. `upstreams` are replaced as a whole; an entry that "
        "is there already keeps its password.",
        "delete": "Deletes a pool that nothing names. If it is in use, the response is 400 with the number of its "
        "users and the first ten.",
    },
    "policies": {
        "list": "Returns one page of policies, the oldest first, without their rules. Follow `next_cursor` for the "
        "next page.",
        "create": "Stores rules in order, of which the first that matches a request decides. `warnings` name rules "
        "that do less than they seem to.",
        "get": "Returns a policy with its rules. What a rule does not say is left out.",
        "update": "Changes the given fields and keeps all others; `rules` are replaced as a whole. The change holds "
        "for the next request; tunnels that are no longer allowed are ended only with `end_existing`.",
        "delete": "Deletes a policy that nothing names. If it is in use, the response is 400 with the number of its "
        "users and the first ten.",
    },
}
"""What the descriptions say, by collection and operation."""


def _rows(kind: ObjectKind) -> tuple[Operation, ...]:
    handlers, one, response = Handlers(kind, _TEXTS[kind.collection]), f"/{{{kind.name}_id}}", ONE[kind.collection]
    title, titles = kind.name.capitalize(), kind.collection.capitalize()
    return resource(f"{V1}/{kind.collection}", read="proxy.read", write="proxy.write", delete="proxy.delete")(
        get("", f"list{titles}", handlers.list, PAGES[kind.collection], query=ListObjects, reads=kind.collection),
        create(
            "",
            f"create{title}",
            handlers.create,
            response,
            body=kind.create,
            read_only=READ_ONLY_FIELDS,
            largest_body=MAX_IMPORT,
        ),
        get(one, f"get{title}", handlers.get, response, if_match=True, reads=kind.collection),
        *update(
            one,
            (f"replace{title}", f"update{title}"),
            handlers.update,
            response,
            body=kind.update,
            read_only=READ_ONLY_FIELDS,
            largest_body=MAX_IMPORT,
            if_match=True,
        ),
        delete(one, f"delete{title}", handlers.delete, Deleted, if_match=True),
    )


def _all() -> Iterator[Operation]:
    for kind in KINDS.values():
        yield from _rows(kind)


_CONTENTS = resource(f"{V1}/lists/{{list_id}}", read="proxy.read", write="proxy.write")(
    get("/check", "checkList", list_contents.check_list, ListChecked, query=list_contents.CheckTarget, reads="lists"),
    post("/refresh", "refreshList", list_contents.refresh_list, Refreshing, audit="list.refreshed"),
)

_REPORTS = resource(f"{V1}/pools/{{pool_id}}", write="proxy.write")(
    post("/check", "checkPool", pool_reports.check_pool, PoolChecking),
    post(
        "/upstreams/{upstream}/report",
        "reportPoolUpstream",
        pool_reports.report_upstream,
        PoolUpstreamReported,
        body=UpstreamReport,
        audit=False,
    ),
    post("/refresh", "refreshPool", list_contents.refresh_pool, Refreshing, audit="pool.refreshed"),
)

TABLE = (*_all(), *_CONTENTS, *_REPORTS)
