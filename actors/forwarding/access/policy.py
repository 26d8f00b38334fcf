"""Egress guard, rules and policies together: what they say about a client, a name and each address.

The guard comes first, since rules can't except what it forbids; then the rules of the account and the credential, if
there are any, the policies of the request, and the rules of the proxy. Where a rule of a policy says which way a
request goes, or refuses it, the proxy's are passed over. In report mode a rule of the proxy refuses nothing, and
`Decision.reason` has what it would have refused behind `reported:`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from actors.forwarding.access.rules import AccessRules, EntryMatch, OwnRules
from actors.forwarding.protocols import failures
from actors.forwarding.protocols.failures import Failure, goes_another_way
from actors.forwarding.protocols.http.targets import Authority
from actors.net.egress_guard import LOOPBACK, EgressGuard, UpstreamGuard, is_localhost
from config.text.reasons import REPORTED

if TYPE_CHECKING:
    from actors.forwarding.policies.judge import Judge, PolicyVerdict

POLICY: Final = "policy"
"""The stage of a decision by a rule of a policy."""


class Decision(NamedTuple):
    """What a stage has decided (`actors.forwarding.decision`). `failure` None allows it; `reason` is that of the
    record, empty when nothing denies it; `rule` names the entry or the guard's sentence. `reported` is what a rule in
    report mode would have refused it with.
    """

    failure: Failure | None
    reason: str
    rule: str
    stage: str
    reported: Failure | None = None


def refused(failure: Failure, rule: str, stage: str) -> Decision:
    """The decision of a stage that refuses; `rule` is as in `Decision`."""
    return Decision(failure, failure.reason, rule, stage)


_CLIENT_ALLOWED: Final = Decision(None, "", "", "client")
_ADDRESS_ALLOWED: Final = Decision(None, "", "", "address")


def without_address(name: str) -> str:
    """The guard's refusal for a target that was given by name: its addresses are not disclosed."""
    return f"{name} has no address that this proxy may connect to"


class AccessPolicy:
    """Decides by one guard and one set of rules. Pure: it resolves nothing and connects to nothing."""

    def __init__(self, guard: EgressGuard | UpstreamGuard, rules: AccessRules) -> None:
        self._guard = guard
        self._rules = rules

    @property
    def rules(self) -> AccessRules:
        """Those of the proxy."""
        return self._rules

    @property
    def mode(self) -> str:
        """`enforce` or `report`."""
        return "report" if self._rules.report else "enforce"

    def client(self, client_ip: str) -> Decision:
        """Whether this client may use the proxy."""
        if not self._rules.has_client_rules:
            return _CLIENT_ALLOWED
        return self._by_rules(self._rules.match_client(client_ip), "client")

    def name(self, target: Authority) -> Decision | None:
        """The refusal of a name before it is resolved; None when its addresses decide."""
        if not self._rules.has_destination_rules:
            return None
        match = self._rules.match_name(target.host, target.port)
        if match is None or not match.denied or self._rules.report:
            return None
        return self._by_rules(match, "name")

    def own_by_name(self, _target: Authority) -> Decision | None:
        """What the account's own rules refuse whatever the name resolves to."""
        return None

    def address(self, target: Authority, address: str) -> Decision:
        """Whether `target` may be connected to at `address`."""
        return self.guarded(target, address) or self.by_address(target, address)

    def guarded(self, target: Authority, address: str) -> Decision | None:
        """The refusal of the egress guard; None when it allows the address."""
        sentence = self._guard.check(address, target.port, target.host)
        if sentence is None:
            return None
        failure = failures.prohibited(sentence if target.literal else without_address(target.host))
        return refused(failure, sentence, "egress_guard")

    def by_address(self, target: Authority, address: str) -> Decision:
        """What the rules say about `target` at `address`."""
        if not self._rules.has_destination_rules:
            return _ADDRESS_ALLOWED
        return self._by_rules(self._rules.match_address(target.host, target.port, address), "address")

    def unresolved(self, target: Authority) -> Decision:
        """Whether an upstream proxy may connect to `target`. The addresses of a name are the upstream's to find and to
        guard."""
        if target.literal:
            return self.address(target, target.host)
        if is_localhost(target.host):
            return self.address(target, LOOPBACK)
        return self.by_name_alone(target)

    def by_name_alone(self, target: Authority) -> Decision:
        """What the rules say about a name that an upstream is to resolve."""
        return self._by_rules(self._rules.match_unresolved(target.host, target.port), "name")

    def for_request(self, own: OwnRules, judge: Judge | None = None) -> AccessPolicy:
        """The same with the rules of an account and a credential, and the policies of a request, if there are any."""
        return RequestPolicy(self._guard, self._rules, own, judge) if own or judge is not None else self

    def _by_rules(self, match: EntryMatch, stage: str) -> Decision:
        if not match.denied:
            return Decision(None, "", match.rule, stage)
        if stage == "client":
            denied = failures.client_denied(match.reason, match.rule)
        else:
            denied = failures.target_denied(match.reason, match.rule, match.decider)
        if self._rules.report:
            return Decision(None, REPORTED + match.reason, match.rule, stage, denied)
        return Decision(denied, match.reason, match.rule, stage)


class RequestPolicy(AccessPolicy):
    """The policy for one request: own rules of its account, and policies, are judged behind the guard and before the
    proxy's rules."""

    def __init__(
        self, guard: EgressGuard | UpstreamGuard, rules: AccessRules, own: OwnRules, judge: Judge | None
    ) -> None:
        super().__init__(guard, rules)
        self._own = own
        self._judge = judge

    def name(self, target: Authority) -> Decision | None:
        """See `AccessPolicy`. While a policy needs the addresses, nothing behind it may decide."""
        own, judge = self.own_by_name(target), self._judge
        if own is not None or judge is None:
            return own or super().name(target)
        verdict = judge.by_name()
        if verdict is None:
            return None
        if not verdict.decided:
            return super().name(target)
        return None if verdict.failure is None else decided(verdict)

    def own_by_name(self, target: Authority) -> Decision | None:
        """See `AccessPolicy`."""
        for rules in self._own:
            match = rules.match_name(target.host, target.port)
            if match is not None and match.denied:
                return _refused_by(rules, match, "name")
        return None

    def by_address(self, target: Authority, address: str) -> Decision:
        """See `AccessPolicy`."""
        own, judge = refused_by_own(self._own, target, address), self._judge
        if own is not None or judge is None:
            return own or super().by_address(target, address)
        verdict = judge.by_address(address)
        if not judge.goes_the_way(verdict):
            return refused(goes_another_way(target.host), "", POLICY)
        return decided(verdict) if verdict.decided else _with_report(super().by_address(target, address), verdict)

    def by_name_alone(self, target: Authority) -> Decision:
        """See `AccessPolicy`."""
        own, judge = refused_by_own(self._own, target, None), self._judge
        if own is not None or judge is None:
            return own or super().by_name_alone(target)
        verdict = judge.verdict
        return decided(verdict) if verdict.decided else _with_report(super().by_name_alone(target), verdict)


def refused_by_own(own: OwnRules, target: Authority, address: str | None) -> Decision | None:
    """What an account's and a credential's own rules refuse; `address` None: the name is resolved by an upstream."""
    for rules in own:
        if address is None:
            match = rules.match_unresolved(target.host, target.port)
        else:
            match = rules.match_address(target.host, target.port, address)
        if match.denied:
            return _refused_by(rules, match, "name" if address is None else "address")
    return None


def _refused_by(rules: AccessRules, match: EntryMatch, stage: str) -> Decision:
    failure = failures.destination_denied(rules.owner, match.reason, match.rule, match.decider)
    return refused(failure, match.rule, stage)


def decided(verdict: PolicyVerdict) -> Decision:
    """The decision of a rule that says which way a request goes, or refuses it."""
    failure, entry = verdict.failure, verdict.applied[-1].entry
    if failure is not None:
        return refused(failure, entry, POLICY)
    return _with_report(Decision(None, "", entry, POLICY), verdict)


def _with_report(decision: Decision, verdict: PolicyVerdict) -> Decision:
    """With what a rule in report mode would have refused, where nothing else is to be recorded."""
    if verdict.reported is None or decision.reason:
        return decision
    denied = verdict.reported.failure
    return decision._replace(reason=REPORTED + denied.reason, rule=denied.entry, reported=denied)
