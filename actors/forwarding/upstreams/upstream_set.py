"""The upstreams of one proxy in one configuration, with the state of each (`actors.pools.state`).

A changed configuration is a new object with the same upstreams, as far as they stay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from actors.bounded import keep
from actors.bus.loop import Loop
from actors.bus.messages.common import UPSTREAM_DOWN, UPSTREAMS_UNREACHABLE
from actors.bus.messages.specs import EgressSpec, UpstreamSpec, UpstreamsSpec, UpstreamState
from actors.bus.messages.specs import Upstreams as UpstreamStates
from actors.forwarding.access.policy import AccessPolicy
from actors.forwarding.access.username_parameters import Parameters
from actors.forwarding.net.connection_pool import ConnectionPool, OriginConnection
from actors.forwarding.net.dialer import Dialer
from actors.forwarding.protocols.failures import CREDENTIALS_REJECTED, Failure
from actors.forwarding.protocols.http.header_changes import extended_via
from actors.forwarding.proxy_policy import ProxyPolicy
from actors.forwarding.upstreams.attempt import AttemptPlan, AttemptPlanner, access_to_upstreams
from actors.forwarding.upstreams.balancing import STICKY, BalancingPolicy, new_policy
from actors.forwarding.upstreams.handshake import (
    Blame,
    Handshake,
    UpstreamFailed,
    preface_for,
    unusable,
    wrong_credentials,
)
from actors.forwarding.upstreams.health_checks import HealthChecks
from actors.forwarding.upstreams.http_connect import WANTS_OTHERS, ConnectHandshake, credentials_field
from actors.forwarding.upstreams.route import ATTEMPTS_MAX, NONE_LEFT, OnRouted, UpstreamRoute, Wanted, has_labels
from actors.forwarding.upstreams.sessions import UpstreamSessions
from actors.forwarding.upstreams.socks_connect import Socks4Handshake, Socks5Handshake
from actors.net.transport import Transport
from actors.pools.state import OwnStates, identity
from actors.pools.upstream import DOWN, UP, Upstream, target_mark
from actors.problems import ActiveProblems
from actors.state.choices import SharedChoices
from actors.state.live_state import LiveState

CACHED_LABELS = 256
"""Combinations of labels, each with a policy over the upstreams that have them."""


class UpstreamContext(NamedTuple):
    """What the upstreams need of the actor. `dialer` is the one to targets, `policy` returns the one in effect.

    `own` are the states of the proxy's own upstreams, `state` is what its workers have together.
    """

    loop: Loop
    pool: ConnectionPool
    dialer: Dialer
    problems: ActiveProblems
    clock: Callable[[], float]
    policy: Callable[[], ProxyPolicy]
    on_crash: Callable[[str, Exception], None]
    own: OwnStates
    state: LiveState


class UpstreamSet:
    """`route` begins a connection through one of them; `stop` ends the checks."""

    def __init__(
        self,
        context: UpstreamContext,
        spec: UpstreamsSpec,
        previous: UpstreamSet | None,
        egress: EgressSpec,
        name: str = "",
    ) -> None:
        """`name` is that of the pool, empty for the upstreams of the proxy itself."""
        self.name = name
        self.loop = context.loop
        self.pool = context.pool
        self.spec = spec
        self._shared = context
        self._problems = context.problems
        known = {} if previous is None else {identity(upstream.spec): upstream for upstream in previous.members}
        self.members: list[Upstream] = []
        for index, each in enumerate(spec.entries):
            upstream = self._member(each, index, known.get(identity(each)))
            upstream.reconfigure(each, index)
            self.members.append(upstream)
        self._policy = new_policy(spec.policy, self.members, context.state.worker)
        self._labelled: dict[frozenset[tuple[str, str]], BalancingPolicy] = {}
        before = None if previous is None else previous._sessions
        choices = SharedChoices(context.state, "upstreams", name) if before is None else before.choices
        self._sessions: UpstreamSessions = UpstreamSessions(self.members, choices, before)
        self._planner = AttemptPlanner()
        self._unreachable: bool = previous is not None and previous._unreachable
        shared = context.dialer
        access = access_to_upstreams(egress, spec.fetched)
        self.dialer = Dialer(self.loop, shared.resolver, access, shared.connector, shared.timers)
        self.dialer.source = context.dialer.source
        self.announces = any(each.proxy_protocol is not None for each in spec.entries)
        """Whether any of them wants the client's address in a PROXY protocol header."""
        self.dialer.on_problem = context.dialer.on_problem
        self.dialer.on_crash = partial(context.on_crash, "a connection to an upstream")
        self.attempts = ATTEMPTS_MAX
        self._checks = HealthChecks(self)
        for upstream in self.members:
            if upstream.state == DOWN and identity(upstream.spec) not in known:
                self._went_down(upstream)  # a process before this one has found that out

    def _member(self, spec: UpstreamSpec, index: int, known: Upstream | None) -> Upstream:
        """The upstream of this configuration: the known one, with what is known of it, or a new one."""
        if known is not None:
            return known
        return Upstream(spec, index, self._shared.own.slot(identity(spec), self.loop.now), self.loop.now)

    def _refresh(self) -> None:
        """Before a choice: see what other processes have found out."""

    def guard_by(self, egress: EgressSpec) -> None:
        """Apply what `egress` says of the addresses of upstreams to new connections."""
        self.dialer.access = access_to_upstreams(egress, self.spec.fetched)

    def stop(self) -> None:
        """End the checks: another object takes over."""
        self._checks.stop()

    def succeeded_by(self, successor: UpstreamSet | None) -> None:
        """End the reported problems of upstreams that the successor, None without upstreams, no longer has."""
        staying = set() if successor is None else set(successor.members)
        for upstream in self.members:
            if upstream not in staying:
                upstream.slot.part()  # who uses it still writes no line that may become another's
                self._shared.own.remove(upstream.slot)
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

    def route(self, wanted: Wanted, done: OnRouted) -> UpstreamRoute:
        """Begin a connection to `wanted.target`."""
        return UpstreamRoute(self, wanted, done)

    # --- for routes ---

    def choose(self, wanted: Wanted, tried: Sequence[Upstream]) -> Upstream | None:
        """The next upstream by session or policy, among those that match, are up and not tried."""
        self._refresh()
        now = self.loop.now

        def usable(upstream: Upstream) -> bool:
            is_ready = upstream.eligible(now) or (sticks and upstream.serves_sessions(now))
            return is_ready and upstream not in tried and wanted.matches(upstream)

        parameters = wanted.parameters
        if parameters.session is None and not parameters.rotate:
            sticks = self.spec.policy == STICKY
            return self._policy_for(parameters).choose(wanted.key, usable)
        sticks = False
        return self._sessions.choose(wanted.key, parameters, wanted.matches, usable, now, tried)

    def stays(self, wanted: Wanted) -> bool:
        """Whether the request is of a session that is not to be moved to another upstream."""
        if wanted.parameters.session is None:
            return False
        return self._sessions.stays(wanted.key, wanted.parameters, wanted.matches, self.loop.now)

    def _policy_for(self, parameters: Parameters) -> BalancingPolicy:
        """The policy over the upstreams with these labels: to pass over most of a long list costs milliseconds."""
        if not parameters.labels:
            return self._policy
        labels = frozenset(parameters.labels.items())
        known = self._labelled.get(labels)
        if known is None:
            members = [upstream for upstream in self.members if has_labels(parameters, upstream)]
            known = new_policy(self.spec.policy, members, self._shared.state.worker)
            if members:  # labels that no upstream has are without end
                keep(self._labelled, labels, known, CACHED_LABELS)
        return known

    def why_left_out(self, upstream: Upstream, parameters: Parameters) -> str:
        """Why it would not be chosen for a request with these parameters, empty if it may be; for people."""
        missing = parameters.labels.items() - set(upstream.spec.labels)
        if missing:
            return "it has not " + ", ".join(f"{name}={value}" for name, value in sorted(missing))
        return upstream.why_not_eligible(self.loop.now)

    def would_choose(self, parameters: Parameters, key: str) -> Upstream | None:
        """The upstream that would be chosen now, without any effect; with the policy `latency` the best of all.

        None without one, and where `rotate` takes another each time.
        """

        def usable(upstream: Upstream) -> bool:
            return not self.why_left_out(upstream, parameters)

        self._refresh()
        if parameters.rotate:
            return None
        if parameters.session is None:
            return self._policy_for(parameters).peek(key, usable)
        matches = partial(has_labels, parameters)
        return self._sessions.peek(key, parameters, matches, usable, self.loop.now)

    def longest_failed(self, wanted: Wanted, tried: Sequence[Upstream]) -> Upstream | None:
        """Of those that match the upstream whose failure is longest ago; none that wants to be left alone."""
        if self.stays(wanted):
            return None
        now = self.loop.now
        left = (each for each in self.members if each not in tried and wanted.matches(each))
        return min((each for each in left if each.serves_as_last_resort(now)), key=_failed_at, default=None)

    def none_left(self) -> Failure:
        """Why there is no upstream to try."""
        return NONE_LEFT

    def named(self, failure: Failure) -> Failure:
        """The failure with the name of the pool, if there is one."""
        return replace(failure, detail=f"{failure.detail} (pool {self.name})") if self.name else failure

    def none_matches(self, parameters: Parameters) -> bool:
        """Whether no upstream has the labels that are asked for."""
        if not parameters.labels or frozenset(parameters.labels.items()) in self._labelled:
            return False
        return not any(has_labels(parameters, upstream) for upstream in self.members)

    def goes_on(self, failed: UpstreamFailed) -> bool:
        """Whether another upstream is tried after this failure."""
        return failed.blame is not Blame.TARGET

    @property
    def asks_again(self) -> bool:
        """Whether it decides by itself after which responses in absolute-form another upstream is asked."""
        return False

    def asks_another(self, _wanted: Wanted, _tried: Sequence[Upstream], _status: int) -> bool:
        """Whether a request in absolute-form is sent to another upstream after a response with this status."""
        return False

    def is_suspect(self, failed: UpstreamFailed) -> bool:
        """Whether it is the upstream's failure only if another upstream has none: its target may be the cause."""
        return failed.blame is Blame.UNCLEAR and not failed.retry_after

    def acquire(self, upstream: Upstream, wanted: Wanted) -> OriginConnection | None:
        """An idle connection through this upstream that will do."""
        if upstream.spec.proxy_protocol is not None:
            return None  # its header names another client
        if wanted.source is not None and wanted.source.drawn:
            return None  # each such request has an address of its own
        origin = self.pool.acquire(_pool_key(self.name, upstream, wanted))
        if origin is not None:
            upstream.acquire()
        return origin

    def plan(self, upstream: Upstream, wanted: Wanted) -> AttemptPlan:
        """What a new connection through this upstream takes. Raises `UpstreamFailed` when it can't be made so."""
        base = self.plan_to(upstream)
        preface = preface_for(upstream.spec.proxy_protocol, wanted.ends)
        return base._replace(handshake=self._handshake(upstream, wanted), preface=preface)

    def plan_to(self, upstream: Upstream) -> AttemptPlan:
        """The way to the upstream itself. Raises `UpstreamFailed` when its `ca_file` can't be used."""
        return self._planner.plan(upstream.spec, self.spec.check_timeout)

    def connected(
        self, upstream: Upstream, wanted: Wanted, transport: Transport, epoch: int, reported: Failure | None
    ) -> OriginConnection:
        """The connection for the client."""
        origin = OriginConnection(transport, _pool_key(self.name, upstream, wanted), epoch, reported)
        origin.announced = upstream.spec.proxy_protocol is not None
        origin.readable = True  # what came behind the handshake causes no event any more
        origin.upstream = upstream
        origin.leaves_from(wanted.source, self.dialer.source)
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

    # --- outcomes ---

    def succeeded(self, upstream: Upstream) -> None:
        """Record a success, and end the problems that are over with it."""
        came_back = upstream.succeeded(self.loop.now)
        if self._unreachable:  # also when the list was replaced since, and this upstream was never down
            self._unreachable = False
            self._problems.ends(UPSTREAMS_UNREACHABLE, f"the upstream {upstream.name} can be reached again")
        if came_back:
            self._problems.ends(UPSTREAM_DOWN, f"the upstream {upstream.name} is up again", upstream.name)

    def failed(self, upstream: Upstream, failed: UpstreamFailed, target: str = "") -> None:
        """Record a failure by whose fault it is; `target` is the host that it was asked for."""
        if failed.blame is Blame.TARGET:
            self.succeeded(upstream)
        elif failed.blame is Blame.UPSTREAM or (
            failed.blame is Blame.UNCLEAR and upstream.suspect(self.loop.now, failed.cause, target_mark(target))
        ):
            self._at_fault(upstream, failed)

    def _at_fault(self, upstream: Upstream, failed: UpstreamFailed) -> None:
        """It is its own failure."""
        if upstream.failed(self.loop.now, failed.cause, failed.failure.kind == CREDENTIALS_REJECTED):
            self._went_down(upstream)

    def suspect(self, upstream: Upstream, status: int, cause: str, target: str) -> None:
        """Record what came of a request in absolute-form: a status that seems to be the upstream's own, 0 for none.

        Origins can do all that, so the upstream itself is asked behind the third target in a row, and left out until
        it responds.
        """
        if not status:
            upstream.reached = True
        if not upstream.suspect(self.loop.now, cause, target_mark(target)):
            return
        if upstream.state == DOWN:
            self._at_fault(upstream, unusable(cause))
        else:
            self._ask(upstream, status)

    def responded_407(self, upstream: Upstream) -> None:
        """Record that the response to a request in absolute-form was 407.

        Origins can send one, too, so clients could bring down any upstream: a request that no origin gets shows whose
        it was. Until then the upstream is left out.
        """
        if upstream.state == DOWN:
            self.failed(upstream, wrong_credentials(WANTS_OTHERS))
            return
        self._ask(upstream, 407)

    def _ask(self, upstream: Upstream, suspected: int) -> None:
        upstream.doubt(self.loop.now, self.spec.check_timeout)
        self._checks.ask(upstream, suspected)

    def _went_down(self, upstream: Upstream) -> None:
        detail = f"the upstream {upstream.name} is down: {upstream.last_error}"
        self._problems.begins(UPSTREAM_DOWN, detail, upstream.name)
        if not self._unreachable and all(each.state == DOWN for each in self.members):
            self._unreachable = True
            detail = f"no upstream can be reached ({len(self.members)} in all); the last: {upstream.last_error}"
            self._problems.begins(UPSTREAMS_UNREACHABLE, detail, serves=False)

    # --- views ---

    def states(self) -> UpstreamStates:
        """The state of each upstream."""
        clock = self._shared.clock() - self.loop.now
        return UpstreamStates(tuple(_state_of(upstream, clock) for upstream in self.members))

    def __repr__(self) -> str:
        up = sum(upstream.state == UP for upstream in self.members)
        return f"<UpstreamSet, {self.spec.policy}: {up} of {len(self.members)} are up>"


def _failed_at(upstream: Upstream) -> float:
    return upstream.failed_at


def _state_of(upstream: Upstream, clock: float) -> UpstreamState:
    """`clock` is the offset from the loop's clock to Unix seconds."""
    uses = upstream.uses
    return UpstreamState(
        name=upstream.name,
        state=upstream.state,
        since=upstream.since + clock,
        active=upstream.active,
        connections=uses.connections,
        failures=upstream.failures,
        bytes_in=uses.bytes_in,
        bytes_out=uses.bytes_out,
        latency=None if upstream.latency is None else round(upstream.latency * 1000, 3),
        last_error=upstream.last_error,
    )


def _forwards(upstream: Upstream, wanted: Wanted) -> bool:
    """Whether the upstream gets the request itself, in absolute-form."""
    return wanted.forward and upstream.spec.protocol in ("http", "https")


def _pool_key(pool: str, upstream: Upstream, wanted: Wanted) -> tuple[str, int]:
    """Equal for connections of which one may serve for the other. No host name and no pool's name has a space."""
    name = f"upstream {pool} {upstream.index}"
    if wanted.source is not None:
        name = wanted.source.key(name)
    return (name, 0) if _forwards(upstream, wanted) else (f"{name} {wanted.target.host}", wanted.target.port)
