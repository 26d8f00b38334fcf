"""Why each rule of a policy does or does not match: for `explain`."""

from __future__ import annotations

from collections.abc import Iterable

from actors.bus.messages.forwarding import ExplainedRule
from actors.forwarding.policies.compiled import CompiledPolicy
from actors.forwarding.policies.conditions import Outcome, Rule
from actors.forwarding.policies.facts import Facts
from config.net.ip import Address, plain


def explained(policies: Iterable[CompiledPolicy], facts: Facts, address: str | None) -> tuple[ExplainedRule, ...]:
    """All rules in order. `address`: that of the target, None while it isn't known."""
    where = facts.address if address is None else plain(address)
    return tuple(_explained(policy.name, rule, facts, where) for policy in policies for rule in policy.rules)


def _explained(policy: str, rule: Rule, facts: Facts, address: Address | None) -> ExplainedRule:
    outcome, why = Outcome.YES, []
    for each, sentence in rule.outcomes(facts, address):
        if each is Outcome.YES:
            continue
        why.append(sentence)
        if outcome is not Outcome.NO:
            outcome = each
    spec = rule.spec
    mode = "report" if spec.report else "enforce"
    return ExplainedRule(
        policy, rule.index, spec.name, outcome.value, "; ".join(why) or "all of it matches", spec.use, mode
    )
