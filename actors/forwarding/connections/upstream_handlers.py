"""What a client connection does with upstreams: request a connection, use it, and report how it went."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actors.counters import ORIGIN_CONNECTIONS_REUSED
from actors.forwarding.connections.client_connection import ClientConnection
from actors.forwarding.isolation import isolated
from actors.forwarding.net.connection_pool import OriginConnection
from actors.forwarding.protocols.commands import Command, Open, Report
from actors.forwarding.protocols.failures import Failure
from actors.forwarding.reporting import trace
from actors.forwarding.upstream import Upstream
from actors.forwarding.upstreams.handshake import Blame, UpstreamFailed
from actors.forwarding.upstreams.route import NONE_LEFT, Route, Wanted
from actors.net.socks_wire import endpoint_of

if TYPE_CHECKING:
    from actors.forwarding.policies.judge import Judge
    from actors.forwarding.upstreams.upstream_set import UpstreamSet

_DOUBTFUL = frozenset(("connection_terminated", "http_response_timeout", "http_protocol_error"))
"""How a request ends to which an upstream did not respond, or not in HTTP."""


def open_through_upstream(
    client: ClientConnection, command: Open, upstreams: UpstreamSet, judge: Judge | None = None
) -> list[Command] | None:
    """A kept connection of the chosen upstream at once, else one that is made."""
    route = upstreams.route(_wanted(client, command, upstreams, judge), lambda result: _routed(client, command, result))
    if route.origin is None:
        client.pending_origin = route
        return None
    client.counts[ORIGIN_CONNECTIONS_REUSED] += 1
    _use_origin(client, route.origin)
    return client.session.opened(True, client.loop.now, None, route.origin.hop)


def upstream_refused(client: ClientConnection) -> None:
    """The response to a request in absolute-form is 407."""
    upstreams, upstream = client.context.upstreams_of(client.request.pool), client.request.upstream
    if upstreams is not None and upstream is not None:
        upstreams.responded_407(upstream)


def reported(client: ClientConnection, upstream: Upstream, report: Report) -> None:
    """Count a request that an upstream had. How one in absolute-form ended also says whether the upstream works."""
    upstream.count_bytes(report.bytes_in, report.bytes_out)
    upstreams = client.context.upstreams_of(client.request.pool)
    if upstreams is None or report.method == b"CONNECT" or upstream.spec.protocol not in ("http", "https"):
        return
    if report.method == b"TRACE" and report.status == 405:
        return  # the proxy's own response to a TRACE that would carry its credentials: the upstream got nothing
    if report.reason in _DOUBTFUL:
        if client.client_ended:
            return  # the client may have aborted it
        upstream.reached_handshake = True
        cause = f"a request to it ended in {report.reason}"
        upstreams.failed(upstream, UpstreamFailed(Blame.UNCLEAR, NONE_LEFT, cause))
    elif not report.reason:
        upstreams.succeeded(upstream)


def _wanted(client: ClientConnection, command: Open, upstreams: UpstreamSet, judge: Judge | None) -> Wanted:
    word = client.request.session_word
    key = client.client_ip if word is None else word
    ends = None
    if upstreams.announces:
        ends = client.proxy_addresses or ((client.client_ip, _port(client)), endpoint_of(client.sock.getsockname()))
    own = client.context.own_rules(client.meter)
    return Wanted(command.target, command.forward, command.fresh, key, command.via, ends, own, judge)


def _port(client: ClientConnection) -> int:
    """The client's port; 0 when it has gone while its credentials were checked."""
    try:
        port: int = client.sock.getpeername()[1]
    except OSError:
        return 0
    return port


@isolated
def _routed(client: ClientConnection, command: Open, result: OriginConnection | Failure) -> None:
    if client.context.debug and isinstance(client.pending_origin, Route):
        trace.note(client.id, "upstreams tried: %s", client.pending_origin.tried or "none")
    client.pending_origin = None
    now = client.loop.now
    if isinstance(result, Failure):
        client.execute(client.session.failed(result, now))
    else:
        _use_origin(client, result)
        address = endpoint_of(result.sock.getsockname()) if command.with_address else None
        client.execute(client.session.opened(False, now, address, result.hop))
    client.pump()


def _use_origin(client: ClientConnection, origin: OriginConnection) -> None:
    upstream = client.request.upstream = origin.upstream
    assert upstream is not None
    client.attach_origin(origin)
    upstreams = client.context.upstreams_of(client.request.pool)
    if client.context.debug and upstreams is not None:
        trace.note(client.id, "through upstream %s by %s", upstream.name, upstreams.spec.policy)
        trace.note_peer(client.id, origin.sock)
    if client.request.tester is not None:
        client.request.tester.upstream = upstream.name
