"""Limits of the rules of policies: each counts all requests together that it matches on this proxy.

A connection is limited from the moment that a request of it is admitted to the end of that request or tunnel. Changed
limits hold for those under way at once; a rule that gets its first ones limits further requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from actors.bus.loop import Loop
from actors.bus.messages.specs import LimitsSpec, PolicySpec
from actors.forwarding.limits.meter import Meter
from actors.forwarding.limits.sliding_window import FormerWindows, Key, SlidingWindow
from actors.forwarding.limits.token_bucket import TokenBucket
from actors.forwarding.protocols import failures
from actors.forwarding.protocols.failures import Decider, Failure

if TYPE_CHECKING:
    from actors.forwarding.limits.elsewhere import Elsewhere, SharedKey

UNLIMITED = LimitsSpec()
RULE = "rule"
"""Begins the key of a rule's window."""


class Limited(NamedTuple):
    """A rule that matches a request and has limits: which one, its limits, and how clients and records name it."""

    key: tuple[str, str]
    """The id of the policy and the name of the rule."""
    spec: LimitsSpec
    decider: Decider
    entry: str


class RuleLimit:
    """What one rule admits."""

    def __init__(self, loop: Loop, spec: LimitsSpec, window: SlidingWindow) -> None:
        self._loop = loop
        self.spec = spec
        self.inward = TokenBucket(loop, spec.bandwidth_in)
        self.outward = TokenBucket(loop, spec.bandwidth_out)
        self.window = window
        self._meters: set[Meter] = set()
        self._shared: SharedKey | None = None

    def share(self, shared: SharedKey) -> None:
        """Count together with other workers from now on."""
        self._shared = shared
        self.window = shared.window(self.window)
        self._publish()
        shared.divide(self.inward, self.outward)

    def change(self, spec: LimitsSpec) -> None:
        """Take other limits."""
        if spec != self.spec:
            self.spec = spec
            self.inward.set_rate(spec.bandwidth_in)
            self.outward.set_rate(spec.bandwidth_out)
            self._publish()
            if self._shared is not None:
                self._shared.divide(self.inward, self.outward)

    def refusal(self, limited: Limited) -> Failure | None:
        """Counts one more request. Returns why it is refused, else None."""
        spec = self.spec
        if 0 < spec.connections <= self._under_way():
            return failures.rule_connections(spec.connections, limited.decider, limited.entry)
        if spec.requests_per_minute:
            wait = self.window.try_acquire(spec.requests_per_minute, self._loop.now)
            if wait:
                return failures.rule_requests(spec.requests_per_minute, wait, limited.decider, limited.entry)
        return None

    def _under_way(self) -> int:
        own = len(self._meters)
        return own if self._shared is None else own + self._shared.connections()

    def _publish(self) -> None:
        if self._shared is not None:
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

    def __init__(self, loop: Loop, former: FormerWindows | None = None) -> None:
        self._loop = loop
        self._former = former or FormerWindows(loop)
        self._known: dict[tuple[str, str], RuleLimit] = {}
        self._elsewhere: Elsewhere | None = None

    def share(self, elsewhere: Elsewhere) -> None:
        """Count together with other workers from now on."""
        self._elsewhere = elsewhere
        for key, limit in self._known.items():
            limit.share(elsewhere.key(RULE, *key))

    def configure(self, policies: Iterable[PolicySpec]) -> None:
        """Take the limits of changed policies; those of a rule that is gone limit nothing any more."""
        if not self._known:
            return
        now = {(policy.id, rule.name): rule.limits for policy in policies for rule in policy.rules}
        for key, limit in tuple(self._known.items()):
            limit.change(now.get(key, UNLIMITED))
            if limit.spec == UNLIMITED:
                del self._known[key]

    def admit(self, meter: Meter, rules: Iterable[Limited]) -> Failure | None:
        """Count a request that these rules match, and limit its connection by them. Returns why it is refused."""
        limits = []
        for limited in rules:
            limit = self._known.get(limited.key)
            if limit is None:
                window = self._former.new(RULE, *limited.key)
                limit = self._known[limited.key] = RuleLimit(self._loop, limited.spec, window)
                if self._elsewhere is not None:
                    limit.share(self._elsewhere.key(RULE, *limited.key))
            failure = limit.refusal(limited)
            if failure is not None:
                return failure
            limits.append(limit)
        meter.limit_by(tuple(limits))
        return None

    def windows(self) -> Iterator[tuple[Key, SlidingWindow]]:
        """Their windows, by key."""
        return (((RULE, *key), limit.window) for key, limit in self._known.items())

    def __repr__(self) -> str:
        return f"<MatchedRuleLimits: {len(self._known)}>"
