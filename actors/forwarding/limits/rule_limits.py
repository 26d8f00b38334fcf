"""Limits of the rules of policies: each counts all requests together that it matches on this proxy.

A connection is limited from the moment that a request of it is admitted to the end of that request or tunnel. Changed
limits hold for those under way at once; a rule that gets its first ones limits further requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from actors.bus.loop import Loop
from actors.bus.messages.specs import LimitsSpec, PolicySpec
from actors.forwarding.limits.accounts import COUNTS
from actors.forwarding.limits.meter import Meter
from actors.forwarding.limits.shared_bandwidth import divide
from actors.forwarding.limits.token_bucket import TokenBucket
from actors.forwarding.protocols import failures
from actors.forwarding.protocols.failures import Decider, Failure
from actors.state.counts import SharedKey
from actors.state.live_state import LiveState

UNLIMITED = LimitsSpec()
RULE = "rule"
"""Begins the key of a rule."""


class Limited(NamedTuple):
    """A rule that matches a request and has limits: which one, its limits, and how clients and records name it."""

    key: tuple[str, str]
    """The id of the policy and the name of the rule."""
    spec: LimitsSpec
    decider: Decider
    entry: str


class RuleLimit:
    """What one rule admits."""

    def __init__(self, loop: Loop, spec: LimitsSpec, key_of: Callable[[str], SharedKey]) -> None:
        self._loop = loop
        self.spec = spec
        self.inward = TokenBucket(loop, spec.bandwidth_in)
        self.outward = TokenBucket(loop, spec.bandwidth_out)
        self._meters: set[Meter] = set()
        self._key_of = key_of
        self._shared = key_of(COUNTS)
        divide(loop, key_of, self.inward, self.outward)

    def change(self, spec: LimitsSpec) -> None:
        """Take other limits."""
        if spec != self.spec:
            self.spec = spec
            self.inward.set_rate(spec.bandwidth_in)
            self.outward.set_rate(spec.bandwidth_out)
            divide(self._loop, self._key_of, self.inward, self.outward)
            self._publish()

    def release(self) -> None:
        """It limits no requests any more."""
        self._shared.release()
        if self.inward.sharing is not None:
            self.inward.sharing.end()

    def refusal(self, limited: Limited) -> Failure | None:
        """Counts one more request. Returns why it is refused, else None."""
        spec = self.spec
        if 0 < spec.connections <= self._under_way():
            return failures.rule_connections(spec.connections, limited.decider, limited.entry)
        if spec.requests_per_minute:
            wait = self._shared.try_acquire(spec.requests_per_minute)
            if wait:
                return failures.rule_requests(spec.requests_per_minute, wait, limited.decider, limited.entry)
        return None

    def _under_way(self) -> int:
        return len(self._meters) + self._shared.connections()

    def _publish(self) -> None:
        self._shared.set_connections(len(self._meters) if self.spec.connections else 0)

    def attach(self, meter: Meter) -> None:
        """A request or tunnel of this connection is under way."""
        self._meters.add(meter)
        self._publish()

    def detach(self, meter: Meter) -> None:
        """It is over."""
        self._meters.discard(meter)
        self._publish()

    def __repr__(self) -> str:
        return f"<RuleLimit of {self.spec}: {len(self._meters)} under way>"


class MatchedRuleLimits:
    """Those of one proxy, each made when its rule matches first."""

    def __init__(self, loop: Loop, state: LiveState) -> None:
        self._loop = loop
        self._state = state
        self._known: dict[tuple[str, str], RuleLimit] = {}

    def configure(self, policies: Iterable[PolicySpec]) -> None:
        """Take the limits of changed policies; those of a rule that is gone limit nothing any more."""
        if not self._known:
            return
        now = {(policy.id, rule.name): rule.limits for policy in policies for rule in policy.rules}
        for key, limit in tuple(self._known.items()):
            limit.change(now.get(key, UNLIMITED))
            if limit.spec == UNLIMITED:
                del self._known[key]
                limit.release()

    def admit(self, meter: Meter, rules: Iterable[Limited]) -> Failure | None:
        """Count a request that these rules match, and limit its connection by them. Returns why it is refused."""
        limits = []
        for limited in rules:
            limit = self._known.get(limited.key)
            if limit is None:
                key_of = partial(self._key_of, limited.key)
                limit = self._known[limited.key] = RuleLimit(self._loop, limited.spec, key_of)
            failure = limit.refusal(limited)
            if failure is not None:
                return failure
            limits.append(limit)
        meter.limit_by(tuple(limits))
        return None

    def _key_of(self, rule: tuple[str, str], what: str) -> SharedKey:
        return self._state.key(RULE, what, *rule)

    def __repr__(self) -> str:
        return f"<MatchedRuleLimits: {len(self._known)}>"
