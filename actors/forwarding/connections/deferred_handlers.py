"""Handlers of commands whose outcome may come later: authenticate, connect, accept a connection, relay datagrams.

An outcome that is known at once is reported to the session in the same call, and the commands that follow are returned,
so that nothing comes in between. A later one is reported when it is known, and the commands are executed then.
"""

from __future__ import annotations

import socket
from functools import partial
from typing import TYPE_CHECKING

from actors.bus.messages.specs import DIRECT
from actors.counters import ORIGIN_CONNECTIONS_REUSED
from actors.forwarding.access.rules import OwnRules
from actors.forwarding.connections.allowed_now import peer_of
from actors.forwarding.connections.bind_listener import BindListener
from actors.forwarding.connections.client_connection import ClientConnection
from actors.forwarding.connections.named_user import account_in, unknown_parameters
from actors.forwarding.connections.request_context import RequestContext
from actors.forwarding.connections.udp_targets import relay_socket
from actors.forwarding.connections.upstream_handlers import bound_from, key_of, source_of
from actors.forwarding.isolation import isolated
from actors.forwarding.limits.meter import account_of
from actors.forwarding.net.connection_pool import OriginConnection
from actors.forwarding.net.dialer import ENDED, READABLE, Dial
from actors.forwarding.protocols import failures
from actors.forwarding.protocols.commands import Associate, Authorize, Command, Listen, Open
from actors.forwarding.protocols.failures import Failure
from actors.forwarding.protocols.http.targets import Authority
from actors.forwarding.reporting import trace
from actors.net.socks_wire import Endpoint, endpoint_of

if TYPE_CHECKING:
    from actors.accounts.records import CredentialRecord
    from actors.forwarding.policies.judge import Judge
    from actors.forwarding.upstreams.upstream_set import UpstreamSet


class Check:
    """A check of credentials that is under way. It references the client only while the client waits for it."""

    __slots__ = ("_client", "_immediate", "client_ip", "commands")

    def __init__(self, client: ClientConnection) -> None:
        self._client: ClientConnection | None = client
        self._immediate = True
        self.client_ip = client.client_ip
        self.commands: list[Command] | None = None
        """The commands that follow from a result that was known at once."""

    @property
    def waits(self) -> bool:
        """See `Requester`."""
        client = self._client
        return client is not None and client.pending_auth is self and client.waits

    def __call__(
        self, user: str | None, credential: CredentialRecord | None = None, failure: Failure | None = None, /
    ) -> None:
        """The result: the user, or None for no, and the credential if one was used; or why there is no result."""
        client = self._end()
        # A late result must not count for a later request.
        if client is None or client.closed or not client.session.authorizing:
            return
        if self._immediate:
            self.commands = _on_result(client, user, credential, failure)
        else:
            _on_late_result(client, user, credential, failure)

    def gone(self) -> None:
        """End the connection: nothing was checked, since the client no longer waited at its turn."""
        client = self._end()
        if client is not None:
            client.end("connection_terminated")

    def defer(self) -> None:
        """Execute what follows from the result when it comes, instead of returning it."""
        self._immediate = False

    def cancel(self) -> None:
        """Ignore the result: the client has gone."""
        self._client = None

    def _end(self) -> ClientConnection | None:
        """The client, if it is still this check that it waits for."""
        client, self._client = self._client, None
        if client is None or client.pending_auth is not self:
            return None
        client.pending_auth = None
        return client


def authorize(client: ClientConnection, command: Authorize) -> list[Command] | None:
    """Have the credentials checked; `authorized` may be called at once or later."""
    wanted = client.context.client_tls
    if wanted is not None and command.user is None and client.context.policy.session.wants_credentials:
        from actors.forwarding.connections.certificate_handler import authorize_by_certificate

        commands = authorize_by_certificate(client, wanted)
        if commands is not None:
            return commands
    authenticator = client.context.authenticator
    check = client.pending_auth = Check(client)
    tester = client.request.tester = client.context.testers.redeem(command.user, command.password)
    if tester is not None:
        check(tester.user)
    elif client.context.policy.session.wants_credentials:
        user = command.user if client.context.names is None else account_in(client, command)
        client.request.name_alone = user if command.password is None else None
        authenticator.check(user, command.password, check, check, check.gone, command.target)
    else:
        if client.context.names is not None:
            account_in(client, command)
        check("")
    check.defer()
    return check.commands


def _on_result(
    client: ClientConnection, user: str | None, credential: CredentialRecord | None, failure: Failure | None
) -> list[Command]:
    context = client.context
    if user is None and not context.policy.session.wants_credentials:
        user, failure = "", None  # no credentials are wanted here, or not any more
    if client.request.parameters.unknown and user is not None:
        failure = unknown_parameters(client)
    if failure is not None:
        return client.session.unchecked(failure, client.loop.now)
    if context.debug:
        trace.note(
            client.id,
            "authenticated as %r" if user is not None else "wrong or no credentials%s",
            user or "",
        )
    request = client.request
    request.user, request.credential = user or "", credential
    request.verified_hash = context.authenticator.stored(request.user)
    return client.session.authorized(user, client.loop.now)


@isolated
def _on_late_result(
    client: ClientConnection, user: str | None, credential: CredentialRecord | None, failure: Failure | None
) -> None:
    client.execute(_on_result(client, user, credential, failure))
    client.pump()


def open_origin(client: ClientConnection, command: Open) -> list[Command] | None:
    """Take a connection from the pool, or begin to make one."""
    request, context = client.request, client.context
    request.target = command.target
    request.upstream = None  # the one that was tried before, if it is sent again
    headers = context.policy.headers
    if headers is not None and command.forward and not request.admitted:
        client.session.change_head(headers.change(client.client_ip, command.target.text))
    refused = _refusal(client)
    if refused is not None:
        return refused
    if context.policies is not None or (client.meter is not None and context.judges(account_of(client.meter))):
        from actors.forwarding.connections.policy_handlers import open_judged  # only proxies with policies pay for it

        return open_judged(client, command)
    return open_way(client, command, context.upstreams)


def open_way(
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
        if bound is not None and bound_from(client, bound, source) and _may_be_reused(client, bound, own, judge):
            return _reuse_bound(client, bound)
        command = Open(target, True, command.with_address, command.forward, command.via)
    if upstreams is not None:
        from actors.forwarding.connections.upstream_handlers import (
            open_through_upstream,  # only proxies with upstreams pay for it
        )

        return open_through_upstream(client, command, upstreams, judge, source)
    key = (target.host, target.port) if source is None else key_of(target, source)
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


def _may_be_reused(
    client: ClientConnection, origin: OriginConnection, own: OwnRules, judge: Judge | None = None
) -> bool:
    """Whether own rules and policies allow a kept connection, which may have been made for others; else it goes back.

    One that serves this client alone is closed then.
    """
    target = client.request.target
    if (not own and judge is None) or target is None:
        return True
    access = client.context.policy.access.narrowed(own, judge)
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
    upstreams = client.context.upstreams_of(judge.verdict.pool) if judge.way(judge.verdict) != DIRECT else None
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


def _refusal(client: ClientConnection) -> list[Command] | None:
    """The commands that follow when rules, credentials or limits refuse the request; None when it is admitted."""
    policy = client.context.policy
    if client.access is not policy.access:
        denied = _denied_now(client)
        if denied is not None:
            return client.failed(denied)
    request = client.request
    if not request.admitted:
        if policy.session.wants_credentials and not _credentials_unchanged(client, request):
            unreadable = client.context.authenticator.is_unreadable(request.user)
            failed = failures.ACCOUNTS_UNAVAILABLE if unreadable else failures.CREDENTIALS_WANTED
            return client.failed(failed)
        request.admitted = True
    meter = client.meter
    if meter is None:
        context = client.context
        if not (context.limits.active or context.is_shared_account(request.user)):
            return None
        meter = client.metered()
    meter.certificate = None if request.certificate is None else request.certificate.entries
    meter.by_name = request.by_name
    failure = meter.admit(request.user, client, request.credential)
    return None if failure is None else client.failed(failure)


def _denied_now(client: ClientConnection) -> Failure | None:
    """Why the rules deny the client, now that they have changed since it was accepted."""
    access = client.context.policy.access
    decision = access.client(client.client_ip)
    client.reported = decision.reported
    if decision.failure is None:
        client.access = access
    return decision.failure


def _credentials_unchanged(client: ClientConnection, request: RequestContext) -> bool:
    """Whether the credentials are still valid in the present configuration, which wants some.

    Between the greeting of SOCKS and its request the proxy may have come to want credentials, and the user may have
    been removed or got another password.
    """
    if request.tester is not None:
        return True
    authenticator = client.context.authenticator
    if request.certificate is not None:
        from actors.forwarding.connections.certificate_handler import still_certified

        return still_certified(client, request.certificate, request.user)
    if request.credential is not None:
        return authenticator.knows(request.user) and authenticator.holds(request.credential)
    return authenticator.is_current(request.user, request.verified_hash)


@isolated
def _on_dialled(
    client: ClientConnection, command: Open, result: socket.socket | Failure, epoch: int, dial: Dial
) -> None:
    client.pending_origin = None
    now = client.loop.now
    if isinstance(result, Failure):
        client.execute(client.failed(result))
    else:
        origin = OriginConnection(result, key_of(command.target, dial.source), epoch, dial.reported)
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


def listen(client: ClientConnection, command: Listen) -> list[Command] | None:
    """Begin to accept one connection."""
    client.request.target = command.target
    refused = _refusal(client)
    if refused is not None:
        return refused
    if client.context.upstreams is not None:
        return client.failed(failures.NOT_THROUGH_UPSTREAMS)
    on_listening, on_accepted = partial(_on_listening, client), partial(_on_accepted, client)
    control = _own_address(client)
    judge = _judge_of(client, command.target) if client.context.judges(account_of(client.meter)) else None
    client.pending_origin = BindListener(
        client.context.dialer,
        command.target,
        control,
        on_listening,
        on_accepted,
        client,
        client.context.own_rules(client.meter),
        judge,
        source_of(client, None if judge is None else judge.by_name()),
    )
    return None


def _judge_of(client: ClientConnection, target: Authority) -> Judge:
    from actors.forwarding.connections.policy_handlers import judge_directly  # only proxies with policies pay for it

    return judge_directly(client, target)


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
    refused = _refusal(client)
    if refused is not None:
        return refused
    if client.context.upstreams is not None:
        return client.failed(failures.NOT_THROUGH_UPSTREAMS)
    try:
        client.datagrams = relay_socket(_own_address(client))
    except OSError as error:
        client.context.dialer.on_problem("datagrams", f"no socket for datagrams: {error}")
        return client.failed(failures.OUT_OF_DESCRIPTORS)
    return client.session.opened(False, client.loop.now, endpoint_of(client.datagrams.getsockname()))


def _own_address(client: ClientConnection) -> Endpoint:
    """The proxy's own address of the client's connection."""
    return endpoint_of(client.sock.getsockname())
