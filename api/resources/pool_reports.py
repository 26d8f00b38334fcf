"""What clients' programs report of the upstreams of pools."""

from __future__ import annotations

from api.call import Call, Reply
from config.model.pools import UpstreamReport


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
