"""Egress guard and access rules together: the one decision about a client or a target, for connections and `explain`.

The guard comes first, since rules can't except what it forbids; then the rules of the account and the credential, if
there are any, then those of the proxy. In report mode a rule of the proxy refuses nothing, and `Decision.reason` has
what it would have refused behind `reported:`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from actors.forwarding.access.rules import REPORTED, AccessRules, EntryMatch, OwnRules
from actors.forwarding.protocols import failures
from actors.forwarding.protocols.failures import Failure
from actors.forwarding.protocols.http.targets import Authority
from actors.net.egress_guard import LOOPBACK, EgressGuard, UpstreamGuard, is_localhost

if TYPE_CHECKING:
    from actors.forwarding.policies.judge import Judge


class Decision(NamedTuple):
    """One decision. `failure` None allows it; `reason` is that of the record, empty when nothing denies
    it; `rule` names the entry or the guard's sentence; `stage` is `client`, `name`, `address` or
    `egress_guard`. `reported` is what a rule in report mode would have refused it with.
    """

    failure: Failure | None
    reason: str
    rule: str
    stage: str
    reported: Failure | None = None


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

    def address(self, target: Authority, address: str) -> Decision:
        """Whether `target` may be connected to at `address`."""
        return self.guarded(target, address) or self.by_address(target, address)

    def guarded(self, target: Authority, address: str) -> Decision | None:
        """The refusal of the egress guard; None when it allows the address."""
        sentence = self._guard.check(address, target.port, target.host)
        if sentence is None:
            return None
        failure = failures.prohibited(sentence if target.literal else without_address(target.host))
        return Decision(failure, failure.reason, sentence, "egress_guard")

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

    def narrowed(self, own: OwnRules, judge: Judge | None = None) -> AccessPolicy:
        """The same with the rules of an account and a credential in front, and the policies of a request, if any."""
        if judge is not None:
            from actors.forwarding.access.judged import Judged  # only proxies with policies pay for it

            return Judged(self._guard, self._rules, own, judge)
        return Narrowed(self._guard, self._rules, own) if own else self

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


class Narrowed(AccessPolicy):
    """The policy for one account: its own rules are judged behind the guard and before the proxy's."""

    def __init__(self, guard: EgressGuard | UpstreamGuard, rules: AccessRules, own: OwnRules) -> None:
        super().__init__(guard, rules)
        self._own = own

    def name(self, target: Authority) -> Decision | None:
        """See `AccessPolicy`."""
        return self.own_by_name(target) or super().name(target)

    def own_by_name(self, target: Authority) -> Decision | None:
        """What the account's own rules refuse whatever the name resolves to."""
        for rules in self._own:
            match = rules.match_name(target.host, target.port)
            if match is not None and match.denied:
                return _refused_by(rules, match, "name")
        return None

    def by_address(self, target: Authority, address: str) -> Decision:
        """See `AccessPolicy`."""
        return refused_by_own(self._own, target, address) or super().by_address(target, address)

    def by_name_alone(self, target: Authority) -> Decision:
        """See `AccessPolicy`."""
        return refused_by_own(self._own, target, None) or super().by_name_alone(target)


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
    return Decision(failure, failure.reason, match.rule, stage)
