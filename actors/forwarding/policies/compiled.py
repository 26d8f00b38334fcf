"""A policy, compiled: finds the first rule that matches without asking each.

Each condition has a table from what a request says to the rules that it satisfies, as bits (`masks`). What no table
can tell is asked of the rules that are left, in order: lists, patterns with `*` inside or with queries, schedules.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from actors.accounts.records import WeekSchedule
from actors.bounded import keep
from actors.bus.messages.specs import PolicySpec
from actors.forwarding.fleet_objects import NamedLists
from actors.forwarding.policies.conditions import NO_PROXY, ConditionOutcome, Rule, reading
from actors.forwarding.policies.facts import Facts
from actors.forwarding.policies.masks import (
    NONE,
    Batches,
    NameMasks,
    NetworkMasks,
    PathMasks,
    WordMasks,
    at_once,
    bits,
    put_in,
)
from actors.net.egress_guard import embedded_ipv4
from config.model.choices import ANY_METHOD, TAG_PREFIX
from config.net.addresses import Address
from config.net.entries import Destination, Network

CACHED_CLIENTS: Final = 256
SCHEDULE_STEP: Final = 60
"""Seconds for which a schedule's outcome holds: windows begin and end with a minute."""


class FoundRule(NamedTuple):
    """The first rule that matches and is enforced, None without one; `reported` are those before it that would be.

    `open`: the address of the target decides whether there is one; nothing else is of use then.
    """

    rule: Rule | None
    reported: tuple[Rule, ...] = ()
    open: bool = False


NOTHING: Final = FoundRule(None)
OPEN: Final = FoundRule(None, open=True)


class CompiledPolicy:
    """One policy. Pure; a changed one is a new object."""

    def __init__(self, spec: PolicySpec, rules: tuple[Rule, ...]) -> None:
        """To be used after `index` alone; `compiling` does both."""
        self.id = spec.id
        self.name = spec.name
        self.rules = rules
        self._every = (1 << len(rules)) - 1
        self._plain_http = bits(rule.index for rule in rules if rule.http_only)
        self._tunnels = bits(rule.index for rule in rules if rule.spec.tunnel)
        self._deny = bits(rule.index for rule in rules if rule.deny)
        self._asked = bits(rule.index for rule in rules if _is_asked(rule))
        self._accounts = WordMasks(self._without("accounts"))
        self._methods = WordMasks(self._without("methods"))
        self._params = WordMasks(self._without("params"))
        self._strict_paths = self._lenient_paths = PathMasks()
        self._any_path = self._without("paths")
        self._with_paths = self._every & ~self._any_path
        self._names, self._networks = NameMasks(), NetworkMasks()
        for rule in rules:
            rule.names = self._names
        self._any_destination = self._without("destinations")
        self._with_lists = bits(rule.index for rule in rules if rule.lists)
        self._here = bits(rule.index for rule in rules if rule.is_here)
        self._clients = NetworkMasks()
        self._any_client = self._without("clients")
        self._known_clients: dict[str, int] = {}
        self._with_listen_ports = bits(rule.index for rule in rules if rule.listen_ports)
        self._known_listen_ports: dict[int, int] = {}
        self._minute = 0.0
        self._closed = NONE
        """Rules that have ended, or whose schedule is closed in this minute, as far as they were asked."""
        self._open: dict[WeekSchedule, bool] = {}

    # --- tables ---

    def _without(self, condition: str) -> int:
        return bits(rule.index for rule in self.rules if not getattr(rule.spec, condition))

    def index(self) -> Batches[None]:
        """Fill the tables."""
        yield from self._index_words()
        yield from self._index_paths()
        yield from self._index_hosts()

    def _index_words(self) -> Batches[None]:
        rules = self.rules
        accounts = ((account, rule.index) for rule in rules for account in rule.spec.accounts)
        yield from put_in(self._accounts.add, accounts)
        yield from put_in(self._methods.add, ((method, rule.index) for rule in rules for method in rule.methods))
        first = ((f"{name}\0{value}", rule.index) for rule in rules for name, value in rule.spec.params[:1])
        yield from put_in(self._params.add, first)

    def _index_paths(self) -> Batches[None]:
        rules = self.rules
        yield from self._strict_paths.fill((pattern, rule.index) for rule in rules for pattern in rule.paths)
        if any(pattern.lenient is not pattern for rule in rules for pattern in rule.paths):
            self._lenient_paths = PathMasks()
            lenient = ((pattern.lenient, rule.index) for rule in rules for pattern in rule.paths)
            yield from self._lenient_paths.fill(lenient)

    def _index_hosts(self) -> Batches[None]:
        yield from put_in(self._add_client, ((net, rule.index) for rule in self.rules for net in rule.clients))
        entries = ((entry, rule.index) for rule in self.rules for entry in rule.destinations)
        yield from put_in(self._add_destination, entries)
        yield from self._clients.finish()
        yield from self._names.finish()
        yield from self._networks.finish()

    def _add_client(self, added: tuple[Network, int]) -> None:
        network, index = added
        self._clients.add(network, (0, 0), index)

    def _add_destination(self, added: tuple[Destination, int]) -> None:
        entry, index = added
        if isinstance(entry.host, str):
            self._names.add(entry.host, entry.ports, index)
        else:
            self._networks.add(entry.host, entry.ports, index)

    # --- decisions ---

    def find(self, facts: Facts, address: Address | None) -> FoundRule:
        """The first rule that matches; `address` None: it isn't known yet."""
        left = self._by_request(facts)
        if not left:
            return NOTHING
        certain = self._any_destination | self._names.at(facts.name, facts.port)
        if address is None:
            possible = self._networks.possible(facts.port) | self._with_lists
        else:
            certain |= self._networks.at(address, facts.port)
            inner = embedded_ipv4(address)
            if inner is not None:
                certain |= self._networks.at(inner, facts.port) & self._deny
            possible = self._with_lists
        return self._first(facts, address, left & (certain | possible), certain)

    def _by_request(self, facts: Facts) -> int:
        """The rules that match but for the destination, as far as tables can tell."""
        left = self._known_clients.get(facts.client_ip)
        if left is None:
            left = self._by_client(facts)
        if self._with_listen_ports:
            left &= self._by_listen_port(facts.listen_port)
        if self._accounts.words:
            left &= self._accounts.at(_account_words(facts))
        if self._params.words:
            left &= self._params.at([f"{name}\0{value}" for name, value in facts.params.items()])
        method = facts.method
        if not method:
            return left & ~self._plain_http
        left &= ~self._tunnels
        if self._methods.words:
            left &= self._by_method(method)
        return left & self._by_path(facts) if left & self._with_paths else left

    def _by_method(self, method: str) -> int:
        masks = self._methods.at((method, ANY_METHOD))
        upper = method.upper()
        return masks if upper == method else masks & ~self._deny | self._methods.at((upper, ANY_METHOD)) & self._deny

    def _by_client(self, facts: Facts) -> int:
        known = (self._any_client | self._clients.at(facts.client, 0)) & self._here
        keep(self._known_clients, facts.client_ip, known, CACHED_CLIENTS)
        return known

    def _by_listen_port(self, port: int) -> int:
        known = self._known_listen_ports.get(port)
        if known is None:
            holds = bits(rule.index for rule in self.rules if any(port in each for each in rule.listen_ports))
            known = self._known_listen_ports[port] = self._every & ~self._with_listen_ports | holds
        return known

    def _by_path(self, facts: Facts) -> int:
        """The rules whose paths hold, or may hold where a pattern has a `*` inside."""
        found = facts.readings
        if not found:
            return self._any_path | self._deny
        strict = self._strict_paths.at(found[0])
        if len(found) == 1 and self._lenient_paths is self._strict_paths:
            return self._any_path | strict
        lenient = self._lenient_paths.at(found[-1])
        return self._any_path | strict & lenient | (strict | lenient) & self._deny

    def _first(self, facts: Facts, address: Address | None, candidates: int, certain: int) -> FoundRule:
        if facts.now // SCHEDULE_STEP != self._minute:
            self._minute, self._closed = facts.now // SCHEDULE_STEP, NONE
            self._open.clear()
        candidates &= ~self._closed
        reported: list[Rule] = []
        while candidates:
            bit = candidates & -candidates
            candidates ^= bit
            rule = self.rules[bit.bit_length() - 1]
            if self._asked & bit and not self._holds(rule, facts, bit):
                continue
            if not certain & bit:
                outcome = rule.destination(facts, address) if rule.lists else ConditionOutcome.UNKNOWN
                if outcome is ConditionOutcome.NO:
                    continue
                if outcome is ConditionOutcome.UNKNOWN:
                    return OPEN
            if not rule.spec.report:
                return FoundRule(rule, tuple(reported))
            reported.append(rule)
        return FoundRule(None, tuple(reported)) if reported else NOTHING

    def _holds(self, rule: Rule, facts: Facts, bit: int) -> bool:
        """What tables can't tell."""
        if rule.spec.params[1:] and not rule.params_hold(facts):
            return False
        if rule.paths and not rule.path_holds(facts):
            return False
        if rule.has_ended(facts):
            self._closed |= bit
            return False
        schedule = rule.schedule
        if schedule is None:
            return True
        is_open = self._open.get(schedule)
        if is_open is None:
            is_open = self._open[schedule] = rule.is_open(facts)
        if not is_open:
            self._closed |= bit
        return is_open

    def __repr__(self) -> str:
        return f"<CompiledPolicy {self.name}: {len(self.rules)} rules>"


def compiling(spec: PolicySpec, lists: NamedLists, proxy: frozenset[str] = NO_PROXY) -> Batches[CompiledPolicy]:
    """Compile a policy; `proxy` as for `reading`. Raises `ValueError` for what can't be read."""
    rules: list[Rule] = []
    for index, each_spec in enumerate(spec.rules):
        rules.append((yield from reading(each_spec, index, lists, proxy)))
    policy = CompiledPolicy(spec, tuple(rules))
    yield from policy.index()
    return policy


def compile_policy(spec: PolicySpec, lists: NamedLists, proxy: frozenset[str] = NO_PROXY) -> CompiledPolicy:
    """Compile a policy at once. Raises `ValueError` for what can't be read."""
    return at_once(compiling(spec, lists, proxy))


def _is_asked(rule: Rule) -> bool:
    """Whether something about the rule is in no table."""
    inside = any(pattern.is_for_queries or not (pattern.exact or pattern.is_prefix) for pattern in rule.paths)
    return inside or rule.schedule is not None or len(rule.spec.params) > 1 or rule.spec.until > 0


def _account_words(facts: Facts) -> list[str]:
    words = [TAG_PREFIX + tag for tag in facts.tags]
    if facts.user and not facts.user.startswith(TAG_PREFIX):
        words.append(facts.user)
    return words
