"""What policies would do to a request and which upstream it would go through, for `explain`: by what decides about real
ones. Only proxies with policies or upstreams load it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from actors.bus.messages.forwarding import (
    Explain,
    RuleExplanation,
    UpstreamExplanation,
    UpstreamsExplanation,
)
from actors.bus.messages.specs import DIRECT, AccountSpec, ListRef, PolicySpec
from actors.forwarding.access.judged import decided
from actors.forwarding.access.named_lists import Content, NamedListFiles
from actors.forwarding.access.policy import AccessPolicy, Decision
from actors.forwarding.access.rules import OwnRules
from actors.forwarding.access.username_parameters import Parameters
from actors.forwarding.connections.policy_handlers import choose, judge_of_account
from actors.forwarding.context import ForwardingContext
from actors.forwarding.fleet_objects import FoundList
from actors.forwarding.net.resolver import Resolution, Resolved
from actors.forwarding.policies.compiled import CompiledPolicy
from actors.forwarding.policies.conditions import ConditionOutcome, Rule
from actors.forwarding.policies.facts import Facts
from actors.forwarding.policies.judge import NO_POLICIES, Judge, PolicySet, PolicyVerdict
from actors.forwarding.protocols.failures import Failure
from actors.forwarding.protocols.http.targets import Authority
from actors.forwarding.upstreams.upstream_set import UpstreamSet
from config.net.addresses import Address, plain
from config.net.entries import ListHost

LEFT_OUT_MAX = 100
"""Upstreams that are named with the reason; the number of all is there, too."""


def explained_upstreams(upstreams: UpstreamSet, parameters: Parameters, key: str) -> UpstreamsExplanation:
    """`key` is what `sticky` hashes."""
    usable, left_out = 0, list[UpstreamExplanation]()
    for each in upstreams.members:
        why = upstreams.why_left_out(each, parameters)
        if not why:
            usable += 1
        elif len(left_out) < LEFT_OUT_MAX:
            left_out.append(UpstreamExplanation(each.name, why))
    chosen = upstreams.would_choose(parameters, key)
    return UpstreamsExplanation(
        pool=upstreams.name,
        policy=upstreams.spec.policy,
        chosen="" if chosen is None else chosen.name,
        total=len(upstreams.members),
        usable=usable,
        left_out=tuple(left_out),
    )


class ListsOfDraft:
    """The lists that a draft names, read when they are needed; all others are those of the actor."""

    def __init__(self, known: NamedListFiles, refs: Iterable[ListRef]) -> None:
        self._known = known
        self._refs = {ref.name: ref for ref in refs}
        self._found: dict[str, Content | None] = {}

    def find(self, host: ListHost) -> FoundList | None:
        """See `NamedLists`."""
        ref = self._refs.get(host.name)
        if ref is None:
            return self._known.find(host)
        if host.name not in self._found:
            self._found[host.name] = self._known.read(ref)
        content = self._found[host.name]
        return None if content is None else content.of(host)

    def judges_addresses(self, host: ListHost) -> bool:
        """See `NamedLists`."""
        ref = self._refs.get(host.name)
        return self._known.judges_addresses(host) if ref is None else ref.judges_addresses


def tried(
    context: ForwardingContext, draft: PolicySpec, refs: Iterable[ListRef], account: AccountSpec | None
) -> PolicySet:
    """The policies of the proxy with the draft among them."""
    lists = ListsOfDraft(context.lists, refs)
    policies = context.policies or NO_POLICIES
    return policies.with_draft(draft, () if account is None else account.policies, lists)


def explained(policies: Iterable[CompiledPolicy], facts: Facts, address: str | None) -> tuple[RuleExplanation, ...]:
    """All rules in order. `address`: that of the target, None while it isn't known."""
    where = facts.address if address is None else plain(address)
    return tuple(_explained(policy.name, rule, facts, where) for policy in policies for rule in policy.rules)


def _explained(policy: str, rule: Rule, facts: Facts, address: Address | None) -> RuleExplanation:
    outcome, why = ConditionOutcome.YES, []
    for each, sentence in rule.outcomes(facts, address):
        if each is ConditionOutcome.YES:
            continue
        why.append(sentence)
        if outcome is not ConditionOutcome.NO:
            outcome = each
    spec = rule.spec
    mode = "report" if spec.report else "enforce"
    return RuleExplanation(
        policy, rule.index, spec.name, outcome.value, "; ".join(why) or "all of it matches", spec.use, mode
    )


OnDecision = Callable[[Decision], None]
OnAddresses = Callable[[Resolution], None]


class Policed:
    """One request of a proxy that has policies."""

    def __init__(
        self,
        context: ForwardingContext,
        target: Authority,
        query: Explain,
        user: str,
        account: AccountSpec | None,
        path: str,
        params: Mapping[str, str],
    ) -> None:
        """`path` is that of an http URL; empty: the request is for a tunnel."""
        self._context = context
        self._target = target
        method = query.method if path else ""
        policies = None if query.draft is None else tried(context, query.draft, query.lists, account)
        self._asked = query.client_ip, query.listen_port, user, account, method, path, params, policies
        self._judge = self.judge_of(target)
        self.address: str | None = None
        """One of the target's by which policies have judged it, if they needed any."""

    def judge_of(self, target: Authority) -> Judge:
        """What judges the same request for another target."""
        return judge_of_account(self._context, target, *self._asked)

    @property
    def verdict(self) -> PolicyVerdict:
        """What the policies say, as far as the request has come."""
        return self._judge.verdict

    def access(self, own: OwnRules) -> AccessPolicy:
        """The access policy with the policies of the request."""
        return self._context.policy.access.narrowed(own, self._judge)

    def rules(self) -> tuple[RuleExplanation, ...]:
        """All rules, as far as the request has come."""
        return explained(self._judge.policies, self._judge.facts, self.address)

    def decide(self, access: AccessPolicy, on_decision: OnDecision, on_addresses: OnAddresses) -> None:
        """Call `on_decision`, or `on_addresses` with what the target resolves to, each address of which is judged."""
        verdict = self._judge.by_name()
        refused = access.name(self._target) if self._is_direct(verdict) else None
        if refused is not None:
            on_decision(refused)
        elif verdict is not None:
            self._follow(verdict, access, None, on_decision, on_addresses)
        else:
            self._resolve(lambda result: self._by_addresses(result, access, on_decision, on_addresses))

    def _is_direct(self, verdict: PolicyVerdict | None) -> bool:
        return verdict is None or verdict.failure is not None or self._judge.way(verdict) == DIRECT

    def _resolve(self, done: OnAddresses) -> None:
        if self._target.literal:
            done(Resolved((self._target.host,)))
        else:
            self._context.dialer.resolver.resolve(self._target.host, done)

    def _by_addresses(
        self, result: Resolution, access: AccessPolicy, on_decision: OnDecision, on_addresses: OnAddresses
    ) -> None:
        if isinstance(result, Failure):
            on_addresses(result)
            return
        verdict, same_way = choose(self._context, self._target, self._judge, result.addresses)
        self.address = (same_way or result.addresses)[0]
        self._follow(verdict, access, result, on_decision, on_addresses)

    def _follow(
        self,
        verdict: PolicyVerdict,
        access: AccessPolicy,
        known: Resolved | None,
        on_decision: OnDecision,
        on_addresses: OnAddresses,
    ) -> None:
        self._judge.settled = verdict
        if not self._is_direct(verdict):
            on_decision(access.unresolved(self._target))
        elif verdict.failure is not None and known is None:
            on_decision(decided(verdict))
        elif known is not None:
            on_addresses(known)
        else:
            self._resolve(on_addresses)
