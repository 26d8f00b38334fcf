"""The parents of one proxy: what one configuration says of them, and what is known of each.

A changed configuration is a new object that takes over what is known of the parents that stay.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from actors.bus.loop import Loop
from actors.bus.messages.problems import UPSTREAM_DOWN, UPSTREAMS_UNREACHABLE
from actors.bus.messages.specs import AccessSpec, EgressSpec
from actors.bus.messages.upstreams import Upstreams as UpstreamsTold
from actors.bus.messages.upstreams import UpstreamsSpec, UpstreamState
from actors.forwarding.access.policy import AccessPolicy
from actors.forwarding.access.rules import Rules
from actors.forwarding.net.connection_pool import ConnectionPool, OriginConnection
from actors.forwarding.net.dialer import Dialer
from actors.forwarding.protocols.http.targets import Authority, authority_of_name
from actors.forwarding.protocols.http.via import extended_via
from actors.forwarding.proxy_policy import ProxyPolicy
from actors.forwarding.upstreams.attempt import Plan
from actors.forwarding.upstreams.balancing import new_choice
from actors.forwarding.upstreams.handshake import REFUSES_US, Blame, Handshake, ParentFailed
from actors.forwarding.upstreams.health_checks import HealthChecks
from actors.forwarding.upstreams.http_connect import ConnectHandshake, credentials_field
from actors.forwarding.upstreams.proxy_header import preface_for
from actors.forwarding.upstreams.route import OnRouted, Route, Wanted
from actors.forwarding.upstreams.socks_connect import Socks4Handshake, Socks5Handshake
from actors.forwarding.upstreams.tls_client import context_for
from actors.forwarding.upstreams.upstream import DOWN, UP, Parent, identity
from actors.net.egress_guard import UpstreamGuard
from actors.net.transport import Transport
from actors.problems import Problems


class UpstreamContext(NamedTuple):
    """What the upstreams need of the actor. `dialer` is the one to targets, `policy` returns the one in effect."""

    loop: Loop
    pool: ConnectionPool
    dialer: Dialer
    problems: Problems
    clock: Callable[[], float]
    policy: Callable[[], ProxyPolicy]
    on_crash: Callable[[str, Exception], None]


class Upstreams:
    """All that a `ClientConnection` needs to go through a parent: `route`. `stop` ends the checks."""

    def __init__(
        self, context: UpstreamContext, spec: UpstreamsSpec, previous: Upstreams | None, egress: EgressSpec
    ) -> None:
        self.loop = context.loop
        self.pool = context.pool
        self.spec = spec
        self._shared = context
        self._problems = context.problems
        known = {} if previous is None else {identity(parent.spec): parent for parent in previous.parents}
        self.parents: list[Parent] = []
        for index, each in enumerate(spec.parents):
            parent = known.pop(identity(each), None)
            if parent is None:
                parent = Parent(each, index, self.loop.now)
            parent.renewed(each, index)
            self.parents.append(parent)
        self._choice = new_choice(spec.policy, self.parents)
        self._contexts: dict[tuple[bool, str | None], ssl.SSLContext] = {}
        self._authorities: dict[str, Authority] = {}
        self._unreachable: bool = previous is not None and previous._unreachable
        self.dialer = Dialer(self.loop, context.dialer.resolver, context.dialer.connector)
        self.dialer.source = context.dialer.source
        self.announces = any(each.proxy_protocol is not None for each in spec.parents)
        """Does any of them want the client's address in the PROXY protocol?"""
        self.guard_by(egress)
        self.dialer.on_trouble = context.dialer.on_trouble
        self.dialer.on_crash = partial(context.on_crash, "a connection to an upstream")
        self._checks = HealthChecks(self) if spec.check_enabled else None

    def guard_by(self, egress: EgressSpec) -> None:
        """What `egress` says of the addresses of upstreams holds for all connections to them from now on."""
        self.dialer.judge = AccessPolicy(UpstreamGuard(egress), Rules(AccessSpec()))

    def stop(self) -> None:
        """Another object takes over."""
        if self._checks is not None:
            self._checks.stop()

    def succeeded_by(self, successor: Upstreams | None) -> None:
        """It has taken over, or there are no parents any more: what was said of those that are gone is over."""
        kept = [] if successor is None else successor.parents
        for parent in self.parents:
            if parent not in kept:
                self._problems.ends(UPSTREAM_DOWN, f"the upstream {parent.name} was removed", parent.name)
        if successor is None:
            self._problems.ends(UPSTREAMS_UNREACHABLE, "there are no upstreams any more")

    @property
    def timeout(self) -> float:
        """Seconds that a request may wait for its connection: `settings.timeout`."""
        return self._shared.policy().session.timeout

    def access(self) -> AccessPolicy:
        """Which targets a parent may be asked for."""
        return self._shared.policy().access

    def route(self, wanted: Wanted, done: OnRouted) -> Route:
        """Begin a way to `wanted.target`."""
        return Route(self, wanted, done)

    # --- what a route asks ---

    def choose(self, key: str, tried: Sequence[Parent]) -> Parent | None:
        """The next parent by the policy, among those that are up and not tried."""
        now = self.loop.now
        return self._choice.choose(key, lambda parent: parent.eligible(now) and parent not in tried)

    def longest_failed(self, tried: Sequence[Parent]) -> Parent | None:
        """The parent whose failure is longest ago."""
        left = (parent for parent in self.parents if parent not in tried)
        return min(left, key=lambda parent: parent.failed_at, default=None)

    def acquire(self, parent: Parent, wanted: Wanted) -> OriginConnection | None:
        """An idle connection through this parent that will do."""
        if parent.spec.proxy_protocol is not None:
            return None  # it was told of another client
        origin = self.pool.acquire(_pool_key(parent, wanted))
        if origin is not None:
            parent.taken()
        return origin

    def plan(self, parent: Parent, wanted: Wanted) -> Plan:
        """What a new connection through this parent takes. Raises `ParentFailed` when it can't be made so."""
        base = self.reaching(parent)
        preface = preface_for(parent.spec.proxy_protocol, wanted.ends)
        return base._replace(handshake=self._handshake(parent, wanted), preface=preface)

    def reaching(self, parent: Parent) -> Plan:
        """The way to the parent itself. Raises `ParentFailed` when its `ca_file` can't be used."""
        spec = parent.spec
        address = self._authorities.get(spec.host)
        if address is None or address.port != spec.port:
            address = self._authorities[spec.host] = authority_of_name(spec.host.encode("ascii"), spec.port)
        context = self._context(parent) if spec.protocol == "https" else None
        return Plan(address, self.spec.check_timeout, context=context, server_name=spec.server_name or spec.host)

    def connected(
        self, parent: Parent, wanted: Wanted, transport: Transport, epoch: int, reported: str
    ) -> OriginConnection:
        """The connection for the client."""
        origin = OriginConnection(transport, _pool_key(parent, wanted), epoch, reported)
        origin.announced = parent.spec.proxy_protocol is not None
        origin.readable = True  # what came behind the handshake gives no event any more
        origin.parent = parent
        if _forwards(parent, wanted):
            origin.hop = credentials_field(parent.spec.username, parent.spec.password)
        parent.taken()
        return origin

    def _handshake(self, parent: Parent, wanted: Wanted) -> Handshake | None:
        spec = parent.spec
        if _forwards(parent, wanted):
            return None
        if spec.protocol == "socks4":
            return Socks4Handshake(wanted.target, spec.username)
        if spec.protocol == "socks5":
            return Socks5Handshake(wanted.target, spec.username, spec.password)
        via = extended_via(wanted.via, 1, self._shared.policy().session.via)
        return ConnectHandshake(wanted.target, credentials_field(spec.username, spec.password), via)

    def _context(self, parent: Parent) -> ssl.SSLContext:
        kind = (parent.spec.verify, parent.spec.ca_file)
        if kind not in self._contexts:
            self._contexts[kind] = context_for(parent.spec)
        return self._contexts[kind]

    # --- what is heard of parents ---

    def succeeded(self, parent: Parent) -> None:
        """It did what was asked."""
        came_back = parent.succeeded(self.loop.now)
        if self._unreachable:  # also when the list was replaced since, and this parent was never down
            self._unreachable = False
            self._problems.ends(UPSTREAMS_UNREACHABLE, f"the upstream {parent.name} can be reached again")
        if came_back:
            self._problems.ends(UPSTREAM_DOWN, f"the upstream {parent.name} is up again", parent.name)

    def failed(self, parent: Parent, failed: ParentFailed) -> None:
        """It did not, in the way that `failed` says."""
        now = self.loop.now
        parent.refuses_us = failed.failure.kind == REFUSES_US
        if failed.blame is Blame.TARGET:
            self.succeeded(parent)
        elif failed.blame is Blame.UNCLEAR:
            if parent.doubted(now, failed.said):
                self._went_down(parent)
        elif failed.blame is Blame.PARENT and parent.failed(now, failed.said):
            self._went_down(parent)

    def _went_down(self, parent: Parent) -> None:
        detail = f"the upstream {parent.name} is down: {parent.last_error}"
        self._problems.begins(UPSTREAM_DOWN, detail, parent.name)
        if not self._unreachable and all(each.state == DOWN for each in self.parents):
            self._unreachable = True
            detail = f"none of the {len(self.parents)} upstreams can be reached; the last: {parent.last_error}"
            self._problems.begins(UPSTREAMS_UNREACHABLE, detail, serves=False)

    # --- what people ask ---

    def told(self) -> UpstreamsTold:
        """How all parents are."""
        clock = self._shared.clock() - self.loop.now
        return UpstreamsTold(tuple(_told(parent, clock) for parent in self.parents))

    def __repr__(self) -> str:
        up = sum(parent.state == UP for parent in self.parents)
        return f"<Upstreams, {self.spec.policy}: {up} of {len(self.parents)} are up>"


def _told(parent: Parent, clock: float) -> UpstreamState:
    """`clock` is what makes Unix seconds of the loop's."""
    return UpstreamState(
        name=parent.name,
        state=parent.state,
        since=parent.since + clock,
        active=parent.active,
        connections=parent.connections,
        failures=parent.failures,
        bytes_in=parent.bytes_in,
        bytes_out=parent.bytes_out,
        latency=None if parent.latency is None else round(parent.latency * 1000, 3),
        last_error=parent.last_error,
    )


def _forwards(parent: Parent, wanted: Wanted) -> bool:
    """Does the parent get the request itself, in absolute-form?"""
    return wanted.forward and parent.spec.protocol in ("http", "https")


def _pool_key(parent: Parent, wanted: Wanted) -> tuple[str, int]:
    """Connections that may serve for each other. No host name has a space."""
    if _forwards(parent, wanted):
        return f"parent {parent.index}", 0
    return f"parent {parent.index} {wanted.target.host}", wanted.target.port
