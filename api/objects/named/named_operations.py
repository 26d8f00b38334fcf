"""What can be done with lists, pools and policies: checked and fetched now; what clients' programs report of upstreams;
a rule put before the others."""

from __future__ import annotations

import time
from typing import Any, Literal

from actors.bus.messages.cluster import KnownPool, QueryPoolState
from actors.bus.messages.common import API, SUPERVISOR, Done
from actors.bus.messages.specs import POOL_KEY, CheckPool
from actors.pools.state import longest_check
from api.bus_bridge import request
from api.call import Call, Reply
from api.engine.kind import ObjectKind
from api.engine.operation import V1, get, post, resource
from api.engine.operations import readable, reply_with
from api.engine.responses import ResponseModel
from api.errors import Invalid
from api.http.query import Query, text
from api.objects.named.list_kind import LISTS
from api.objects.named.named_kind import Refreshing
from api.objects.named.policy_kind import POLICIES
from api.objects.named.pool_kind import POOLS, PoolUpstreamStatus
from config.model.choices import ListKind
from config.model.shared_objects.policies import RuleFirst, put_first
from config.model.shared_objects.pools import UpstreamReport
from config.net.entries import GEO

NODES_TIMEOUT = 3.0


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
    return _refresh(LISTS, call)


def show_pool(call: Call) -> Reply:
    """See `api.engine.operations`; with what each node of a fleet knows of it."""
    stored, nodes = readable(POOLS, call), call.nodes
    (view,) = call.services.objects[POOLS.collection].views(call.caller, [stored], True)
    if nodes.are_several:
        message = QueryPoolState(stored.record.id)
        known = nodes.request(call.services.bridge, API, message, KnownPool, NODES_TIMEOUT)
        found = [
            {**nodes.of_record(to), **each.status, "upstreams": list(each.upstreams)} for to, each in known.items()
        ]
        view = {**view, "nodes": found}
    return reply_with(POOLS, stored, view, call)


class PoolChecking(ResponseModel):
    """The upstreams of a pool are being checked; all of that ends within `seconds`."""

    id: str
    checking: Literal[True]
    seconds: float


class PoolUpstreamReported(ResponseModel):
    """The state of the upstream after the report."""

    upstream: PoolUpstreamStatus


def check_pool(call: Call) -> Reply:
    """Check a pool now.

    Begins a check of each upstream, whether a proxy uses the pool or not, and returns at once; after `seconds` all of
    them have ended, and `status` of the pool has the results. An upstream that has asked for a pause (429, 5xx) is not
    checked in that time. One that is checked already is not checked twice.
    """
    record = call.services.shared_objects.complete(readable(POOLS, call)).record
    request(call.services.bridge, SUPERVISOR, CheckPool(POOL_KEY + record.name), Done)
    return Reply(
        {"id": record.id, "checking": True, "seconds": longest_check(len(record.upstreams), record.check.timeout)}
    )


def report_upstream(call: Call) -> Reply:
    """Report an upstream of a pool.

    `bad` leaves the upstream alone on all proxies at once for `seconds` (10 minutes by default, a week at most),
    whatever checks say; `good` ends that, and its cool-downs, and `seconds` has no meaning then. Connections that are
    open stay. Returns the state of the upstream.
    """
    body: UpstreamReport = call.body
    pool, upstream = call.services.pool_states.report(call.params["pool_id"], call.params["upstream"], body)
    details = {"upstream": upstream["name"], **body.model_dump(exclude_none=True)}
    resource = call.services.store.resource_named({"pool_id": pool.id})
    call.services.audit.append("pool.upstream_reported", resource, details=details)
    return Reply({"upstream": upstream})


def refresh_pool(call: Call) -> Reply:
    """Fetch a pool's upstreams now.

    Begins to fetch the upstreams from the source of the pool and returns at once; `status.source` of the pool has the
    result. Whatever fails, the pool keeps its upstreams.
    """
    return _refresh(POOLS, call)


def _refresh(kind: ObjectKind[Any], call: Call) -> Reply:
    """Begin to fetch the object in the path. Raises `Invalid` for one without a source."""
    record = readable(kind, call).record
    if record.source is None:
        raise Invalid(None, f"the {kind.name} {record.name!r} has its {kind.entries} itself, and no source")
    call.services.list_fetches.refresh(record.id)
    return Reply({"id": record.id, "refreshing": True})


def put_rule_first(call: Call) -> Reply:
    """Put a rule first.

    Puts one rule before all others of the policy, which decides then where it matches. A rule of its name gives way to
    it, so the same request again changes nothing. `match.until` ends it by itself. The response is the policy, whose
    first rule has the name that was given or made.
    """
    policies, key, wanted = call.services.objects[POLICIES.collection], call.params["policy_id"], call.body
    ids = set(wanted.match.proxies or ())
    names = {each.record.id: each.record.name for each in call.services.proxies.all() if each.record.id in ids}
    try:
        stored = policies.change(key, lambda policy: put_first(policy, wanted, names, time.time()), call.if_match)
    except Invalid as error:  # of a list or a pool that is not there
        raise Invalid((error.field or "").removeprefix("rules[0].") or None, error.error) from error
    (view,) = policies.views(call.caller, [stored], True)
    return reply_with(POLICIES, stored, view, call)


ROWS = (
    *resource(f"{V1}/lists/{{list_id}}", read="proxy.read", write="proxy.write")(
        get("/check", "checkList", check_list, ListChecked, query=CheckTarget, reads="lists"),
        post("/refresh", "refreshList", refresh_list, Refreshing, audit="list.refreshed"),
    ),
    *resource(f"{V1}/pools/{{pool_id}}", write="proxy.write")(
        post("/check", "checkPool", check_pool, PoolChecking),
        post(
            "/upstreams/{upstream}/report",
            "reportPoolUpstream",
            report_upstream,
            PoolUpstreamReported,
            body=UpstreamReport,
            audit=False,
        ),
        post("/refresh", "refreshPool", refresh_pool, Refreshing, audit="pool.refreshed"),
    ),
    *resource(f"{V1}/policies/{{policy_id}}", write="proxy.write")(
        post("/rules", "putRuleFirst", put_rule_first, POLICIES.resource.one, body=RuleFirst, if_match=True),
    ),
)
