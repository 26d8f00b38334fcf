"""What policies would do to a request, for `explain`: by the judge that decides about real ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from actors.bus.messages.forwarding import Explain, ExplainedRule
from actors.bus.messages.policies import DIRECT
from actors.bus.messages.specs import AccountSpec
from actors.forwarding.access.judged import decided
from actors.forwarding.access.narrowing import OwnRules
from actors.forwarding.access.policy import AccessPolicy, Decision
from actors.forwarding.connections.policy_handlers import choose, judge_of_account
from actors.forwarding.context import ForwardingContext
from actors.forwarding.draft_policies import tried
from actors.forwarding.net.resolver import Resolution, Resolved
from actors.forwarding.policies.explanation import explained
from actors.forwarding.policies.judge import Judge, Verdict
from actors.forwarding.protocols.failures import Failure
from actors.forwarding.protocols.http.targets import Authority

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
    def verdict(self) -> Verdict:
        """What the policies say, as far as the request has come."""
        return self._judge.verdict

    def access(self, own: OwnRules) -> AccessPolicy:
        """The access policy with the policies of the request."""
        return self._context.policy.access.narrowed(own, self._judge)

    def rules(self) -> tuple[ExplainedRule, ...]:
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

    def _is_direct(self, verdict: Verdict | None) -> bool:
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
        verdict: Verdict,
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
