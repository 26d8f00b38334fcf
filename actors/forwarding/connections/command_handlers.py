"""What each command of a session does to its client connection. Outcomes that come later are in `deferred_handlers`."""

from __future__ import annotations

from actors.forwarding.connections.client_connection import ClientConnection, Handlers
from actors.forwarding.connections.deferred_handlers import associate, authorize, listen, open_origin
from actors.forwarding.connections.request_context import RequestContext
from actors.forwarding.connections.tunnel import Tunnel as RunningTunnel
from actors.forwarding.connections.udp_association import UdpAssociation
from actors.forwarding.protocols.commands import (
    Associate,
    Authorize,
    CloseClient,
    Command,
    LeaveOrigin,
    Listen,
    Open,
    RelayDatagrams,
    RelayToClient,
    RelayToOrigin,
    Report,
    Speak,
    ToClient,
    ToOrigin,
    Tunnel,
    UpstreamRefused,
)
from actors.forwarding.reporting import trace


def _to_client(client: ClientConnection, command: ToClient) -> None:
    client.send_client(command.data)


def _to_origin(client: ClientConnection, command: ToOrigin) -> None:
    if client.origin is not None:
        client.send_origin(command.data)


def _leave_origin(client: ClientConnection, command: LeaveOrigin) -> None:
    client.release_origin(command.reusable, command.authenticated)


def _relay_to_client(client: ClientConnection, command: RelayToClient) -> None:
    client.relay_response(command.length)


def _relay_to_origin(client: ClientConnection, command: RelayToOrigin) -> None:
    client.relay_request(command.length)


def _tunnel(client: ClientConnection, command: Tunnel) -> None:
    origin = client.origin
    assert origin is not None
    report = _completed(client, client.request, command.report)
    buffered = bytes(client.send_buffer)
    readable = client.client_readable or client.client_ended
    tunnel = RunningTunnel(
        client.context,
        client.sock,
        client.client_ip,
        origin,
        buffered,
        report,
        client.number,
        client.meter,
        readable,
        client.request.target,
    )
    client.origin = None
    client.closed = True
    client.context.pool.detach(origin)
    client.context.replace(client, tunnel)
    _judge_again(client, tunnel)


def _judge_again(client: ClientConnection, successor: RunningTunnel | UdpAssociation) -> None:
    """The account's destinations may have changed while the connection was made."""
    if client.meter is not None and client.context.own_rules(client.meter):
        client.loop.call_soon(successor.destinations_changed)


def _relay_datagrams(client: ClientConnection, command: RelayDatagrams) -> None:
    relay = client.datagrams
    assert relay is not None
    buffered = bytes(client.send_buffer)
    command = command._replace(report=command.report._replace(credential=client.request.credential_id))
    association = UdpAssociation(
        client.context, client.sock, client.client_ip, relay, buffered, command, client.number, client.meter
    )
    client.datagrams = None
    client.closed = True
    client.context.replace(client, association)


def _report(client: ClientConnection, command: Report) -> None:
    request = client.request
    upstream = request.upstream
    if upstream is not None:
        from actors.forwarding.connections.upstream_handlers import reported  # only proxies with upstreams pay for it

        reported(client, upstream, command)
    if client.context.debug:
        trace.note_report(client.id, command, request.target)
    client.context.stats.exchange_ended(_completed(client, request, command), client.client_ip)
    client.last, client.request = request, RequestContext()  # nothing of this request is taken over by the next
    if client.meter is not None:
        client.meter.exchange_over()


def _upstream_refused(client: ClientConnection, _command: UpstreamRefused) -> None:
    from actors.forwarding.connections.upstream_handlers import (
        upstream_refused,  # only proxies with upstreams pay for it
    )

    upstream_refused(client)


def _completed(client: ClientConnection, request: RequestContext, report: Report) -> Report:
    """With upstream, credential, the id of a test, and, where it has no other reason, that of a rule in report mode."""
    if request.upstream is not None:
        report = report._replace(upstream=request.upstream.name)
    if request.credential is not None:
        report = report._replace(credential=request.credential.id)
    if request.tester is not None:
        request.tester.reason, request.tester.detail = report.reason, report.detail
        report = report._replace(request_id=request.tester.request_id)
    reason = client.report_only_reason or (client.origin.reported if client.origin is not None else "")
    return report._replace(reason=reason) if reason and not report.reason else report


def _speak(client: ClientConnection, command: Speak) -> list[Command]:
    session = client.session = client.context.new_session(command.protocol, command.started)
    if command.last:
        session.disable_keep_alive()
    return session.receive_from_client(command.data, client.loop.now)


def _close(client: ClientConnection, command: CloseClient) -> None:
    if command.abort:
        client.close(abort=True)
    else:
        client.close_when_sent()


HANDLERS: Handlers = {
    ToClient: _to_client,
    ToOrigin: _to_origin,
    Authorize: authorize,
    Open: open_origin,
    UpstreamRefused: _upstream_refused,
    Listen: listen,
    Associate: associate,
    LeaveOrigin: _leave_origin,
    RelayToClient: _relay_to_client,
    RelayToOrigin: _relay_to_origin,
    Tunnel: _tunnel,
    RelayDatagrams: _relay_datagrams,
    Report: _report,
    Speak: _speak,
    CloseClient: _close,
}
