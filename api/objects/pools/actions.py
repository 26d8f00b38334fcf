"""What can be done with a pool: checked and fetched now; and what clients' programs report of its upstreams."""

from __future__ import annotations

from typing import Literal

from actors.bus.messages.common import SUPERVISOR, Done
from actors.bus.messages.specs import POOL_KEY, CheckPool
from actors.pools.state import longest_check
from api.bus_bridge import request
from api.call import Call, Reply
from api.engine.operation import V1, post, resource
from api.engine.operations import readable
from api.objects.fetching import refresh
from api.objects.named import Refreshing
from api.objects.pools.kind import POOLS, PoolUpstreamStatus
from api.openapi.schemas.base import ResponseModel
from config.model.pools import UpstreamReport


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
    resource = call.services.resource_named({"pool_id": pool.id})
    call.services.audit.append("pool.upstream_reported", resource, details=details)
    return Reply({"upstream": upstream})


def refresh_pool(call: Call) -> Reply:
    """Fetch a pool's upstreams now.

    Begins to fetch the upstreams from the source of the pool and returns at once; `status.source` of the pool has the
    result. Whatever fails, the pool keeps its upstreams.
    """
    return refresh(POOLS, call)


ROWS = resource(f"{V1}/pools/{{pool_id}}", write="proxy.write")(
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
)
