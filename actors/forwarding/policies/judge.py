"""The policies of one request, asked in their order: those of the account and of its plan, then that of the proxy.

The first that has a matching rule with a `use` decides which way the request goes. A rule without one decides within
its own policy alone: what it adds holds, and the next policy and the access rules are asked as well.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from actors.bus.messages.policies import DENY, DIRECT, POOL
from actors.forwarding.policies.compiled import CompiledPolicy
from actors.forwarding.policies.conditions import Rule
from actors.forwarding.policies.facts import Facts
from actors.forwarding.protocols.failures import Decider, Failure, denied_by_policy
from actors.forwarding.protocols.http.header_changes import HeaderChanges, merged
from config.net.ip import Address, plain


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


class Verdict(NamedTuple):
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


UNTOUCHED: Final = Verdict()
ADDRESSES_KEPT: Final = 1_024


class Judge:
    """Judges one request, by one consistent set of policies and at one moment."""

    __slots__ = ("_policies", "_verdicts", "addresses", "default", "facts", "settled")

    def __init__(self, policies: tuple[CompiledPolicy, ...], facts: Facts, default: str = DIRECT) -> None:
        """`default` is the way without policies: `direct`, or empty where the proxy has upstreams."""
        self._policies = policies
        self.facts = facts
        self.default = default
        self.settled: Verdict | None = None
        """The verdict by which the request goes its way, once that is chosen."""
        self.addresses: tuple[str, ...] = ()
        """The addresses by which it was chosen, if they had to be known; no other one may be connected to."""
        self._verdicts: dict[str, Verdict | None] = {}

    def by_name(self) -> Verdict | None:
        """The verdict whatever the target resolves to; None when its addresses decide."""
        if "" not in self._verdicts:
            self._verdicts[""] = self._judge(self.facts.address)
        return self._verdicts[""]

    def by_address(self, address: str) -> Verdict:
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
    def verdict(self) -> Verdict:
        """The verdict that holds without an address: the settled one, or that by the name."""
        return self.settled or self.by_name() or UNTOUCHED

    def way(self, verdict: Verdict) -> str:
        """`direct`, `pool:` and a name, `deny`, or empty for the upstreams of the proxy itself."""
        return verdict.use or self.default

    def goes_the_way(self, verdict: Verdict) -> bool:
        """Whether this verdict about an address has the same way as the request; a refusal is no way of its own."""
        if self.settled is None or verdict.use == DENY:
            return True
        return self.way(verdict) == self.way(self.settled)

    def _judge(self, address: Address | None) -> Verdict | None:
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
        return Verdict(tuple(applied), next(denied, None), tuple(counted))

    def __repr__(self) -> str:
        return f"<Judge of {self.facts.host}:{self.facts.port} by {[each.name for each in self._policies]}>"


@lru_cache(maxsize=ADDRESSES_KEPT)
def _parsed(address: str) -> Address:
    """Parsing one takes a fifth of a decision, and most requests go where others went."""
    return plain(address)
