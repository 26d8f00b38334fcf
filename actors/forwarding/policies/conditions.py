"""When the conditions of one rule hold, asked one by one: what `explain` shows, and what is left over by the tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from functools import lru_cache
from typing import Final, NamedTuple

from actors.accounts.records import WeekSchedule
from actors.bus.messages.specs import DENY, LimitsSpec, RuleSpec
from actors.forwarding.fleet_objects import NamedLists
from actors.forwarding.policies.facts import Facts, PathPattern
from actors.forwarding.policies.masks import Batches, NameMasks, map_in_batches
from actors.forwarding.protocols.http.header_changes import field_changes
from actors.net.egress_guard import embedded_ipv4
from config.model.choices import ANY_METHOD, TAG_PREFIX
from config.net.addresses import Address
from config.net.entries import Destination, ListDestination, ListHost, Network, read_egress, read_entry, read_network
from config.net.names import Ports

CACHED_SCHEDULES = 256
NO_PROXY: Final = frozenset[str]()


class ConditionOutcome(Enum):
    """Whether a condition holds. `UNKNOWN`: the address of the target decides."""

    NO = "no"
    YES = "yes"
    UNKNOWN = "unknown"


class Entries(NamedTuple):
    """What a rule has many of."""

    destinations: list[Destination]
    lists: list[ListDestination]
    clients: list[Network]
    paths: list[PathPattern]


class Rule:
    """One rule, read. `index` is its place in the policy."""

    __slots__ = ("_known", "clients", "deny", "destinations", "headers", "http_only", "index", "is_here", "limited",
    "listen_ports", "lists", "methods", "names", "paths", "schedule", "spec")  # fmt: skip

    def __init__(
        self, spec: RuleSpec, index: int, lists: NamedLists, entries: Entries, proxy: frozenset[str] = NO_PROXY
    ) -> None:
        """`entries` are those of `spec`, read; `proxy` as for `reading`. Raises `ValueError` as that does."""
        self.spec = spec
        self.index = index
        self.deny = spec.use == DENY
        """A rule that refuses holds wherever it might; any other only where it certainly does."""
        self.is_here = not (spec.proxies and proxy.isdisjoint(spec.proxies))
        """Whether it is for this proxy."""
        self.limited = spec.limits != LimitsSpec()
        """Whether it has limits."""
        self.http_only = bool(spec.methods or spec.paths or spec.set_headers or spec.remove_headers)
        """Whether it is about plain HTTP, and never matches a tunnel."""
        self.headers = field_changes(spec.set_headers, spec.remove_headers)
        """What it changes in the heads of requests."""
        self.methods = tuple(map(str.upper, spec.methods) if self.deny else spec.methods)
        """In upper case for a rule that refuses: for such a one letters are compared without regard to case."""
        for each in spec.egress:
            read_egress(each)
        self._known = lists
        self.destinations = tuple(entries.destinations)
        self.lists = tuple((each.host, each.ports) for each in entries.lists)
        self.clients = tuple(entries.clients)
        self.paths = tuple(entries.paths)
        self.listen_ports = tuple(Ports(*each) for each in spec.listen_ports)
        self.names: NameMasks | None = None
        """The table of its policy that has its names; None where it isn't in one."""
        self.schedule: WeekSchedule | None = None if spec.schedule is None else schedule_of(spec.schedule)

    def outcomes(self, facts: Facts, address: Address | None) -> Iterator[tuple[ConditionOutcome, str]]:
        """Whether each condition of the rule holds, and a sentence for where it doesn't; the destination is last."""
        if self.http_only and not facts.method:
            yield ConditionOutcome.NO, "the rule is about plain HTTP, and this is a tunnel"
        elif self.spec.tunnel and facts.method:
            yield ConditionOutcome.NO, "the rule is about tunnels, and this is plain HTTP"
        else:
            for condition in _CONDITIONS:
                if condition.wanted(self):
                    yield _outcome(condition.holds(self, facts)), condition.sentence(facts)
        if self.spec.destinations:
            outcome = self.destination(facts, address)
            unknown = "destinations: the address of the target decides"
            no_entry = f"destinations: no entry matches {facts.host}:{facts.port}"
            yield outcome, unknown if outcome is ConditionOutcome.UNKNOWN else no_entry

    def outcome(self, facts: Facts, address: Address | None) -> ConditionOutcome:
        """Whether the rule matches."""
        unknown = False
        for outcome, _sentence in self.outcomes(facts, address):
            if outcome is ConditionOutcome.NO:
                return outcome
            unknown = unknown or outcome is ConditionOutcome.UNKNOWN
        return ConditionOutcome.UNKNOWN if unknown else ConditionOutcome.YES

    # --- conditions ---

    def destination(self, facts: Facts, address: Address | None) -> ConditionOutcome:
        """Whether an entry holds for the target."""
        if any(_names(entry, facts) for entry in self.destinations) or self._list_names(facts):
            return ConditionOutcome.YES
        if address is None:
            possible = any(_is_network_for(entry, facts.port) for entry in self.destinations)
            possible = possible or any(self._known.judges_addresses(host) for host in self._lists_at(facts.port))
            return ConditionOutcome.UNKNOWN if possible else ConditionOutcome.NO
        return _outcome(any(self._address_matches(face, facts.port) for face in self.faces(address)))

    def faces(self, address: Address) -> tuple[Address, ...]:
        """What counts as the address: a rule that refuses holds for the IPv4 address inside an IPv6 one as well."""
        inner = embedded_ipv4(address) if self.deny else None
        return (address,) if inner is None else (address, inner)

    def _lists_at(self, port: int) -> Iterator[ListHost]:
        """The lists in entries that hold for a port."""
        return (host for host, (low, high) in self.lists if low <= port <= high)

    def _list_names(self, facts: Facts) -> bool:
        """Whether a list holds by the name alone. One that can't be read holds for everything in a rule that refuses,
        and for nothing in any other."""
        for host in self._lists_at(facts.port):
            named = self._known.find(host)
            if self.deny if named is None else not facts.literal and named.by_name(facts.name) is not None:
                return True
        return False

    def names_host(self, host: str, port: int) -> bool:
        """Whether the rule, which matches, names this host: `*`, ports alone and networks name none."""
        name = host.lower().removesuffix(".")
        if self.names is not None and self.names.naming(name, port) >> self.index & 1:
            return True
        named = (self._known.find(each) for each in self._lists_at(port)) if self.lists else ()
        return any(each is not None and each.by_name(name) is not None for each in named)

    def deciding_list(self, facts: Facts, address: Address | None) -> str:
        """The first list that has the target of a rule that matches; empty where an entry of the rule names it."""
        if any(_names(entry, facts) for entry in self.destinations):
            return ""
        faces = () if address is None else self.faces(address)
        for host in self._lists_at(facts.port):
            named = self._known.find(host)
            if named is None:
                found = self.deny
            else:
                found = not facts.literal and named.by_name(facts.name) is not None
                found = found or any(named.by_address(face) is not None for face in faces)
            if found:
                return host.name
        return ""

    def _address_matches(self, address: Address, port: int) -> bool:
        named = (self._known.find(host) for host in self._lists_at(port))
        if any(each is not None and each.by_address(address) is not None for each in named):
            return True
        return any(
            _is_network_for(entry, port) and entry.host.version == address.version and address in entry.host
            for entry in self.destinations
            if not isinstance(entry.host, str)
        )

    def path_holds(self, facts: Facts) -> bool:
        """Whether a path holds: for one that refuses in one reading, for any other in all of them."""
        found = facts.readings
        if not found:
            return self.deny
        paths = [pattern for pattern in self.paths if pattern.query_matches(facts.query, self.deny)]
        strict = any(pattern.matches(found[0]) for pattern in paths)
        lenient = any(pattern.lenient.matches(found[-1]) for pattern in paths)
        return strict or lenient if self.deny else strict and lenient

    def method_holds(self, facts: Facts) -> bool:
        """Whether the method is named; for a rule that refuses letters are compared without regard to case."""
        return ANY_METHOD in self.methods or (facts.method.upper() if self.deny else facts.method) in self.methods

    def account_holds(self, facts: Facts) -> bool:
        """Whether the account is named, by itself or by a tag."""
        accounts = self.spec.accounts
        named = facts.user in accounts and not facts.user.startswith(TAG_PREFIX)
        return named or any(TAG_PREFIX + tag in accounts for tag in facts.tags)

    def client_holds(self, facts: Facts) -> bool:
        """Whether the client's address is in one of the networks."""
        return any(facts.client in network for network in self.clients)

    def listen_port_holds(self, facts: Facts) -> bool:
        """Whether the client came to one of these ports of the proxy."""
        return any(facts.listen_port in ports for ports in self.listen_ports)

    def params_hold(self, facts: Facts) -> bool:
        """Whether all parameters were given with these values."""
        return all(facts.params.get(name) == value for name, value in self.spec.params)

    def has_ended(self, facts: Facts) -> bool:
        """Whether its time is over."""
        return 0 < self.spec.until <= facts.now

    def is_open(self, facts: Facts) -> bool:
        """Whether its schedule is open."""
        return self.schedule is None or self.schedule.is_open(facts.now)


def reading(spec: RuleSpec, index: int, lists: NamedLists, proxy: frozenset[str] = NO_PROXY) -> Batches[Rule]:
    """Read it. `proxy` are the words by which it may name the proxy.

    Raises `ValueError` for an entry or a time zone that is unknown, and a field that no rule may set.
    """
    destinations: list[Destination] = []
    of_lists: list[ListDestination] = []

    def read_destination(text: str) -> None:
        entry = read_entry(text)
        if isinstance(entry, ListDestination):
            of_lists.append(entry)
        else:
            destinations.append(entry)

    yield from map_in_batches(read_destination, spec.destinations)
    clients = yield from map_in_batches(read_network, spec.clients)
    paths = yield from map_in_batches(PathPattern, spec.paths)
    return Rule(spec, index, lists, Entries(destinations, of_lists, clients, paths), proxy)


class _Condition(NamedTuple):
    """`wanted`: whether a rule has it; `sentence` says why it doesn't hold."""

    holds: Callable[[Rule, Facts], bool]
    wanted: Callable[[Rule], bool]
    sentence: Callable[[Facts], str]


_CONDITIONS = (
    _Condition(Rule.account_holds, lambda rule: bool(rule.spec.accounts), lambda facts: f"accounts: {_user(facts)}"),
    _Condition(
        Rule.client_holds,
        lambda rule: bool(rule.clients),
        lambda facts: f"clients: {facts.client_ip} is in none of them",
    ),
    _Condition(
        Rule.listen_port_holds,
        lambda rule: bool(rule.listen_ports),
        lambda facts: f"listen_ports: {facts.listen_port} is none of them",
    ),
    _Condition(
        Rule.method_holds,
        lambda rule: bool(rule.spec.methods),
        lambda facts: f"methods: {facts.method} is none of them",
    ),
    _Condition(Rule.path_holds, lambda rule: bool(rule.paths), lambda facts: f"paths: {_path(facts)}"),
    _Condition(Rule.params_hold, lambda rule: bool(rule.spec.params), lambda facts: f"params: {_params(facts)}"),
    _Condition(Rule.is_open, lambda rule: rule.schedule is not None, lambda _facts: "schedule: it is closed"),
    _Condition(
        lambda rule, _facts: rule.is_here,
        lambda rule: bool(rule.spec.proxies),
        lambda _facts: "proxies: this one is none of them",
    ),
    _Condition(
        lambda rule, facts: not rule.has_ended(facts),
        lambda rule: rule.spec.until > 0,
        lambda _facts: "until: the rule has ended",
    ),
)


def _user(facts: Facts) -> str:
    if not facts.user:
        return "the request is of no account"
    tags = f", with the tags {', '.join(facts.tags)}," if facts.tags else ""
    return f"{facts.user}{tags} is none of them"


def _params(facts: Facts) -> str:
    if not facts.params:
        return "the user name has none"
    return f"{', '.join(f'{name}={value}' for name, value in facts.params.items())} is not all of them"


def _path(facts: Facts) -> str:
    found = facts.readings
    if not found:
        return "the path can be read in several ways, so that only rules that refuse match it"
    return f"{' or '.join(found)} matches none of them" + (" in every reading" if len(found) > 1 else "")


@lru_cache(maxsize=CACHED_SCHEDULES)
def schedule_of(data: tuple[str, tuple[tuple[tuple[int, ...], int, int], ...]]) -> WeekSchedule:
    """One object for equal schedules. Raises `ValueError` for a time zone that this machine doesn't know."""
    from zoneinfo import ZoneInfoNotFoundError  # only rules with a schedule pay for time zones

    try:
        return WeekSchedule(data)
    except ZoneInfoNotFoundError as error:
        raise ValueError(f"unknown time zone: {error}") from error


def _outcome(holds: object) -> ConditionOutcome:
    return ConditionOutcome.YES if holds else ConditionOutcome.NO


def _names(entry: Destination, facts: Facts) -> bool:
    """Whether an entry holds by the name of the target, or by its port alone."""
    host = entry.host
    if not isinstance(host, str) or not entry.ports[0] <= facts.port <= entry.ports[1]:
        return False
    name = facts.name
    return host in ("*", name) or (host.startswith("*.") and name.endswith(host[1:]) and len(name) > len(host) - 1)


def _is_network_for(entry: Destination, port: int) -> bool:
    return not isinstance(entry.host, str) and entry.ports[0] <= port <= entry.ports[1]
