"""What each command of a session does to its client connection: who asks (`authorizing`), what is opened (`opening`),
what becomes of it, and what is reported."""

from __future__ import annotations

from actors.forwarding.access.username_parameters import NO_PARAMETERS
from actors.forwarding.connections.authorizing import authorize
from actors.forwarding.connections.client_connection import ClientConnection, Handlers, RequestContext
from actors.forwarding.connections.opening import associate, listen, open_origin
from actors.forwarding.connections.tls_name_gate import gate_of
from actors.forwarding.connections.tunnel import TunnelConnection
from actors.forwarding.connections.udp_association import UdpAssociation
from actors.forwarding.connections.upstream_handlers import reported, upstream_refused, upstream_responded
from actors.forwarding.decision import ANONYMOUS, ClientIdentity
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
    UpstreamResponded,
)
from actors.forwarding.reporting import trace
from config.text.access_fields import with_tried
from config.text.reasons import REPORTED


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
    origin, gate = client.origin, gate_of(client, command)
    assert origin is not None
    if gate is None and command.early:
        client.send_origin(command.early)
    _complete(client, client.request, command.report)
    tunnel = TunnelConnection(client, origin, command.report, gate)
    client.origin = None
    client.closed = True
    client.context.pool.detach(origin)
    client.context.replace(client, tunnel)
    _judge_again(client, tunnel)


def _judge_again(client: ClientConnection, successor: TunnelConnection | UdpAssociation) -> None:
    """The account's destinations may have changed while the connection was made."""
    if client.meter is not None and client.context.own_rules(client.meter):
        client.loop.call_soon(successor.destinations_changed)
    if client.rejudged:
        client.loop.call_soon(successor.policies_changed)


def _relay_datagrams(client: ClientConnection, command: RelayDatagrams) -> None:
    relay = client.datagrams
    assert relay is not None
    _add_identity(client.request.identity, command.report)
    association = UdpAssociation(client, relay, command)
    client.datagrams = None
    client.closed = True
    client.context.replace(client, association)


def _report(client: ClientConnection, command: Report) -> None:
    request = client.request
    upstream = request.upstream
    if upstream is not None:
        reported(client, upstream, command)
    if client.context.debug:
        trace.note_report(client.id, command, request.target)
    _complete(client, request, command)
    client.context.stats.exchange_ended(command, client.client_ip, client.listen_port)
    client.last, client.request = request, RequestContext()  # nothing of this request is taken over by the next
    if client.meter is not None:
        client.meter.exchange_over()


def _complete(client: ClientConnection, request: RequestContext, report: Report) -> None:
    """Fill in the upstream, or the last one that was tried in vain, with what each of these did; credential, the id of
    a test, and, where it has no other reason, what a rule in report mode says."""
    failures = request.failures
    upstream = failures[-1][0] if request.upstream is None and failures else request.upstream
    if upstream is not None:
        report.upstream, report.pool = upstream.name, upstream.pool
    if failures and (report.reason or report.status >= 400):
        report.detail = with_tried(report.detail, [(each.name, cause) for each, cause in failures])
    identity = request.identity
    if identity is not ANONYMOUS:
        _add_identity(identity, report)
    tester = identity.tester
    if tester is not None:
        tester.reason, tester.detail = report.reason, report.detail
        report.request_id = tester.request_id or report.request_id
    origin, reported = client.origin, client.reported
    if origin is not None:
        reported = reported or origin.reported
        report.source_address = origin.left_from
        report.country, report.asn = origin.place
    if reported is not None and not report.reason:
        report.because(reported).reason = REPORTED + reported.reason


def _add_identity(identity: ClientIdentity, report: Report) -> None:
    report.credential = identity.credential_id
    parameters = identity.parameters
    if parameters is not NO_PARAMETERS:
        report.parameters, report.params = parameters.recorded, parameters.asked


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
    UpstreamRefused: upstream_refused,
    UpstreamResponded: upstream_responded,
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
