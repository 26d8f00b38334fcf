"""A policy, compiled: finds the first rule that matches without asking each.

Each condition has a table from what a request says to the rules that it satisfies, as bits (`masks`). What no table
can tell is asked of the rules that are left, in order: lists, patterns with `*` inside, schedules.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from actors.accounts.schedule import Schedule
from actors.bounded import keep
from actors.bus.messages.policies import PolicySpec
from actors.forwarding.policies.conditions import TAG, Lists, Outcome, Rule
from actors.forwarding.policies.facts import Facts, inner_address
from actors.forwarding.policies.headers import check_fields
from actors.forwarding.policies.masks import NONE, NameMasks, NetworkMasks, WordMasks, bits
from config.net.ip import Address

CLIENTS_KEPT: Final = 256
SCHEDULE_STEP: Final = 60
"""Seconds for which a schedule's outcome holds: windows begin and end with a minute."""


class Found(NamedTuple):
    """The first rule that matches and is enforced, None without one; `reported` are those before it that would be.

    `open`: the address of the target decides whether there is one; nothing else is of use then.
    """

    rule: Rule | None
    reported: tuple[Rule, ...] = ()
    open: bool = False


NOTHING: Final = Found(None)
OPEN: Final = Found(None, open=True)


class CompiledPolicy:
    """One policy. Pure; a changed one is a new object."""

    def __init__(self, spec: PolicySpec, lists: Lists) -> None:
        """Raises `ValueError` for what can't be read."""
        for each in spec.rules:
            check_fields(each)
        self.id = spec.id
        self.name = spec.name
        self.rules = rules = tuple(Rule(each, index, lists) for index, each in enumerate(spec.rules))
        self._every = (1 << len(rules)) - 1
        self._plain_http = bits(rule.index for rule in rules if rule.http_only)
        self._deny = bits(rule.index for rule in rules if rule.deny)
        self._asked = bits(rule.index for rule in rules if _is_asked(rule))
        self._index_words()
        self._index_paths()
        self._index_destinations()
        self._clients = NetworkMasks((net, (0, 0), rule.index) for rule in rules for net in rule.clients)
        self._any_client = bits(rule.index for rule in rules if not rule.clients)
        self._known_clients: dict[str, int] = {}
        self._minute = 0.0
        self._closed = NONE
        """Rules whose schedule is closed in this minute, as far as they were asked."""
        self._open: dict[Schedule, bool] = {}

    # --- tables ---

    def _index_words(self) -> None:
        rules = self.rules
        self._accounts = WordMasks(self._without("accounts"), _words(rules, "accounts"))
        self._methods = WordMasks(self._without("methods"), _words(rules, "methods"))
        first = [(f"{name}={value}", rule.index) for rule in rules for name, value in rule.spec.params[:1]]
        self._params = WordMasks(self._without("params"), first)

    def _without(self, condition: str) -> int:
        return bits(rule.index for rule in self.rules if not getattr(rule.spec, condition))

    def _index_paths(self) -> None:
        exact: list[tuple[str, int]] = []
        prefixes: list[tuple[str, int]] = []
        for rule in self.rules:
            for pattern in rule.paths:
                (exact if pattern.exact else prefixes).append((pattern.prefix, rule.index))
        self._any_path = bits(rule.index for rule in self.rules if not rule.paths)
        self._with_paths = self._every & ~self._any_path
        self._exact_paths = WordMasks(NONE, exact)
        self._path_prefixes = WordMasks(NONE, prefixes)
        self._prefix_lengths = sorted({len(prefix) for prefix, _index in prefixes})

    def _index_destinations(self) -> None:
        entries = [(entry, rule.index) for rule in self.rules for entry in rule.destinations]
        self._names = NameMasks((each.host, each.ports, index) for each, index in entries if isinstance(each.host, str))
        self._networks = NetworkMasks(
            (each.host, each.ports, index) for each, index in entries if not isinstance(each.host, str)
        )
        self._any_destination = self._without("destinations")
        self._with_lists = bits(rule.index for rule in self.rules if rule.lists)

    # --- decisions ---

    def find(self, facts: Facts, address: Address | None) -> Found:
        """The first rule that matches; `address` None: it isn't known yet."""
        left = self._by_request(facts)
        if not left:
            return NOTHING
        certain = self._any_destination | self._names.at(facts.name, facts.port)
        if address is None:
            possible = self._networks.possible(facts.port) | self._with_lists
        else:
            certain |= self._networks.at(address, facts.port)
            inner = inner_address(address)
            if inner is not None:
                certain |= self._networks.at(inner, facts.port) & self._deny
            possible = self._with_lists
        return self._first(facts, address, left & (certain | possible), certain)

    def _by_request(self, facts: Facts) -> int:
        """The rules that match but for the destination, as far as tables can tell."""
        left = self._known_clients.get(facts.client_ip)
        if left is None:
            left = self._by_client(facts)
        if self._accounts.words:
            left &= self._accounts.at(_account_words(facts))
        if self._params.words:
            left &= self._params.at([f"{name}={value}" for name, value in facts.params.items()])
        method = facts.method
        if not method:
            return left & ~self._plain_http
        if self._methods.words:
            left &= self._by_method(method)
        return left & self._by_path(facts) if left & self._with_paths else left

    def _by_method(self, method: str) -> int:
        masks = self._methods.at((method,))
        upper = method.upper()
        return masks if upper == method else masks & ~self._deny | self._methods.at((upper,)) & self._deny

    def _by_client(self, facts: Facts) -> int:
        known = self._any_client | self._clients.at(facts.client, 0)
        keep(self._known_clients, facts.client_ip, known, CLIENTS_KEPT)
        return known

    def _by_path(self, facts: Facts) -> int:
        """The rules whose paths hold, or may hold where a pattern has a `*` inside."""
        found = [self._of_reading(reading) for reading in facts.readings]
        if not found:
            return self._any_path | self._deny
        some = every = found[0]
        for mask in found[1:]:
            some, every = some | mask, every & mask
        return self._any_path | every | some & self._deny

    def _of_reading(self, path: str) -> int:
        mask = self._exact_paths.at((path,))
        prefixes, longest = self._path_prefixes.words, len(path)
        for length in self._prefix_lengths:
            if length > longest:
                break
            mask |= prefixes.get(path[:length], NONE)
        return mask

    def _first(self, facts: Facts, address: Address | None, candidates: int, certain: int) -> Found:
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
                outcome = rule.destination(facts, address) if rule.lists else Outcome.UNKNOWN
                if outcome is Outcome.NO:
                    continue
                if outcome is Outcome.UNKNOWN:
                    return OPEN
            if not rule.spec.report:
                return Found(rule, tuple(reported))
            reported.append(rule)
        return Found(None, tuple(reported)) if reported else NOTHING

    def _holds(self, rule: Rule, facts: Facts, bit: int) -> bool:
        """What tables can't tell."""
        if rule.spec.params[1:] and not rule.params_hold(facts):
            return False
        if rule.paths and not rule.path_holds(facts):
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


def _is_asked(rule: Rule) -> bool:
    """Whether something about the rule is in no table."""
    inside = any(not (pattern.exact or pattern.is_prefix) for pattern in rule.paths)
    return inside or rule.schedule is not None or len(rule.spec.params) > 1


def _words(rules: tuple[Rule, ...], condition: str) -> Iterator[tuple[str, int]]:
    for rule in rules:
        for word in getattr(rule.spec, condition):
            yield word, rule.index


def _account_words(facts: Facts) -> list[str]:
    words = [TAG + tag for tag in facts.tags]
    if facts.user and not facts.user.startswith(TAG):
        words.append(facts.user)
    return words
