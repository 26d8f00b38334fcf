"""The policies of one request, asked in their order: that of the settings, those of the account and of its plan, then
that of the proxy.

The first that has a matching rule with a `use` decides which way the request goes. A rule without one decides within
its own policy alone: what it adds holds, and the next policy and the access rules are asked as well.

A set has all policies of one proxy in one configuration: its own, that of all proxies, and those that accounts and
their plans name.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from actors.bus.messages.specs import DENY, DIRECT, POOL, PolicySpec, ProxySpec, RuleSpec
from actors.forwarding.fleet_objects import NO_LISTS, NamedLists
from actors.forwarding.policies.compiled import CompiledPolicy, compile_policy, compiling
from actors.forwarding.policies.conditions import NO_PROXY, Rule
from actors.forwarding.policies.facts import Facts
from actors.forwarding.policies.masks import Batches, at_once
from actors.forwarding.protocols.failures import Decider, Failure, denied_by_policy
from actors.forwarding.protocols.http.header_changes import HeaderChanges, merged
from actors.forwarding.protocols.http.targets import Authority
from config.net.addresses import Address, plain

if TYPE_CHECKING:
    from collections.abc import Mapping

log = logging.getLogger(__name__)


class Applied(NamedTuple):
    """A rule that matches, and whose it is. `named_list` is the list by which one that refuses has the target."""

    policy: str
    rule: Rule
    policy_id: str = ""
    named_list: str = ""

    @property
    def label(self) -> str:
        """As counters name it: the policy, a slash (no policy's name has one) and the rule's name, or its index."""
        return f"{self.policy}/{self.rule.spec.name or self.rule.index}"

    @property
    def decider(self) -> Decider:
        """As clients read it."""
        name, place = self.rule.spec.name, str(self.rule.index)
        where = f'policy {self.policy}, rule "{name}"' if name else f"policy {self.policy}, rule {place}"
        return Decider(self.policy, name or place, self.named_list, where)

    @property
    def entry(self) -> str:
        """As records name it."""
        return f"policy {self.policy}[{self.rule.index}] {self.rule.spec.name}".rstrip()

    @property
    def failure(self) -> Failure:
        """What the rule refuses a request with."""
        return denied_by_policy(self.rule.spec.reason, self.decider, self.entry)


class PolicyVerdict(NamedTuple):
    """What the policies say. `applied` are the rules that match, one of each policy at most, in the policies' order.

    `reported` is the first rule in report mode that would have refused the request.
    """

    applied: tuple[Applied, ...] = ()
    reported: Applied | None = None
    counted: tuple[tuple[Applied, bool], ...] = ()
    """All of them in order, each with whether it was only reported."""

    @property
    def use(self) -> str:
        """The way: `deny`, `direct`, `pool:` and a name, or empty for the one without policies."""
        return self.applied[-1].rule.spec.use if self.applied else ""

    @property
    def decided(self) -> bool:
        """Whether the proxy's access rules are passed over."""
        return bool(self.use)

    @property
    def pool(self) -> str:
        """The name of the pool, empty without one."""
        return self.use.removeprefix(POOL) if self.use.startswith(POOL) else ""

    @property
    def egress(self) -> Applied | None:
        """The rule that says where connections leave from; None: none does."""
        return next((each for each in self.applied if each.rule.spec.egress), None)

    @property
    def tls_name(self) -> Applied | None:
        """The rule that says what becomes of the name in a TLS handshake; None: none does."""
        return next((each for each in self.applied if each.rule.spec.tls_name), None)

    @property
    def header_changes(self) -> HeaderChanges | None:
        """What the rules change in the head of the request; None: nothing."""
        return merged(each.rule.headers for each in self.applied) if self.applied else None

    @property
    def failure(self) -> Failure | None:
        """Why it is refused; None when it is not."""
        if self.use != DENY:
            return None
        return self.applied[-1].failure


UNTOUCHED: Final = PolicyVerdict()
CACHED_ADDRESSES: Final = 1_024


class Judge:
    """Judges one request, by one consistent set of policies and at one moment."""

    __slots__ = ("_policies", "_verdicts", "addresses", "default", "facts", "settled")

    def __init__(self, policies: tuple[CompiledPolicy, ...], facts: Facts, default: str = DIRECT) -> None:
        """`default` is the way without policies: `direct`, or empty where the proxy has upstreams."""
        self._policies = policies
        self.facts = facts
        self.default = default
        self.settled: PolicyVerdict | None = None
        """The verdict by which the request goes its way, once that is chosen."""
        self.addresses: tuple[str, ...] = ()
        """The addresses by which it was chosen, if they had to be known; no other one may be connected to."""
        self._verdicts: dict[str, PolicyVerdict | None] = {}

    def settle(self, verdict: PolicyVerdict, addresses: tuple[str, ...] = ()) -> None:
        """The request goes by this verdict, and to no other address than these where they had to be known."""
        self.settled = verdict
        self.addresses = addresses

    def settle_directly(self) -> None:
        """No upstream can serve the request: whatever is to go through one is refused."""
        self.settle(UNTOUCHED)

    def by_name(self) -> PolicyVerdict | None:
        """The verdict whatever the target resolves to; None when its addresses decide."""
        if "" not in self._verdicts:
            self._verdicts[""] = self._judge(self.facts.address)
        return self._verdicts[""]

    def by_address(self, address: str) -> PolicyVerdict:
        """The verdict about the target at this address."""
        verdict = self.by_name() or self._verdicts.get(address)
        if verdict is None:
            verdict = self._verdicts[address] = self._judge(_parsed(address)) or UNTOUCHED
        return verdict

    @property
    def policies(self) -> tuple[CompiledPolicy, ...]:
        """Those that apply, in their order."""
        return self._policies

    @property
    def verdict(self) -> PolicyVerdict:
        """The verdict that holds without an address: the settled one, or that by the name."""
        return self.settled or self.by_name() or UNTOUCHED

    def way(self, verdict: PolicyVerdict) -> str:
        """`direct`, `pool:` and a name, `deny`, or empty for the upstreams of the proxy itself."""
        return verdict.use or self.default

    def goes_the_way(self, verdict: PolicyVerdict) -> bool:
        """Whether this verdict about an address has the same way as the request; a refusal is no way of its own."""
        if self.settled is None or verdict.use == DENY:
            return True
        return self.way(verdict) == self.way(self.settled)

    def _judge(self, address: Address | None) -> PolicyVerdict | None:
        applied: list[Applied] = []
        counted: list[tuple[Applied, bool]] = []
        for policy in self._policies:
            found = policy.find(self.facts, address)
            if found.open:
                return None
            counted.extend((Applied(policy.name, rule), True) for rule in found.reported)
            if found.rule is None:
                continue
            named = found.rule.deciding_list(self.facts, address) if found.rule.deny and found.rule.lists else ""
            applied.append(Applied(policy.name, found.rule, policy.id, named))
            counted.append((applied[-1], False))
            if found.rule.spec.use:
                break
        if not counted:
            return UNTOUCHED
        denied = (each for each, only in counted if only and each.rule.deny)
        return PolicyVerdict(tuple(applied), next(denied, None), tuple(counted))

    def __repr__(self) -> str:
        return f"<Judge of {self.facts.host}:{self.facts.port} by {[each.name for each in self._policies]}>"


@lru_cache(maxsize=CACHED_ADDRESSES)
def _parsed(address: str) -> Address:
    """Parsing one takes a fifth of a decision, and most requests go where others went."""
    return plain(address)


_UNUSABLE: Final = RuleSpec("not usable", use=DENY, reason="a policy of this proxy can't be applied")


class PolicySet:
    """Replaced as a whole when anything changes, so that a request is judged by one consistent set."""

    def __init__(
        self,
        policies: Mapping[str, tuple[PolicySpec, CompiledPolicy]],
        names: tuple[str, str],
        proxy: frozenset[str] = NO_PROXY,
    ) -> None:
        """`policies` are by name, compiled for `proxy` (`ProxySpec.words`); `names` are those of the policy of all
        proxies and of the proxy's own, empty for none."""
        self._policies = policies
        self._proxy = proxy
        self._first, self._own = names
        self._without_account = self._in_order(())

    @classmethod
    def compiling(
        cls, specs: Iterable[PolicySpec], first: str, proxy: ProxySpec, lists: NamedLists, previous: PolicySet | None
    ) -> Batches[PolicySet]:
        """Compile all of them for this proxy. Policies of `previous` that are the same stay.

        `first` is the name of the policy of all proxies, empty for none.
        """
        words, names = proxy.words, (first, proxy.policy)
        known = {} if previous is None else previous._policies
        same_proxy = previous is not None and previous._proxy == words
        policies: dict[str, tuple[PolicySpec, CompiledPolicy]] = {}
        for spec in specs:
            before = known.get(spec.name)
            same = before is not None and before[0].rules == spec.rules and before[0].id == spec.id
            if before is not None and same and (same_proxy or not any(rule.proxies for rule in spec.rules)):
                policies[spec.name] = spec, before[1]
            else:
                policies[spec.name] = spec, (yield from _compiling(spec, lists, words))
        for name in set(names) - policies.keys() - {""}:
            log.error("there is no policy %s: everything is refused", name)
        return cls(policies, names, words)

    def applying(self, of_account: tuple[str, ...]) -> tuple[CompiledPolicy, ...]:
        """The policies of a request in their order: that of all proxies, those of the account and its plan, and the
        proxy's.

        One that is named and not there refuses everything.
        """
        return self._in_order(of_account) if of_account else self._without_account

    def _in_order(self, of_account: tuple[str, ...]) -> tuple[CompiledPolicy, ...]:
        names = dict.fromkeys((self._first, *of_account, self._own))
        return tuple(self._named(name) for name in names if name)

    def judge(self, facts: Facts, of_account: tuple[str, ...], default: str) -> Judge:
        """Of one request; `default` as for `Judge`."""
        return Judge(self.applying(of_account), facts, default)

    def with_draft(self, spec: PolicySpec, of_account: tuple[str, ...], lists: NamedLists) -> PolicySet:
        """This set with `spec` in place of the policy of its name; if none that applies has it, of the proxy's own."""
        own = self._own if spec.name in (self._first, *of_account, self._own) else spec.name
        policies = {**self._policies, spec.name: (spec, at_once(_compiling(spec, lists, self._proxy)))}
        return PolicySet(policies, (self._first, own), self._proxy)

    def ends_existing(self, previous: PolicySet | None) -> bool:
        """Whether a policy was changed so that tunnels are to end that it no longer allows."""
        before = {} if previous is None else {spec.id: spec.ended for spec, _policy in previous._policies.values()}
        return any(spec.ended > before.get(spec.id, spec.ended) for spec, _policy in self._policies.values())

    def _named(self, name: str) -> CompiledPolicy:
        known = self._policies.get(name)
        return known[1] if known is not None else _refusing(PolicySpec("", name))

    def __repr__(self) -> str:
        return f"<PolicySet: {', '.join(self._policies) or 'none'}>"


def _compiling(spec: PolicySpec, lists: NamedLists, proxy: frozenset[str]) -> Batches[CompiledPolicy]:
    try:
        return (yield from compiling(spec, lists, proxy))
    except ValueError as error:
        log.error("the policy %s can't be applied, and refuses everything: %s", spec.name, error)
        return _refusing(spec)


def _refusing(spec: PolicySpec) -> CompiledPolicy:
    return compile_policy(PolicySpec(spec.id, spec.name, (_UNUSABLE,)), NO_LISTS)


def new_facts(
    target: Authority,
    client_ip: str,
    listen_port: int,
    user: str,
    tags: tuple[str, ...],
    method: str,
    path: str,
    params: Mapping[str, str],
    at: float,
) -> Facts:
    """What rules may ask about a request of `at`, in Unix seconds; 0 is now."""
    host, port, literal = target.host, target.port, target.literal
    return Facts(host, port, literal, client_ip, at or time.time(), user, tags, method, path, params, listen_port)


NO_POLICIES: Final = PolicySet({}, ("", ""))
"""Of a proxy that has none: it refuses everything of an account that has one, until that is here."""
