"""One pool with the checks of its upstreams, which are made once for all processes of this machine."""

from __future__ import annotations

from dataclasses import replace

from actors.bus.loop import Loop
from actors.bus.messages.common import UPSTREAM_DOWN, UPSTREAMS_UNREACHABLE
from actors.bus.messages.specs import PoolSpec, UpstreamsSpec
from actors.forwarding.net.dialer import Dialer
from actors.forwarding.protocols.failures import CREDENTIALS_REJECTED
from actors.forwarding.upstreams.attempt import AttemptPlan, AttemptPlanner
from actors.forwarding.upstreams.handshake import Blame, UpstreamFailed
from actors.forwarding.upstreams.health_checks import HealthChecks
from actors.pools.state import SharedPoolState, identity
from actors.pools.upstream import Upstream, target_mark
from actors.problems import ActiveProblems


class _Checks(HealthChecks):
    """No check of an upstream that has asked for a pause: it would be one more request."""

    def _check(self, upstream: Upstream) -> None:
        pause = upstream.slot.paused_until - self._loop.now
        if pause > 0:
            if self._upstreams.spec.check_enabled:
                self._schedule(upstream, pause)
        else:
            super()._check(upstream)


class CheckedPool:
    """`stop` ends the checks; `observe` reports what any process has found out since."""

    def __init__(
        self,
        loop: Loop,
        dialer: Dialer,
        problems: ActiveProblems,
        spec: PoolSpec,
        state: SharedPoolState,
        previous: CheckedPool | None,
    ) -> None:
        """`previous` is the same pool in another configuration."""
        self.loop = loop
        self.dialer = dialer
        self.spec: UpstreamsSpec = spec.upstreams
        self.name = spec.name
        self.pool = spec
        self._problems = problems
        self._state = state
        self._planner = AttemptPlanner()
        self._unreachable: bool = previous is not None and previous._unreachable
        pairs = enumerate(zip(self.spec.entries, state.slots, strict=True))
        self.members = [Upstream(each, index, slot, loop.now, spec.name) for index, (each, slot) in pairs]
        self._down: set[Upstream] = set()
        """Those that were down when they were observed last."""
        if previous is not None:
            self._follow(previous)
        self._checks = _Checks(self)

    def follows(self, spec: PoolSpec) -> bool:
        """Apply a change that concerns no check; False: this pool takes another object."""
        if (spec.id, spec.name, _checked(spec)) != (self.pool.id, self.name, _checked(self.pool)):
            return False
        self.pool = spec
        self._state.reconfigure(spec)
        return True

    def check_now(self) -> None:
        """Check all upstreams once."""
        self._checks.check_now()

    def stop(self) -> None:
        """No more checks: another object takes over."""
        self._checks.stop()

    def end(self) -> None:
        """The pool is gone, or no proxy can use it any more."""
        self.stop()
        for member in self.members:
            self._problems.ends(UPSTREAM_DOWN, f"the pool {self.name} is not in use any more", self._subject(member))
        self._problems.ends(UPSTREAMS_UNREACHABLE, f"the pool {self.name} is not in use any more", self.name)

    def observe(self) -> None:
        """Begin and end the problems of upstreams that are down, whichever process has found it out."""
        self._state.refresh()
        for member in self.members:
            if member.slot.is_down != (member in self._down):
                self._down ^= {member}
                self._changed(member)
        unreachable = bool(self.members) and len(self._down) == len(self.members)
        if unreachable != self._unreachable:
            self._unreachable = unreachable
            self._reachability_changed()

    # --- for the checks ---

    def plan_to(self, upstream: Upstream) -> AttemptPlan:
        """See `CheckedUpstreams`."""
        return self._planner.plan(upstream.spec, self.spec.check_timeout)

    def succeeded(self, upstream: Upstream) -> None:
        """See `CheckedUpstreams`."""
        self._state.count_check(upstream.slot, failed=False)
        upstream.slot.succeeded(self.loop.now)

    def failed(self, upstream: Upstream, failed: UpstreamFailed) -> None:
        """See `CheckedUpstreams`."""
        now, slot = self.loop.now, upstream.slot
        self._state.count_check(slot, failed=True)
        if failed.blame is Blame.UNCLEAR:  # an error of this process
            slot.suspect(now, failed.cause, target_mark(""))
        elif failed.failure.kind == CREDENTIALS_REJECTED:
            slot.failed(now, "407", "credentials", failed.cause)
        else:
            slot.failed(now, "connect", "handshake" if upstream.reached else "unreachable", failed.cause)

    # --- problems ---

    def _follow(self, previous: CheckedPool) -> None:
        """Take over what was known of upstreams that stay; one with other credentials gets a trial at once."""
        if previous.name != self.name:
            previous.end()
            self._unreachable = False
        known = {identity(member.spec): member for member in previous.members}
        for member in self.members:
            before = known.pop(identity(member.spec), None)
            if before is None:
                continue
            if previous._subject(before) == self._subject(member):
                if before in previous._down:
                    self._down.add(member)
            else:
                known[identity(member.spec)] = before
            if before.spec != member.spec:
                member.slot.reset_cooldowns()
        for member in known.values():
            detail = f"the upstream {member.spec.name} of the pool {previous.name} was removed"
            self._problems.ends(UPSTREAM_DOWN, detail, previous._subject(member))

    def _changed(self, member: Upstream) -> None:
        name, pool, subject = member.spec.name, self.name, self._subject(member)
        if member in self._down:
            detail = f"the upstream {name} of the pool {pool} is down: {member.slot.last_error}"
            self._problems.begins(UPSTREAM_DOWN, detail, subject)
        else:
            self._problems.ends(UPSTREAM_DOWN, f"the upstream {name} of the pool {pool} is up again", subject)

    def _reachability_changed(self) -> None:
        if self._unreachable:
            detail = f"no upstream of the pool {self.name} can be reached ({len(self.members)} in all)"
            self._problems.begins(UPSTREAMS_UNREACHABLE, detail, self.name)
        else:
            detail = f"an upstream of the pool {self.name} can be reached again"
            self._problems.ends(UPSTREAMS_UNREACHABLE, detail, self.name)

    def _subject(self, member: Upstream) -> str:
        return f"{self.name}/{member.spec.name}"

    def __repr__(self) -> str:
        return f"<CheckedPool {self.name}: {len(self._down)} of {len(self.members)} are down>"


def _checked(spec: PoolSpec) -> UpstreamsSpec:
    """What checks depend on."""
    return replace(spec.upstreams, policy="")
