"""What clients' programs report of the upstreams of pools, and checks that are asked for."""

from __future__ import annotations

from actors.bus.messages.common import SUPERVISOR, Done
from actors.bus.messages.fleet_objects import POOL_KEY
from actors.bus.messages.pools import CheckPool
from actors.pools.summary import longest_check
from api.bus_bridge import request
from api.call import Call, Reply
from api.resources.shared_objects import readable
from api.services.object_kinds import POOLS
from config.model.pools import UpstreamReport


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
