"""The access policy for one request that policies judge: guard, own rules, policies, and the proxy's access rules.

Where a rule of a policy says which way a request goes, or refuses it, the access rules are passed over.
"""

from __future__ import annotations

from typing import Final

from actors.forwarding.access.policy import AccessPolicy, Decision, Narrowed, refused_by_own
from actors.forwarding.access.rules import REPORTED, AccessRules, OwnRules
from actors.forwarding.policies.judge import Judge, PolicyVerdict
from actors.forwarding.protocols.failures import POLICY_DENIED, goes_another_way
from actors.forwarding.protocols.http.targets import Authority
from actors.net.egress_guard import EgressGuard, UpstreamGuard

POLICY: Final = "policy"
"""The stage of a decision by a rule of a policy."""


class Judged(Narrowed):
    """Judges by one guard, one set of access rules, and the policies of one request."""

    def __init__(self, guard: EgressGuard | UpstreamGuard, rules: AccessRules, own: OwnRules, judge: Judge) -> None:
        super().__init__(guard, rules, own)
        self._judge = judge

    def name(self, target: Authority) -> Decision | None:
        """See `AccessPolicy`. While a policy needs the addresses, nothing behind it may decide."""
        own = self.own_by_name(target)
        if own is not None:
            return own
        verdict = self._judge.by_name()
        if verdict is None:
            return None
        if not verdict.decided:
            return AccessPolicy.name(self, target)
        decision = decided(verdict)
        return None if decision.failure is None else decision

    def by_address(self, target: Authority, address: str) -> Decision:
        """See `AccessPolicy`."""
        own = refused_by_own(self._own, target, address)
        if own is not None:
            return own
        verdict = self._judge.by_address(address)
        if not self._judge.goes_the_way(verdict):
            return Decision(goes_another_way(target.host), POLICY_DENIED, "", POLICY)
        return (
            decided(verdict)
            if verdict.decided
            else _with_report(AccessPolicy.by_address(self, target, address), verdict)
        )

    def by_name_alone(self, target: Authority) -> Decision:
        """See `AccessPolicy`."""
        own = refused_by_own(self._own, target, None)
        if own is not None:
            return own
        verdict = self._judge.verdict
        return decided(verdict) if verdict.decided else _with_report(AccessPolicy.by_name_alone(self, target), verdict)


def decided(verdict: PolicyVerdict) -> Decision:
    """The decision of a rule that says which way a request goes, or refuses it."""
    failure, entry = verdict.failure, verdict.applied[-1].entry
    if failure is not None:
        return Decision(failure, failure.reason, entry, POLICY)
    return _with_report(Decision(None, "", entry, POLICY), verdict)


def _with_report(decision: Decision, verdict: PolicyVerdict) -> Decision:
    """With what a rule in report mode would have refused, where nothing else is to be recorded."""
    if verdict.reported is None or decision.reason:
        return decision
    denied = verdict.reported.failure
    return decision._replace(reason=REPORTED + denied.reason, rule=denied.entry, reported=denied)
