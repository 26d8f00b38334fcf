"""The commands that are questions: who is it, a connection to there, one from there, a socket for datagrams.

What cannot be answered at once is answered when it is known: the commands that the session gives for the answer are
performed then. What can be is answered by the return value, so that nothing comes between question and answer.
"""

from __future__ import annotations

import socket

from actors.counters import ORIGIN_CONNECTIONS_REUSED
from actors.forwarding.connections.bind_listener import BindListener
from actors.forwarding.connections.client_connection import ClientConnection
from actors.forwarding.connections.request_context import RequestContext
from actors.forwarding.connections.udp_association import relay_socket
from actors.forwarding.isolation import isolated
from actors.forwarding.net.connection_pool import OriginConnection
from actors.forwarding.net.dialer import ENDED, READABLE, Dial
from actors.forwarding.protocols import failures
from actors.forwarding.protocols.commands import Associate, Authorize, Command, Listen, Open
from actors.forwarding.protocols.failures import Failure
from actors.forwarding.reporting import trace
from actors.forwarding.upstreams.session_username import split_session
from actors.net.socks_wire import Endpoint, endpoint_of


class Check:
    """A check of credentials that is under way. It holds the client no longer than the client waits for it."""

    __slots__ = ("_asking", "_client", "client_ip", "commands")

    def __init__(self, client: ClientConnection) -> None:
        self._client: ClientConnection | None = client
        self._asking = True
        self.client_ip = client.client_ip
        self.commands: list[Command] | None = None
        """What follows, when the result was there at once."""

    @property
    def waits(self) -> bool:
        """See `asker.Requester`."""
        client = self._client
        return client is not None and client.pending_auth is self and client.waits

    def __call__(self, user: str | None) -> None:
        """The result: the user, or None for no."""
        client = self._end()
        # A result that comes too late must not be taken for that of a later request.
        if client is None or client.closed or not client.session.authorizing:
            return
        if self._asking:
            self.commands = _checked(client, user)
        else:
            _checked_late(client, user)

    def gone(self) -> None:
        """Nothing was checked, since the client did not wait any more when its turn came."""
        client = self._end()
        if client is not None:
            client.end("connection_terminated")

    def asked(self) -> None:
        """From now on the result is late, and what follows from it is performed."""
        self._asking = False

    def cancel(self) -> None:
        """The client has gone."""
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
    credentials = client.context.authenticator
    assert credentials is not None
    check = client.pending_auth = Check(client)
    tester = client.request.tester = client.context.testers.take(command.user, command.password)
    if tester is not None:
        check(tester.user)
    elif client.context.policy.session.wants_credentials:
        credentials.check(_account(client, command.user), command.password, check, check, check.gone)
    else:
        _account(client, command.user)
        check("")
    check.asked()
    return check.commands


def _checked(client: ClientConnection, user: str | None) -> list[Command]:
    context = client.context
    if user is None and not context.policy.session.wants_credentials:
        user = ""  # nobody has to be known here, or not any more
    if context.debug:
        trace.note(
            client.id,
            "authenticated as %r" if user is not None else "wrong or no credentials%s",
            user or "",
        )
    request = client.request
    request.user = user or ""
    request.verified_hash = None if context.authenticator is None else context.authenticator.stored(request.user)
    return client.session.authorized(user, client.loop.now)


@isolated
def _checked_late(client: ClientConnection, user: str | None) -> None:
    client.execute(_checked(client, user))
    client.pump()


def _account(client: ClientConnection, user: str | None) -> str | None:
    """The account in a user name; a session word in it chooses among upstreams."""
    context = client.context
    if (
        user is None
        or context.upstreams is None
        or (not context.policy.session.accepts_optional_user and context.is_known_user(user))
    ):
        return user
    account, word = split_session(user)
    client.request.session_word = None if word is None else f"{account}\0{word}"
    return account


def open_origin(client: ClientConnection, command: Open) -> list[Command] | None:
    """A connection from the pool at once, else one that is made."""
    request, context = client.request, client.context
    target = request.target = command.target
    request.parent = None  # the one that was tried before, if it is sent again
    refused = _refused(client)
    if refused is not None:
        return refused
    if client.bound is not None:
        bound = client.bound.take(request.served, command.forward)
        if bound is not None:
            return _go_on_with(client, bound)
        command = command._replace(fresh=True)
    if context.upstreams is not None:
        from actors.forwarding.connections.upstream_handlers import (
            open_through_parent,  # only proxies with parents pay for it
        )

        return open_through_parent(client, command)
    origin = None if command.fresh else context.pool.acquire((target.host, target.port))
    if origin is not None:
        client.counts[ORIGIN_CONNECTIONS_REUSED] += 1
        if context.debug:
            trace.note(client.id, "to %s by a kept connection", target.text.decode("ascii"))
        client.attach_origin(origin)
        return client.session.opened(True, client.loop.now)
    epoch = context.pool.epoch
    dial = context.dialer.dial(target, lambda result: _dialled(client, command, result, epoch, dial), client)
    client.pending_origin = dial
    return None


def _go_on_with(client: ClientConnection, origin: OriginConnection) -> list[Command]:
    """The client's own connection, once more. No other may take its place, so it isn't `reused` to the session."""
    client.request.parent = origin.parent
    if origin.parent is not None:
        origin.parent.taken()
    client.counts[ORIGIN_CONNECTIONS_REUSED] += 1
    client.attach_origin(origin)
    return client.session.opened(False, client.loop.now, None, origin.hop)


def _refused(client: ClientConnection) -> list[Command] | None:
    """What follows when rules, limits or the account don't let the request go on; else None, and it is counted."""
    if client.access is not client.context.policy.access:
        unwanted = _unwanted(client)
        if unwanted is not None:
            return client.session.failed(unwanted, client.loop.now)
    request = client.request
    if not request.admitted:
        if not _still_good(client, request):
            return client.session.failed(failures.CREDENTIALS_WANTED, client.loop.now)
        request.admitted = True
    meter = client.meter
    if meter is None:
        limits = client.context.limits
        if not limits.active:
            return None
        meter = client.meter = limits.new_meter()  # there were no limits when it came
        assert meter is not None
    failure = meter.admit(request.user, client)
    return None if failure is None else client.session.failed(failure, client.loop.now)


def _unwanted(client: ClientConnection) -> Failure | None:
    """What the rules have against the client, that have changed since it was let in."""
    judge = client.context.policy.access
    assert judge is not None
    judgement = judge.client(client.client_ip)
    client.report_only_reason = judgement.reason
    if judgement.failure is None:
        client.access = judge
    return judgement.failure


def _still_good(client: ClientConnection, request: RequestContext) -> bool:
    """Is the user still good by what is in force now?

    Between the greeting of SOCKS and its request credentials may have come to be wanted, the user may have gone, or
    have got another password.
    """
    credentials = client.context.authenticator
    if credentials is None or not client.context.policy.session.wants_credentials or request.tester is not None:
        return True
    return request.verified_hash is not None and credentials.stored(request.user) == request.verified_hash


@isolated
def _dialled(client: ClientConnection, command: Open, result: socket.socket | Failure, epoch: int, dial: Dial) -> None:
    client.pending_origin = None
    now = client.loop.now
    if isinstance(result, Failure):
        client.execute(client.session.failed(result, now))
    else:
        origin = OriginConnection(result, (command.target.host, command.target.port), epoch, dial.reported)
        origin.readable = bool(dial.mask & READABLE)  # it may have spoken first, or ended
        if client.context.debug:
            trace.note_peer(client.id, result)
        client.attach_origin(origin)
        client.origin_ended = bool(dial.mask & ENDED)
        address = endpoint_of(result.getsockname()) if command.with_address else None
        client.execute(client.session.opened(False, now, address))
    client.pump()


def listen(client: ClientConnection, command: Listen) -> list[Command] | None:
    """Wait for a connection that comes in."""
    client.request.target = command.target
    refused = _refused(client)
    if refused is not None:
        return refused
    if client.context.upstreams is not None:
        return client.session.failed(failures.NOT_THROUGH_PARENTS, client.loop.now)

    def listening(address: Endpoint) -> None:
        _listening(client, address)

    def came_in(result: tuple[socket.socket, Endpoint] | Failure) -> None:
        _came_in(client, result)

    control = _own_address(client)
    client.pending_origin = BindListener(client.context.dialer, command.target, control, listening, came_in, client)
    return None


@isolated
def _listening(client: ClientConnection, address: Endpoint) -> None:
    client.execute(client.session.opened(False, client.loop.now, address))
    client.pump()


@isolated
def _came_in(client: ClientConnection, result: tuple[socket.socket, Endpoint] | Failure) -> None:
    client.pending_origin = None
    if isinstance(result, Failure):
        client.execute(client.session.failed(result, client.loop.now))
    else:
        sock, peer = result
        origin = OriginConnection(sock, peer)
        origin.readable = True  # it may have spoken first
        client.attach_origin(origin)
        client.execute(client.session.opened(False, client.loop.now, peer))
    client.pump()


def associate(client: ClientConnection, _command: Associate) -> list[Command]:
    """Make the socket to which the client sends its datagrams."""
    refused = _refused(client)
    if refused is not None:
        return refused
    if client.context.upstreams is not None:
        return client.session.failed(failures.NOT_THROUGH_PARENTS, client.loop.now)
    try:
        client.datagrams = relay_socket(_own_address(client))
    except OSError as error:
        client.context.dialer.on_trouble("datagrams", f"no socket for datagrams: {error}")
        return client.session.failed(failures.out_of_descriptors(), client.loop.now)
    return client.session.opened(False, client.loop.now, endpoint_of(client.datagrams.getsockname()))


def _own_address(client: ClientConnection) -> Endpoint:
    """The proxy's address of the client's connection."""
    assert isinstance(client.sock, socket.socket)
    return endpoint_of(client.sock.getsockname())
