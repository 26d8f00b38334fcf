"""What every command of a session does to its client connection: the table, and the orders that are no questions."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from actors.forwarding.connections.body_relay import end_flows, relay_to_client, relay_to_origin
from actors.forwarding.connections.bound_origin import Bound
from actors.forwarding.connections.deferred_handlers import associate, authorize, listen, open_origin
from actors.forwarding.connections.tunnel import Tunnel as RunningTunnel
from actors.forwarding.connections.udp_association import Association
from actors.forwarding.net.connection_pool import OriginConnection
from actors.forwarding.protocols.commands import (
    Associate,
    Authorize,
    CloseClient,
    Command,
    LeaveOrigin,
    Listen,
    Open,
    ParentRefused,
    RelayDatagrams,
    RelayToClient,
    RelayToOrigin,
    Report,
    ToClient,
    ToOrigin,
    Tunnel,
)
from actors.forwarding.reporting import trace

if TYPE_CHECKING:
    from actors.forwarding.connections.client_connection import Client


def _to_client(client: Client, command: ToClient) -> None:
    client.send_client(command.data)


def _to_origin(client: Client, command: ToOrigin) -> None:
    if client.origin is not None:
        client.send_origin(command.data)


def leave_origin(client: Client, command: LeaveOrigin) -> None:
    """Give the origin's connection back, or close it."""
    origin, client.origin = client.origin, None
    end_flows(client)
    if origin is None:
        return
    if origin.parent is not None:
        origin.parent.left()
    reusable = command.reusable and not client.origin_ended and origin.is_reusable
    if command.authenticated or origin.authenticated:
        _leave_bound(client, origin, reusable)
    elif reusable:
        client.serving.pool.release(origin)
    else:
        client.serving.pool.close(origin)


def _leave_bound(client: Client, origin: OriginConnection, reusable: bool) -> None:
    origin.authenticated = True
    if client.bound is None:
        client.bound = Bound(client)
    client.bound.rest(origin, reusable)


def _tunnel(client: Client, command: Tunnel) -> None:
    origin = client.origin
    assert origin is not None
    report = _marked(client, command.report)
    out = bytes(client.out)
    readable = client.client_readable or client.client_ended
    tunnel = RunningTunnel(
        client.serving, client.sock, client.client_ip, origin, out, report, client.number, client.meter, readable
    )
    client.origin = None
    client.over = True
    client.serving.pool.detach(origin)
    client.serving.replaced(client, tunnel)


def _relay_datagrams(client: Client, command: RelayDatagrams) -> None:
    relay, control = client.relay, client.sock
    assert relay is not None
    assert isinstance(control, socket.socket)
    out = bytes(client.out)
    association = Association(
        client.serving, control, client.client_ip, relay, out, command, client.number, client.meter
    )
    client.relay = None
    client.over = True
    client.serving.replaced(client, association)


def _report(client: Client, command: Report) -> None:
    parent = client.request.parent
    if parent is not None:
        from actors.forwarding.connections.upstream_handlers import reported  # only proxies with parents pay for it

        reported(client, parent, command)
    if client.serving.debug:
        trace.note_report(client.serving, client.number, command, client.request.target)
    client.serving.reported(_marked(client, command), client.client_ip)
    client.request_over()
    if client.meter is not None:
        client.meter.exchange_over()


def _parent_refused(client: Client, _command: ParentRefused) -> None:
    from actors.forwarding.connections.upstream_handlers import parent_refused  # only proxies with parents pay for it

    parent_refused(client)


def _marked(client: Client, report: Report) -> Report:
    """With the upstream, the id of a test, and, where it has no other reason, the word of a rule that only reports."""
    request = client.request
    if request.parent is not None:
        report = report._replace(parent=request.parent.name)
    if request.tester is not None:
        request.tester.reason, request.tester.detail = report.reason, report.detail
        report = report._replace(request_id=request.tester.request_id)
    word = client.reported or (client.origin.reported if client.origin is not None else "")
    return report._replace(reason=word) if word and not report.reason else report


def _close(client: Client, command: CloseClient) -> None:
    if command.abort:
        client.close(abort=True)
    else:
        client.close_when_sent()


DO: dict[type[Any], Callable[[Client, Any], list[Command] | None]] = {
    ToClient: _to_client,
    ToOrigin: _to_origin,
    Authorize: authorize,
    Open: open_origin,
    ParentRefused: _parent_refused,
    Listen: listen,
    Associate: associate,
    LeaveOrigin: leave_origin,
    RelayToClient: relay_to_client,
    RelayToOrigin: relay_to_origin,
    Tunnel: _tunnel,
    RelayDatagrams: _relay_datagrams,
    Report: _report,
    CloseClient: _close,
}
"""Carries out a command of each kind; what comes back are the commands for an answer given at once."""
