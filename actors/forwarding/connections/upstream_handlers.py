"""The way out of a client connection through upstreams: a connection of one is requested and used, and it is reported
how it went.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from actors.counters import ORIGIN_CONNECTIONS_REUSED
from actors.forwarding.connections.client_connection import ClientConnection, RequestContext, Suspects
from actors.forwarding.decision import chosen_by
from actors.forwarding.isolation import isolated
from actors.forwarding.net.connection_pool import OriginConnection
from actors.forwarding.net.source_address import SourceAddress
from actors.forwarding.protocols.commands import Again, Command, Open, Report, UpstreamRefused, UpstreamResponded
from actors.forwarding.protocols.failures import Failure
from actors.forwarding.reporting import trace
from actors.forwarding.upstreams.route import UpstreamRoute, Wanted
from actors.net.socks_wire import endpoint_of
from actors.pools.upstream import Upstream

if TYPE_CHECKING:
    from actors.forwarding.policies.judge import Judge
    from actors.forwarding.upstreams.upstream_set import UpstreamSet

_DOUBTFUL = frozenset(("connection_terminated", "http_response_timeout", "http_protocol_error"))
"""How a request ends to which an upstream did not respond, or not in HTTP."""


def open_through_upstream(
    client: ClientConnection,
    command: Open,
    upstreams: UpstreamSet,
    judge: Judge | None = None,
    source: SourceAddress | None = None,
) -> list[Command] | None:
    """A kept connection of the chosen upstream at once, else one that is made; `source`: where it leaves from."""
    wanted = _wanted(client, command, upstreams, judge, source)
    again = partial(_asks_another, client, wanted, upstreams) if upstreams.asks_again and command.forward else None
    route = upstreams.route(wanted, lambda result: _routed(client, command, result, again))
    route.failures[:0] = client.request.failures
    client.request.failures = route.failures
    if route.origin is None:
        client.pending_origin = route
        return None
    client.counts[ORIGIN_CONNECTIONS_REUSED] += 1
    _use_origin(client, route.origin, 0.0)
    return client.session.opened(True, client.loop.now, None, route.origin.hop, again)


def upstream_refused(client: ClientConnection, _command: UpstreamRefused) -> None:
    """The response to a request in absolute-form is 407."""
    upstreams, upstream = client.context.upstreams_of(client.request.pool), client.request.upstream
    if upstreams is not None and upstream is not None:
        upstreams.responded_407(upstream)


def _asks_another(client: ClientConnection, wanted: Wanted, upstreams: UpstreamSet, status: int) -> bool:
    """See `Again`."""
    request = client.request
    if request.upstream is None:
        return False
    tried = (*request.tries.tried, request.upstream)
    if not upstreams.asks_another(wanted, tried, status):
        return False
    request.tries = request.tries._replace(tried=tried)
    return True


def upstream_responded(client: ClientConnection, command: UpstreamResponded) -> None:
    """Remember an error that seems to be the upstream's own until the end of the request."""
    request = client.request
    if request.upstream is not None and not command.of_target:
        status = command.status
        cause = f"it responds {status}" if status else "it closed the connection of a request"
        suspects = (*request.tries.suspects, (request.upstream, status, cause))
        request.tries = request.tries._replace(suspects=suspects)
        request.failures = [*request.failures, (request.upstream, cause)]


def reported(client: ClientConnection, upstream: Upstream, report: Report) -> None:
    """Count a request that an upstream had. How one in absolute-form ended also says whether the upstream works."""
    upstream.count_bytes(report.bytes_in, report.bytes_out)
    upstreams = client.context.upstreams_of(client.request.pool)
    if upstreams is None or report.method == b"CONNECT" or upstream.spec.protocol not in ("http", "https"):
        return
    if report.method == b"TRACE" and report.status == 405:
        return  # the proxy's own response to a TRACE that would carry its credentials: the upstream got nothing
    suspects = client.request.tries.suspects
    if report.reason in _DOUBTFUL:
        if not client.client_ended:  # else the client may have aborted it
            suspects = (*suspects, (upstream, 0, f"a request to it ended in {report.reason}"))
    elif not report.reason and upstream not in {each[0] for each in suspects}:
        upstreams.succeeded(upstream)
        if report.method in (b"GET", b"HEAD"):  # others may wait for the body of the request
            upstream.record_latency(client.loop.now, max(0.0, report.responded - client.request.asked_at))
    _judge_suspects(client.request, upstreams, suspects, report)


def _judge_suspects(request: RequestContext, upstreams: UpstreamSet, suspects: Suspects, report: Report) -> None:
    """What several upstreams do with a request, and no other one better, is the failure of its target."""
    if len(suspects) == 1 or (report.status < 500 and report.status != 429):
        host = "" if request.target is None else request.target.host
        for upstream, status, cause in suspects:
            upstreams.suspect(upstream, status, cause, host)


def _wanted(
    client: ClientConnection, command: Open, upstreams: UpstreamSet, judge: Judge | None, source: SourceAddress | None
) -> Wanted:
    identity, ends = client.request.identity, None
    if upstreams.announces:
        ends = client.proxy_addresses or ((client.client_ip, _port(client)), endpoint_of(client.sock.getsockname()))
    own = client.context.own_rules(client.meter)
    key, parameters = identity.balanced_by(client.client_ip), chosen_by(client.context, identity.parameters)
    base = Wanted(command.target, command.forward, command.fresh, key, command.via, ends, own, judge)
    return base._replace(parameters=parameters, source=source, tried=client.request.tries.tried)


def _port(client: ClientConnection) -> int:
    """The client's port; 0 when it has gone while its credentials were checked."""
    try:
        port: int = client.sock.getpeername()[1]
    except OSError:
        return 0
    return port


@isolated
def _routed(client: ClientConnection, command: Open, result: OriginConnection | Failure, again: Again | None) -> None:
    route = client.pending_origin
    assert isinstance(route, UpstreamRoute), route
    if client.context.debug:
        trace.note(client.id, "upstreams tried: %s", route.tried or "none")
    client.pending_origin = None
    now = client.loop.now
    if isinstance(result, Failure):
        client.execute(client.failed(result))
    else:
        _use_origin(client, result, route.waited)
        address = endpoint_of(result.sock.getsockname()) if command.with_address else None
        client.execute(client.session.opened(False, now, address, result.hop, again))
    client.pump()


def _use_origin(client: ClientConnection, origin: OriginConnection, waited: float) -> None:
    client.request.asked_at = client.loop.now - waited
    upstream = client.request.upstream = origin.upstream
    assert upstream is not None
    client.attach_origin(origin)
    upstreams = client.context.upstreams_of(client.request.pool)
    if client.context.debug and upstreams is not None:
        trace.note(client.id, "through upstream %s by %s", upstream.name, upstreams.spec.policy)
        trace.note_peer(client.id, origin.sock)
    tester = client.request.identity.tester
    if tester is not None:
        tester.upstream = upstream.name
