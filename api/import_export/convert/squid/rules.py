"""Makes the policy: the access lists, the choice of upstreams, and source addresses, in one list of rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from api.import_export.convert.decisions import (
    APART,
    REVISE,
    Condition,
    Line,
    Part,
    TooManySteps,
    Walk,
    accept,
    offered,
)
from api.import_export.convert.policy_rules import RuleWriter, TooManyRules
from api.import_export.convert.regions import EVERYTHING, Region
from api.import_export.convert.report import Effect
from api.import_export.convert.squid.acls import Listener
from api.import_export.convert.squid.gathered import ACCESS, DelayPool, Gathered, Peer
from api.import_export.convert.squid.pools import Pools
from api.import_export.convert.statements import Place, Statement, named

Next = Callable[[Region], None]

DENY = {"use": "deny"}
DIRECT = "direct"
HIERARCHICAL = Condition((Region(methods=frozenset({"GET", "TRACE"})),))
"""What squid asks upstreams for unless it has to: what it may find in a cache, and what looks for them."""


class PolicyMaker:
    """The policy for one listener."""

    def __init__(self, gathered: Gathered, listener: Listener, pools: Pools, timezone: str) -> None:
        self._gathered = gathered
        self._listener = listener
        self._pools = pools
        self._writer = RuleWriter(gathered.draft, timezone)
        self._label = ""
        self._order = 0
        self._decided: list[Region] = []

    def rules(self) -> list[dict[str, Any]]:
        """All rules. More than a policy may have: one rule, which refuses everything."""
        try:
            for statement, _why in self._gathered.blocks:
                self._writer.add(f"not converted, {self._named(statement)}", "", EVERYTHING, self._refusal(statement))
            self._access(ACCESS, EVERYTHING)
            return self._writer.rules()
        except (TooManyRules, TooManySteps):
            why = "the lists have so many negations that a policy can't hold them"
            self._gathered.report.add(
                Effect.REFUSES, self._first(), why, "write allow lines for what is left, in order"
            )
            return [{"name": "not converted: too many rules", "match": {}, "action": DENY}]

    def _first(self) -> Statement | None:
        return next(iter(self._gathered.lists.get("http_access", [])), None)

    def _named(self, statement: Statement) -> str:
        return named(statement, self._gathered.main)

    @staticmethod
    def _refusal(statement: Statement) -> dict[str, Any]:
        return {"use": "deny", "reason": f"{statement.name} in line {statement.place.line} was not converted"}

    # --- access ---

    def _access(self, names: Sequence[str], region: Region) -> None:
        """Each list that allows a request leaves it to the next."""
        if not names:
            self._route(region)
            return
        name, statements = names[0], self._gathered.lists.get(names[0], [])
        if not statements and name != "http_access":
            self._access(names[1:], region)
            return
        self._choose(
            statements,
            region,
            allowed=lambda part: self._access(names[1:], part),
            denied=lambda part: self._add(part, DENY),
            name=name,
        )

    def _choose(
        self,
        statements: Sequence[Statement],
        region: Region,
        allowed: Next,
        denied: Next,
        name: str,
        strict: str = "deny",
    ) -> None:
        """Walk through `NAME allow|deny ACL…`. Without a line that matches, the opposite of the last one holds.

        Lines with `strict` may match more than they say: if these allow, what they match beyond `region` is refused.
        """
        lines = [line for each in statements if (line := self._line(each, strict)) is not None]
        default = bool(statements) and statements[-1].words[:1] == ("deny",)
        order = {id(each): index for index, each in enumerate(statements)}

        def leaf(part: Region, line: Line | None) -> None:
            allows = default if line is None else line.statement.words[0] == "allow"
            outer = self._label, self._order
            if name in ACCESS and not (allows and self._label):
                self._label = "no line matches" if line is None else self._named(line.statement)
                self._order = len(order) if line is None else order[id(line.statement)]
            (allowed if allows else denied)(part)
            self._label, self._order = outer

        refuse = None if strict == "deny" else partial(self._add, action=DENY)
        Walk(lines, leaf, self._unclear, self._decided, refuse).run(region)

    def _line(self, statement: Statement, strict: str) -> Line | None:
        if statement.words[:1] not in (("allow",), ("deny",)):
            self._gathered.report.add(Effect.LOST, statement, "says neither allow nor deny", "remove the line")
            return None
        parts = accept(self._parts(statement.words[1:]), statement, self._gathered.accepted, self._gathered.report)
        return Line(statement, statement.words[0] == strict, parts)

    def _parts(self, names: Sequence[str]) -> tuple[Part, ...]:
        find = self._gathered.acls.condition
        return tuple(Part(find(name.removeprefix("!"), self._listener), name.startswith("!")) for name in names)

    def _unclear(self, line: Line, why: str) -> None:
        denies = line.statement.words[:1] == ("deny",)
        effect = "it refuses more than it did" if denies else "it allows less than it did"
        if line.statement.name not in ACCESS:
            effect = "it holds for more requests" if line.closed else "it holds for fewer requests"
            effect = "what it may hold for is refused" if line.closed and why == APART else effect
        instead = REVISE + offered(line, self._gathered.accepted)
        self._gathered.report.add(Effect.REFUSES, line.statement, f"{why}; {effect}", instead)

    # --- the way ---

    def _route(self, region: Region) -> None:
        """Directly, or by which upstreams."""
        if not self._gathered.peers:
            self._egress(region, DIRECT)
            return
        self._switch("always_direct", region, self._direct, self._must_be_direct_or_not)

    def _must_be_direct_or_not(self, region: Region) -> None:
        self._switch("never_direct", region, partial(self._by_peers, only=True), self._by_default, strict="allow")

    def _switch(self, name: str, region: Region, yes: Next, no: Next, strict: str = "deny") -> None:
        statements = self._gathered.lists.get(name, [])
        if statements:
            self._choose(statements, region, yes, no, name, strict)
        else:
            no(region)

    def _direct(self, region: Region) -> None:
        self._egress(region, DIRECT)

    def _by_default(self, region: Region) -> None:
        """What may be cached goes to upstreams, and the rest directly, unless the switches say otherwise."""
        switches = self._gathered.switches
        if switches.get("prefer_direct") == "on":
            self._remark_peers("squid tries upstreams where a target can't be reached directly (prefer_direct)")
            self._direct(region)
        else:
            self._by_peers(region)

    def _by_peers(self, region: Region, chosen: tuple[Peer, ...] = (), index: int = 0, only: bool = False) -> None:
        """The upstreams that their own lists allow, one after another; `only`: without one it fails."""
        peers = list(self._gathered.peers.values())
        if index == len(peers):
            self._use(region, chosen, only)
            return
        peer = peers[index]
        with_it: Next = partial(self._by_peers, chosen=(*chosen, peer), index=index + 1, only=only)
        without: Next = partial(self._by_peers, chosen=chosen, index=index + 1, only=only)
        if peer.access:
            self._choose(peer.access, region, with_it, without, "cache_peer_access")
        else:
            with_it(region)

    def _use(self, region: Region, chosen: tuple[Peer, ...], only: bool) -> None:
        """Without an upstream squid goes directly, unless it must not: there it fails."""
        if chosen and only:
            self._egress(region, self._pools.use(chosen))
        elif chosen:
            self._remark_peers("when no upstream is up, squid goes directly, and a proxy here refuses with 502")
            self._by_hierarchy(region, self._pools.use(chosen))
        elif only:
            statement = self._gathered.lists["never_direct"][0]
            why = "no cache_peer takes some requests that must not go directly: squid fails (502), a rule refuses (403)"
            self._gathered.report.add(Effect.DIFFERS, statement, why)
            self._add(region, {**DENY, "reason": "no upstream may be used"})
        else:
            self._direct(region)

    def _by_hierarchy(self, region: Region, use: str) -> None:
        """What squid does not look for in caches goes directly, unless a switch says otherwise."""
        if self._gathered.switches.get("nonhierarchical_direct") == "off":
            self._egress(region, use)
            return
        self._remark_peers(
            "squid also goes directly for requests with Authorization, and to hosts that it has measured to be near"
        )
        line = Line(Statement(Place("", 0), "nonhierarchical_direct", ("allow",)), False, (Part(HIERARCHICAL),))

        def leaf(part: Region, found: Line | None) -> None:
            self._egress(part, DIRECT if found is None else use)

        Walk([line], leaf, self._unclear, self._decided).run(region)

    def _remark_peers(self, why: str) -> None:
        first = next(iter(self._gathered.peers.values())).statement
        self._gathered.report.add(Effect.DIFFERS, first, why, "see the rules that use upstreams, and change their use")

    # --- source addresses ---

    def _egress(self, region: Region, use: str) -> None:
        """By the lines `tcp_outgoing_address ADDRESS ACL…`. Without one that matches it is the proxy's own."""
        sources = {id(each.statement): each.addresses for each in self._gathered.sources}
        lines = [Line(each.statement, False, self._parts(each.statement.words[1:])) for each in self._gathered.sources]

        def leaf(part: Region, line: Line | None) -> None:
            egress = [] if line is None else sources[id(line.statement)]
            action: dict[str, Any] = {"use": use, **({"egress": egress} if egress else {})}
            self._limit(part, action, self._gathered.limited)

        Walk(lines, leaf, self._unclear, self._decided).run(region)

    # --- bandwidth ---

    def _limit(self, region: Region, action: dict[str, Any], pools: Sequence[DelayPool]) -> None:
        """The first delay pool that has the request limits it."""
        if not pools:
            self._add(region, action)
            return
        limits = {"bandwidth_out": pools[0].aggregate}
        self._choose(
            pools[0].access,
            region,
            allowed=lambda part: self._add(part, {**action, "limits": limits}),
            denied=lambda part: self._limit(part, action, pools[1:]),
            name="delay_access",
            strict="allow",
        )

    def _add(self, region: Region, action: dict[str, Any]) -> None:
        """With upstreams the way is in the name, too: a line may have several."""
        use = str(action["use"])
        by = f", {use.removeprefix('pool:')}" if self._gathered.peers and use != "deny" else ""
        by = ", no upstream" if "reason" in action else by
        self._writer.add(self._label, by, region, action, self._order)
