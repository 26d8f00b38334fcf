"""What a client connection does with parents: ask for a way, take the connection, tell of refusals."""

from __future__ import annotations

from actors.counters import ORIGIN_CONNECTIONS_REUSED
from actors.forwarding.connections.client_connection import ClientConnection
from actors.forwarding.isolation import isolated
from actors.forwarding.net.connection_pool import OriginConnection
from actors.forwarding.protocols.commands import Command, Open, Report
from actors.forwarding.protocols.failures import Failure
from actors.forwarding.reporting import trace
from actors.forwarding.upstreams.handshake import Blame, ParentFailed, wrong_credentials
from actors.forwarding.upstreams.route import NONE_LEFT, Route, Wanted
from actors.forwarding.upstreams.upstream import Parent
from actors.net.socks_wire import endpoint_of

_DOUBTFUL = frozenset(("connection_terminated", "http_response_timeout", "http_protocol_error"))
"""How a request ends that a parent took and did not answer, or not in HTTP."""


def open_through_parent(client: ClientConnection, command: Open) -> list[Command] | None:
    """A kept connection of the chosen parent at once, else one that is made."""
    upstreams = client.context.upstreams
    assert upstreams is not None
    route = upstreams.route(_wanted(client, command), lambda result: _routed(client, command, result))
    if route.origin is None:
        client.pending_origin = route
        return None
    client.counts[ORIGIN_CONNECTIONS_REUSED] += 1
    _take(client, route.origin)
    return client.session.opened(True, client.loop.now, None, route.origin.hop)


def parent_refused(client: ClientConnection) -> None:
    """The parent does not accept our credentials; it said so to a request in absolute-form."""
    upstreams, parent = client.context.upstreams, client.request.parent
    if upstreams is not None and parent is not None:
        upstreams.failed(parent, wrong_credentials("it answers 407: it wants other credentials"))


def reported(client: ClientConnection, parent: Parent, report: Report) -> None:
    """A request that a parent had is over. What became of one in absolute-form is also news of the parent itself."""
    parent.moved(report.bytes_in, report.bytes_out)
    upstreams = client.context.upstreams
    if upstreams is None or report.method == b"CONNECT" or parent.spec.protocol not in ("http", "https"):
        return
    if report.method == b"TRACE" and report.status == 405:
        return  # the proxy itself answers a TRACE that would carry its credentials: nothing was sent to the upstream
    if report.reason in _DOUBTFUL:
        if client.client_ended:
            return  # it may be the client that broke off
        parent.deep = True
        said = f"a request to it ended in {report.reason}"
        upstreams.failed(parent, ParentFailed(Blame.UNCLEAR, NONE_LEFT, said))
    elif not report.reason:
        upstreams.succeeded(parent)


def _wanted(client: ClientConnection, command: Open) -> Wanted:
    word = client.request.session_word
    key = client.client_ip if word is None else word
    ends = None
    if client.context.upstreams is not None and client.context.upstreams.announces:
        ends = client.proxy_addresses or ((client.client_ip, _port(client)), endpoint_of(client.sock.getsockname()))
    return Wanted(command.target, command.forward, command.fresh, key, command.via, ends)


def _port(client: ClientConnection) -> int:
    """The client's port; 0 when it has gone while its credentials were looked at, so that nobody knows any more."""
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
        _take(client, result)
        address = endpoint_of(result.sock.getsockname()) if command.with_address else None
        client.execute(client.session.opened(False, now, address, result.hop))
    client.pump()


def _take(client: ClientConnection, origin: OriginConnection) -> None:
    parent = client.request.parent = origin.parent
    assert parent is not None
    client.attach_origin(origin)
    upstreams = client.context.upstreams
    if client.context.debug and upstreams is not None:
        trace.note(client.id, "through upstream %s by %s", parent.name, upstreams.spec.policy)
        trace.note_peer(client.id, origin.sock)
    if client.request.tester is not None:
        client.request.tester.parent = parent.name
