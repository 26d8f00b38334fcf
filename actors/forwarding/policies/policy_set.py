"""All policies of one proxy in one configuration: its own, and those that accounts and their plans name."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from actors.bus.messages.policies import DENY, PolicySpec, RuleSpec
from actors.forwarding.policies.compiled import CompiledPolicy, compile_policy, compiling
from actors.forwarding.policies.conditions import Lists
from actors.forwarding.policies.facts import Facts
from actors.forwarding.policies.judge import Judge
from actors.forwarding.policies.portions import Portions, at_once

if TYPE_CHECKING:
    from collections.abc import Mapping

log = logging.getLogger(__name__)

_UNUSABLE: Final = RuleSpec("not usable", use=DENY, reason="a policy of this proxy can't be applied")


class PolicySet:
    """Replaced as a whole when anything changes, so that a request is judged by one consistent set."""

    def __init__(self, policies: Mapping[str, tuple[PolicySpec, CompiledPolicy]], own: str) -> None:
        """`policies` are by name; `own` is that of the proxy's policy, empty without one."""
        self._policies = policies
        self._own = own

    @classmethod
    def compiling(
        cls, specs: Iterable[PolicySpec], own: str, lists: Lists, previous: PolicySet | None = None
    ) -> Portions[PolicySet]:
        """Compile all of them. Policies of `previous` that are the same stay."""
        known = {} if previous is None else previous._policies
        policies: dict[str, tuple[PolicySpec, CompiledPolicy]] = {}
        for spec in specs:
            before = known.get(spec.name)
            if before is not None and before[0].rules == spec.rules and before[0].id == spec.id:
                policies[spec.name] = spec, before[1]
            else:
                policies[spec.name] = spec, (yield from _compiling(spec, lists))
        return cls(policies, own)

    def applying(self, of_account: tuple[str, ...]) -> tuple[CompiledPolicy, ...]:
        """The policies of a request in their order: those of the account and its plan, and the proxy's.

        One that is named and not there refuses everything.
        """
        return tuple(self._named(name) for name in dict.fromkeys((*of_account, self._own)) if name)

    def judge(self, facts: Facts, of_account: tuple[str, ...], default: str) -> Judge:
        """Of one request; `default` as for `Judge`."""
        return Judge(self.applying(of_account), facts, default)

    def with_draft(self, spec: PolicySpec, of_account: tuple[str, ...], lists: Lists) -> PolicySet:
        """This set with `spec` in place of the policy of its name; if none that applies has it, of the proxy's own."""
        own = self._own if spec.name in (*of_account, self._own) else spec.name
        return PolicySet({**self._policies, spec.name: (spec, at_once(_compiling(spec, lists)))}, own)

    def ends_existing(self, previous: PolicySet | None) -> bool:
        """Whether a policy was changed so that tunnels are to end that it no longer allows."""
        before = {} if previous is None else {spec.id: spec.ended for spec, _policy in previous._policies.values()}
        return any(spec.ended > before.get(spec.id, spec.ended) for spec, _policy in self._policies.values())

    def _named(self, name: str) -> CompiledPolicy:
        known = self._policies.get(name)
        return known[1] if known is not None else _refusing(PolicySpec("", name))

    def __repr__(self) -> str:
        return f"<PolicySet: {', '.join(self._policies) or 'none'}>"


def _compiling(spec: PolicySpec, lists: Lists) -> Portions[CompiledPolicy]:
    try:
        return (yield from compiling(spec, lists))
    except ValueError as error:
        log.error("the policy %s can't be applied, and refuses everything: %s", spec.name, error)
        return _refusing(spec)


def _refusing(spec: PolicySpec) -> CompiledPolicy:
    return compile_policy(PolicySpec(spec.id, spec.name, (_UNUSABLE,)), _NO_LISTS)


class _NoLists:
    def find(self, _host: object) -> None:
        return None

    def judges_addresses(self, _host: object) -> bool:
        return False


_NO_LISTS: Final = _NoLists()


NO_POLICIES: Final = PolicySet({}, "")
"""Of a proxy that has none: it refuses everything of an account that has one, until that is here."""
