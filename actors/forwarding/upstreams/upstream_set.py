"""The upstreams of one proxy in one configuration, with the state of each.

A changed configuration is a new object that takes over the state of the upstreams that stay.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from actors.bus.loop import Loop
from actors.bus.messages.problems import UPSTREAM_DOWN, UPSTREAMS_UNREACHABLE
from actors.bus.messages.specs import AccessSpec, EgressSpec
from actors.bus.messages.upstreams import Upstreams as UpstreamStates
from actors.bus.messages.upstreams import UpstreamsSpec, UpstreamState
from actors.forwarding.access.policy import AccessPolicy
from actors.forwarding.access.rules import Rules
from actors.forwarding.net.connection_pool import ConnectionPool, OriginConnection
from actors.forwarding.net.dialer import Dialer
from actors.forwarding.protocols.failures import CREDENTIALS_REJECTED
from actors.forwarding.protocols.http.targets import Authority, authority_of_name
from actors.forwarding.protocols.http.via import extended_via
from actors.forwarding.proxy_policy import ProxyPolicy
from actors.forwarding.upstream import DOWN, UP, Upstream, identity
from actors.forwarding.upstreams.attempt import Plan
from actors.forwarding.upstreams.auth_probe import WANTS_OTHERS
from actors.forwarding.upstreams.balancing import new_policy
from actors.forwarding.upstreams.handshake import Blame, Handshake, UpstreamFailed, wrong_credentials
from actors.forwarding.upstreams.health_checks import HealthChecks
from actors.forwarding.upstreams.http_connect import ConnectHandshake, credentials_field
from actors.forwarding.upstreams.proxy_header import preface_for
from actors.forwarding.upstreams.route import OnRouted, Route, Wanted
from actors.forwarding.upstreams.socks_connect import Socks4Handshake, Socks5Handshake
from actors.forwarding.upstreams.tls_client import context_for
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


class UpstreamSet:
    """`route` begins a connection through one of them; `stop` ends the checks."""

    def __init__(
        self, context: UpstreamContext, spec: UpstreamsSpec, previous: UpstreamSet | None, egress: EgressSpec
    ) -> None:
        self.loop = context.loop
        self.pool = context.pool
        self.spec = spec
        self._shared = context
        self._problems = context.problems
        known = {} if previous is None else {identity(upstream.spec): upstream for upstream in previous.members}
        self.members: list[Upstream] = []
        for index, each in enumerate(spec.entries):
            upstream = known.pop(identity(each), None)
            if upstream is None:
                upstream = Upstream(each, index, self.loop.now)
            upstream.reconfigure(each, index)
            self.members.append(upstream)
        self._policy = new_policy(spec.policy, self.members)
        self._contexts: dict[tuple[bool, str | None], ssl.SSLContext] = {}
        self._authorities: dict[str, Authority] = {}
        self._unreachable: bool = previous is not None and previous._unreachable
        self.dialer = Dialer(self.loop, context.dialer.resolver, _access(egress), context.dialer.connector)
        self.dialer.source = context.dialer.source
        self.announces = any(each.proxy_protocol is not None for each in spec.entries)
        """Whether any of them wants the client's address in a PROXY protocol header."""
        self.dialer.on_problem = context.dialer.on_problem
        self.dialer.on_crash = partial(context.on_crash, "a connection to an upstream")
        self._checks = HealthChecks(self)

    def guard_by(self, egress: EgressSpec) -> None:
        """Apply what `egress` says of the addresses of upstreams to new connections."""
        self.dialer.access = _access(egress)

    def stop(self) -> None:
        """End the checks: another object takes over."""
        self._checks.stop()

    def succeeded_by(self, successor: UpstreamSet | None) -> None:
        """End the reported problems of upstreams that the successor, None without upstreams, no longer has."""
        kept = [] if successor is None else successor.members
        for upstream in self.members:
            if upstream not in kept:
                self._problems.ends(UPSTREAM_DOWN, f"the upstream {upstream.name} was removed", upstream.name)
        if successor is None:
            self._problems.ends(UPSTREAMS_UNREACHABLE, "there are no upstreams any more")

    @property
    def timeout(self) -> float:
        """Seconds that a request may wait for its connection: `settings.timeout`."""
        return self._shared.policy().session.timeout

    def access(self) -> AccessPolicy:
        """Which targets may be reached through an upstream."""
        return self._shared.policy().access

    def route(self, wanted: Wanted, done: OnRouted) -> Route:
        """Begin a connection to `wanted.target`."""
        return Route(self, wanted, done)

    # --- for routes ---

    def choose(self, key: str, tried: Sequence[Upstream]) -> Upstream | None:
        """The next upstream by the policy, among those that are up and not tried."""
        now = self.loop.now
        return self._policy.choose(key, lambda upstream: upstream.eligible(now) and upstream not in tried)

    def longest_failed(self, tried: Sequence[Upstream]) -> Upstream | None:
        """The upstream whose failure is longest ago."""
        left = (upstream for upstream in self.members if upstream not in tried)
        return min(left, key=lambda upstream: upstream.failed_at, default=None)

    def acquire(self, upstream: Upstream, wanted: Wanted) -> OriginConnection | None:
        """An idle connection through this upstream that will do."""
        if upstream.spec.proxy_protocol is not None:
            return None  # its header names another client
        origin = self.pool.acquire(_pool_key(upstream, wanted))
        if origin is not None:
            upstream.acquire()
        return origin

    def plan(self, upstream: Upstream, wanted: Wanted) -> Plan:
        """What a new connection through this upstream takes. Raises `UpstreamFailed` when it can't be made so."""
        base = self.reaching(upstream)
        preface = preface_for(upstream.spec.proxy_protocol, wanted.ends)
        return base._replace(handshake=self._handshake(upstream, wanted), preface=preface)

    def reaching(self, upstream: Upstream) -> Plan:
        """The way to the upstream itself. Raises `UpstreamFailed` when its `ca_file` can't be used."""
        spec = upstream.spec
        address = self._authorities.get(spec.host)
        if address is None or address.port != spec.port:
            address = self._authorities[spec.host] = authority_of_name(spec.host.encode("ascii"), spec.port)
        context = self._context(upstream) if spec.protocol == "https" else None
        return Plan(address, self.spec.check_timeout, context=context, server_name=spec.server_name or spec.host)

    def connected(
        self, upstream: Upstream, wanted: Wanted, transport: Transport, epoch: int, reported: str
    ) -> OriginConnection:
        """The connection for the client."""
        origin = OriginConnection(transport, _pool_key(upstream, wanted), epoch, reported)
        origin.announced = upstream.spec.proxy_protocol is not None
        origin.readable = True  # what came behind the handshake causes no event any more
        origin.upstream = upstream
        if _forwards(upstream, wanted):
            origin.hop = credentials_field(upstream.spec.username, upstream.spec.password)
        upstream.acquire()
        return origin

    def _handshake(self, upstream: Upstream, wanted: Wanted) -> Handshake | None:
        spec = upstream.spec
        if _forwards(upstream, wanted):
            return None
        if spec.protocol == "socks4":
            return Socks4Handshake(wanted.target, spec.username)
        if spec.protocol == "socks5":
            return Socks5Handshake(wanted.target, spec.username, spec.password)
        via = extended_via(wanted.via, 1, self._shared.policy().session.via)
        return ConnectHandshake(wanted.target, credentials_field(spec.username, spec.password), via)

    def _context(self, upstream: Upstream) -> ssl.SSLContext:
        kind = (upstream.spec.verify, upstream.spec.ca_file)
        if kind not in self._contexts:
            self._contexts[kind] = context_for(upstream.spec)
        return self._contexts[kind]

    # --- outcomes ---

    def succeeded(self, upstream: Upstream) -> None:
        """Record a success, and end the problems that are over with it."""
        came_back = upstream.succeeded(self.loop.now)
        if self._unreachable:  # also when the list was replaced since, and this upstream was never down
            self._unreachable = False
            self._problems.ends(UPSTREAMS_UNREACHABLE, f"the upstream {upstream.name} can be reached again")
        if came_back:
            self._problems.ends(UPSTREAM_DOWN, f"the upstream {upstream.name} is up again", upstream.name)

    def failed(self, upstream: Upstream, failed: UpstreamFailed) -> None:
        """Record a failure by whose fault it is."""
        now = self.loop.now
        upstream.rejects_credentials = failed.failure.kind == CREDENTIALS_REJECTED
        if failed.blame is Blame.TARGET:
            self.succeeded(upstream)
        elif failed.blame is Blame.UNCLEAR:
            if upstream.record_ambiguous_failure(now, failed.cause):
                self._went_down(upstream)
        elif failed.blame is Blame.UPSTREAM and upstream.failed(now, failed.cause):
            self._went_down(upstream)

    def responded_407(self, upstream: Upstream) -> None:
        """Record that the response to a request in absolute-form was 407.

        Origins can send one, too, so clients could bring down any upstream: a request that no origin gets shows whose
        it was. Until then the upstream is left out.
        """
        if upstream.state == DOWN:
            self.failed(upstream, wrong_credentials(WANTS_OTHERS))
            return
        upstream.doubt(self.loop.now, self.spec.check_timeout)
        self._checks.check_credentials(upstream)

    def _went_down(self, upstream: Upstream) -> None:
        detail = f"the upstream {upstream.name} is down: {upstream.last_error}"
        self._problems.begins(UPSTREAM_DOWN, detail, upstream.name)
        if not self._unreachable and all(each.state == DOWN for each in self.members):
            self._unreachable = True
            detail = f"none of the {len(self.members)} upstreams can be reached; the last: {upstream.last_error}"
            self._problems.begins(UPSTREAMS_UNREACHABLE, detail, serves=False)

    # --- views ---

    def states(self) -> UpstreamStates:
        """The state of each upstream."""
        clock = self._shared.clock() - self.loop.now
        return UpstreamStates(tuple(_state_of(upstream, clock) for upstream in self.members))

    def __repr__(self) -> str:
        up = sum(upstream.state == UP for upstream in self.members)
        return f"<UpstreamSet, {self.spec.policy}: {up} of {len(self.members)} are up>"


def _state_of(upstream: Upstream, clock: float) -> UpstreamState:
    """`clock` is the offset from the loop's clock to Unix seconds."""
    return UpstreamState(
        name=upstream.name,
        state=upstream.state,
        since=upstream.since + clock,
        active=upstream.active,
        connections=upstream.connections,
        failures=upstream.failures,
        bytes_in=upstream.bytes_in,
        bytes_out=upstream.bytes_out,
        latency=None if upstream.latency is None else round(upstream.latency * 1000, 3),
        last_error=upstream.last_error,
    )


def _forwards(upstream: Upstream, wanted: Wanted) -> bool:
    """Whether the upstream gets the request itself, in absolute-form."""
    return wanted.forward and upstream.spec.protocol in ("http", "https")


def _pool_key(upstream: Upstream, wanted: Wanted) -> tuple[str, int]:
    """Equal for connections of which one may serve for the other. No host name has a space."""
    if _forwards(upstream, wanted):
        return f"upstream {upstream.index}", 0
    return f"upstream {upstream.index} {wanted.target.host}", wanted.target.port


def _access(egress: EgressSpec) -> AccessPolicy:
    """Which addresses upstreams may have."""
    return AccessPolicy(UpstreamGuard(egress), Rules(AccessSpec()))
