"""What is opened for a request: an origin connection by the way that is decided, one to accept, or datagrams.

Outcomes are reported as those of credentials are (`authorizing`). A request that is sent again, since a kept connection
or an upstream has failed, is not judged by policies again: it goes on by the verdict that it has.
"""

from __future__ import annotations

import socket
from functools import partial
from typing import TYPE_CHECKING

from actors.counters import ORIGIN_CONNECTIONS_REUSED
from actors.forwarding.access.rules import OwnRules
from actors.forwarding.connections.bind_listener import BindListener
from actors.forwarding.connections.client_connection import ClientConnection
from actors.forwarding.connections.tunnel import peer_of
from actors.forwarding.connections.udp_targets import relay_socket
from actors.forwarding.connections.upstream_handlers import open_through_upstream
from actors.forwarding.decision import decide_by_addresses, decide_by_name, missing_pool, refused_before_target, way_out
from actors.forwarding.isolation import isolated
from actors.forwarding.limits.meter import account_of
from actors.forwarding.limits.rule_limits import Limited
from actors.forwarding.net.connection_pool import Key, OriginConnection
from actors.forwarding.net.dialer import ENDED, READABLE, Dial
from actors.forwarding.net.resolver import Resolution
from actors.forwarding.net.source_address import SourceAddress, may_serve
from actors.forwarding.protocols import failures
from actors.forwarding.protocols.commands import Associate, Command, Listen, Open
from actors.forwarding.protocols.failures import Failure
from actors.forwarding.protocols.http.targets import Authority
from actors.forwarding.reporting import trace
from actors.net.socks_wire import Endpoint, endpoint_of

if TYPE_CHECKING:
    from actors.forwarding.access.policy import Decision
    from actors.forwarding.policies.judge import Applied, Judge, PolicyVerdict
    from actors.forwarding.upstreams.upstream_set import UpstreamSet


def open_origin(client: ClientConnection, command: Open) -> list[Command] | None:
    """Take a connection from the pool, or begin to make one."""
    request, context = client.request, client.context
    request.target = command.target
    request.upstream = None  # the one that was tried before, if it is sent again
    headers = context.policy.headers
    if headers is not None and command.forward and not request.admitted:
        client.session.change_head(headers.change(client.client_ip, command.target.text))
    refused = _refused(client)
    if refused is not None:
        return refused
    if context.policies is not None or (client.meter is not None and context.judges(account_of(client.meter))):
        return _open_judged(client, command)
    return _open_way(client, command, context.upstreams)


def _refused(client: ClientConnection) -> list[Command] | None:
    """The commands that follow when the request is refused whatever its target is; None when it is admitted."""
    context, request = client.context, client.request
    access = context.policy.access
    known_client, client_ip = client.access is access, client.client_ip
    refusal = refused_before_target(
        context, request.identity, client_ip, client, client.meter, known_client, request.admitted
    )
    if not known_client:
        decision = access.client(client_ip)
        client.reported = decision.reported
        if decision.failure is None:
            client.access = access
    if refusal is not None and refusal.failure is not None:
        return client.failed(refusal.failure)
    request.admitted = True
    return None


# --- by policies ---


class AwaitedAddresses:
    """A request whose way waits for the addresses of its target."""

    def __init__(self, client: ClientConnection, command: Open, judge: Judge) -> None:
        self._client: ClientConnection | None = client
        self._command = command
        self._judge = judge
        self.client_ip = client.client_ip
        context = client.context
        self._resolver = context.dialer.resolver
        context.dialer.resolve_later(command.target, self._resolved, self, context.own_rules(client.meter), judge)

    @property
    def waits(self) -> bool:
        """See `Requester`."""
        return self._client is not None and self._client.waits

    @property
    def overdue(self) -> Failure | None:
        """See `PendingOrigin`."""
        return None if self._client is None else self._resolver.overdue(self._command.target.host)

    def cancel(self) -> None:
        """Stop waiting."""
        self._client = None

    def _resolved(self, result: Resolution) -> None:
        client, self._client = self._client, None
        if client is None or client.closed or client.pending_origin is not self:
            return
        client.pending_origin = None
        _go_on(client, self._command, self._judge, result)


@isolated
def _go_on(client: ClientConnection, command: Open, judge: Judge, result: Resolution) -> None:
    if isinstance(result, Failure):
        commands: list[Command] | None = client.failed(result)
    else:
        own = client.context.own_rules(client.meter)
        decision = decide_by_addresses(client.context, command.target, own, judge, result.addresses)
        commands = _follow(client, command, judge, decision)
    if commands:
        client.execute(commands)
    client.pump()


def _open_judged(client: ClientConnection, command: Open) -> list[Command] | None:
    """Get a connection to the target by the way that the policies say, or none."""
    request, context = client.request, client.context
    judge = request.judge
    if judge is None:
        judge = request.judge = client.subject.judge(context, command.target, *client.session.plain_request)
        assert judge is not None
    elif judge.settled is not None:
        return _go(client, command, judge)
    decision = decide_by_name(context, command.target, context.own_rules(client.meter), judge)
    if decision is not None or judge.settled is not None:
        return _follow(client, command, judge, decision)
    client.pending_origin = AwaitedAddresses(client, command, judge)
    return None


def _follow(client: ClientConnection, command: Open, judge: Judge, decision: Decision | None) -> list[Command] | None:
    """Do what is decided, and what the policies say beside it: once for each request."""
    verdict = judge.verdict
    if judge.settled is not None and verdict.counted:
        client.context.stats.decided(verdict.counted)
        if client.context.debug:
            trace.note(client.id, "judged by %s", ", ".join(each.entry for each, _only in verdict.counted))
    failure = (None if decision is None else decision.failure) or _over_limits(client, verdict)
    if failure is not None:
        return client.failed(failure)
    changes = verdict.header_changes
    if changes is not None:
        client.session.change_head(changes.apply)
    return _go(client, command, judge)


def _over_limits(client: ClientConnection, verdict: PolicyVerdict) -> Failure | None:
    """Count the request for the rules that match it and have limits. Returns why it is refused, else None."""
    limited = tuple(_limited(each) for each in verdict.applied if each.rule.limited)
    return client.context.limits.rules.admit(client.metered(), limited) if limited else None


def _limited(applied: Applied) -> Limited:
    spec = applied.rule.spec
    return Limited((applied.policy_id, spec.name), spec.limits, applied.decider, applied.entry)


def _go(client: ClientConnection, command: Open, judge: Judge) -> list[Command] | None:
    """Open a connection by the way of the settled verdict."""
    missing = missing_pool(client.context, judge)
    if missing is not None:
        return client.failed(missing)
    client.request.pool = judge.verdict.pool or client.request.pool
    return _open_way(client, command, way_out(client.context, judge), judge)


# --- directly, or through an upstream ---


def source_of(client: ClientConnection, verdict: PolicyVerdict | None) -> SourceAddress | None:
    """Where the request of a client leaves from by what policies say; None: from where all of the proxy do."""
    sources, account = client.context.sources, account_of(client.meter)
    stated = sources.stated(verdict, account)
    if not stated.entries:
        return None
    return sources.source(stated, client.request.identity.requested(client.client_ip), account)


def _open_way(
    client: ClientConnection, command: Open, upstreams: UpstreamSet | None, judge: Judge | None = None
) -> list[Command] | None:
    """Get a connection through one of `upstreams`, or directly without any; `judge`: where there are policies."""
    request, context, target = client.request, client.context, command.target
    own = () if client.meter is None else context.own_rules(client.meter)
    source = None
    if judge is not None or client.meter is not None or context.sources.entries:
        source = source_of(client, None if judge is None else judge.verdict)
    if client.bound is not None:
        bound = client.bound.acquire(request.served, command.forward)
        if bound is not None and _bound_from(client, bound, source) and _may_be_reused(client, bound, own, judge):
            return _reuse_bound(client, bound)
        command = Open(target, True, command.with_address, command.forward, command.via)
    if upstreams is not None:
        return open_through_upstream(client, command, upstreams, judge, source)
    key = (target.host, target.port) if source is None else _key_of(target, source)
    origin = None if command.fresh else context.pool.acquire(key)
    if origin is not None and _may_be_reused(client, origin, own, judge):
        client.counts[ORIGIN_CONNECTIONS_REUSED] += 1
        if context.debug:
            trace.note(client.id, "to %s by a kept connection", target.text.decode("ascii"))
        client.attach_origin(origin)
        return client.session.opened(True, client.loop.now)
    epoch = context.pool.epoch
    dial = context.dialer.dial(
        target, lambda result: _on_dialled(client, command, result, epoch, dial), client, own, judge, source
    )
    client.pending_origin = dial
    return None


def _key_of(target: Authority, source: SourceAddress | None) -> Key:
    """By what an idle connection to the target is found again."""
    return (target.host if source is None else source.key(target.host), target.port)


def _bound_from(client: ClientConnection, origin: OriginConnection, source: SourceAddress | None) -> bool:
    """Whether the client's own kept connection left from where the request is to leave from; else it is closed."""
    if may_serve(origin.source, source):
        return True
    client.context.pool.release(origin)
    return False


def _may_be_reused(
    client: ClientConnection, origin: OriginConnection, own: OwnRules, judge: Judge | None = None
) -> bool:
    """Whether own rules and policies allow a kept connection, which may have been made for others; else it goes back.

    One that serves this client alone is closed then.
    """
    target = client.request.target
    if (not own and judge is None) or target is None:
        return True
    access = client.context.policy.access.for_request(own, judge)
    if judge is not None and not _is_by_the_way(client, origin, judge):
        client.context.pool.release(origin)
        return False
    if origin.upstream is not None:
        decision = access.unresolved(target)
    else:
        decision = access.name(target) or access.address(target, peer_of(origin.sock, target))
    if decision.failure is not None:
        client.context.pool.release(origin)
    elif judge is not None:
        origin.reported = decision.reported  # for this request, whatever it was for the one before
    return decision.failure is None


def _is_by_the_way(client: ClientConnection, origin: OriginConnection, judge: Judge) -> bool:
    """Whether a kept connection goes the way that the policies say: directly, or through one of those upstreams."""
    upstreams = way_out(client.context, judge)
    if upstreams is None:
        return origin.upstream is None
    return origin.upstream is not None and origin.upstream in upstreams.members


def _reuse_bound(client: ClientConnection, origin: OriginConnection) -> list[Command]:
    """Use the client's own connection again. No other may replace it, so it isn't `reused` to the session."""
    client.request.upstream = origin.upstream
    if origin.upstream is not None:
        origin.upstream.acquire()
    client.counts[ORIGIN_CONNECTIONS_REUSED] += 1
    client.attach_origin(origin)
    return client.session.opened(False, client.loop.now, None, origin.hop)


@isolated
def _on_dialled(
    client: ClientConnection, command: Open, result: socket.socket | Failure, epoch: int, dial: Dial
) -> None:
    client.pending_origin = None
    now = client.loop.now
    if isinstance(result, Failure):
        client.execute(client.failed(result))
    else:
        origin = OriginConnection(result, _key_of(command.target, dial.source), epoch, dial.reported)
        origin.leaves_from(dial.source, client.context.dialer.source)
        if client.context.lists.places:
            origin.place = client.context.lists.place_of(result)
        origin.readable = bool(dial.mask & READABLE)  # it may have spoken first, or ended
        if client.context.debug:
            trace.note_peer(client.id, result)
        client.attach_origin(origin)
        client.origin_ended = bool(dial.mask & ENDED)
        address = endpoint_of(result.getsockname()) if command.with_address else None
        client.execute(client.session.opened(False, now, address))
    client.pump()


# --- what SOCKS has besides ---


def listen(client: ClientConnection, command: Listen) -> list[Command] | None:
    """Begin to accept one connection."""
    client.request.target = command.target
    refused = _refused_directly(client)
    if refused is not None:
        return refused
    context = client.context
    judge = client.subject.judge_directly(context, command.target)
    client.pending_origin = BindListener(
        context.dialer,
        command.target,
        _own_address(client),
        partial(_on_listening, client),
        partial(_on_accepted, client),
        client,
        context.own_rules(client.meter),
        judge,
        source_of(client, None if judge is None else judge.by_name()),
    )
    return None


def _refused_directly(client: ClientConnection) -> list[Command] | None:
    """As `_refused`, of what no upstream can serve."""
    refused = _refused(client)
    if refused is None and client.context.upstreams is not None:
        return client.failed(failures.NOT_THROUGH_UPSTREAMS)
    return refused


@isolated
def _on_listening(client: ClientConnection, address: Endpoint) -> None:
    client.execute(client.session.opened(False, client.loop.now, address))
    client.pump()


@isolated
def _on_accepted(client: ClientConnection, result: tuple[socket.socket, Endpoint] | Failure) -> None:
    client.pending_origin = None
    if isinstance(result, Failure):
        client.execute(client.failed(result))
    else:
        sock, peer = result
        origin = OriginConnection(sock, peer)
        origin.readable = True  # it may have spoken first
        client.attach_origin(origin)
        client.execute(client.session.opened(False, client.loop.now, peer))
    client.pump()


def associate(client: ClientConnection, _command: Associate) -> list[Command]:
    """Make the socket that receives the client's datagrams."""
    refused = _refused_directly(client)
    if refused is not None:
        return refused
    try:
        client.datagrams = relay_socket(_own_address(client))
    except OSError as error:
        client.context.dialer.on_problem("datagrams", f"no socket for datagrams: {error}")
        return client.failed(failures.OUT_OF_DESCRIPTORS)
    return client.session.opened(False, client.loop.now, endpoint_of(client.datagrams.getsockname()))


def _own_address(client: ClientConnection) -> Endpoint:
    """The proxy's own address of the client's connection."""
    return endpoint_of(client.sock.getsockname())
