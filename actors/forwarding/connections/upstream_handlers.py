"""The way out of a client connection: from which address, and with upstreams through which one. A connection of an
upstream is requested, used, and it is reported how it went.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from actors.counters import ORIGIN_CONNECTIONS_REUSED
from actors.forwarding.access.username_parameters import NO_PARAMETERS, Parameters
from actors.forwarding.connections.client_connection import ClientConnection
from actors.forwarding.connections.request_context import RequestContext, Suspects
from actors.forwarding.isolation import isolated
from actors.forwarding.limits.meter import account_of
from actors.forwarding.net.connection_pool import Key, OriginConnection
from actors.forwarding.net.egress import Requested
from actors.forwarding.net.source_address import SourceAddress, may_serve
from actors.forwarding.protocols.commands import Again, Command, Open, Report, UpstreamResponded
from actors.forwarding.protocols.failures import Failure
from actors.forwarding.protocols.http.targets import Authority
from actors.forwarding.reporting import trace
from actors.forwarding.upstreams.route import UpstreamRoute, Wanted
from actors.net.socks_wire import endpoint_of
from actors.pools.upstream import AnyUpstream

if TYPE_CHECKING:
    from actors.forwarding.policies.judge import Judge, PolicyVerdict
    from actors.forwarding.upstreams.upstream_set import UpstreamSet

_DOUBTFUL = frozenset(("connection_terminated", "http_response_timeout", "http_protocol_error"))
"""How a request ends to which an upstream did not respond, or not in HTTP."""


def source_of(client: ClientConnection, verdict: PolicyVerdict | None) -> SourceAddress | None:
    """Where the request of a client leaves from by what policies say; None: from where all of the proxy do."""
    sources, account = client.context.sources, account_of(client.meter)
    stated = sources.stated(verdict, account)
    return sources.source(stated, requested(client), account) if stated.entries else None


def requested(client: ClientConnection) -> Requested:
    """Who sends the request that a client connection serves."""
    request = client.request
    parameters = request.parameters
    session, rotate, ttl = parameters.session or "", parameters.rotate, parameters.ttl
    return Requested(client.client_ip, request.user, session, rotate, ttl)


def bound_from(client: ClientConnection, origin: OriginConnection, source: SourceAddress | None) -> bool:
    """Whether the client's own kept connection left from where the request is to leave from; else it is closed."""
    if may_serve(origin.source, source):
        return True
    client.context.pool.release(origin)
    return False


def key_of(target: Authority, source: SourceAddress | None) -> Key:
    """By what an idle connection to the target is found again."""
    return (target.host if source is None else source.key(target.host), target.port)


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


def upstream_refused(client: ClientConnection) -> None:
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


def reported(client: ClientConnection, upstream: AnyUpstream, report: Report) -> None:
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
    parameters, key = _chosen_by(client)
    ends = None
    if upstreams.announces:
        ends = client.proxy_addresses or ((client.client_ip, _port(client)), endpoint_of(client.sock.getsockname()))
    own = client.context.own_rules(client.meter)
    base = Wanted(command.target, command.forward, command.fresh, key, command.via, ends, own, judge)
    return base._replace(parameters=parameters, source=source, tried=client.request.tries.tried)


def _chosen_by(client: ClientConnection) -> tuple[Parameters, str]:
    """The parameters by which an upstream is chosen, and the key of session or account; without them the client's."""
    request, names = client.request, client.context.names
    parameters = request.parameters if names is not None and names.binds else NO_PARAMETERS
    key = request.session_key
    if key is None:
        key = f"{request.named or request.user}\0" if parameters.rotate else client.client_ip
    return parameters, key


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
    if client.request.tester is not None:
        client.request.tester.upstream = upstream.name
