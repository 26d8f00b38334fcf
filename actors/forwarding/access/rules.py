"""Access rules, compiled: which clients may use the proxy, and which targets may be connected to.

Deny wins over allow, and where there is an allow list everything that isn't in it is denied. A destination is matched
twice: by its name before it is resolved (`match_name`), which spares the resolver what is denied in any case, and with
each address that it resolved to (`match_address`). An IPv6 address that carries an IPv4 one is denied where the inner
one is, and is allowed only as what it is; a mapped one *is* the IPv4 address, since that is where the kernel connects.

Of several entries that match, one that matches by name is named before a network, and else the first. An entry that
names a list (`list:NAME`) matches what the list has at that moment. A list that can't be read allows nothing, and where
it would deny it denies everything.

Whatever the number of entries, matching is a few dictionary look-ups: one for each label of the name, and one for each
prefix length that occurs, and those of each list.

The destinations that an account and a credential allow and deny: rules of their own beside those of the proxy. All must
allow a target. They are enforced whatever the mode of the proxy's rules is.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from actors.bus.messages.specs import AccessSpec, AccountSpec
from actors.forwarding.fleet_objects import NO_LISTS, FoundList, NamedLists
from actors.forwarding.protocols.failures import NOTHING_DECIDED, Decider
from actors.net.egress_guard import embedded_ipv4
from config.net.addresses import Address, plain
from config.net.entries import ALL_PORTS, ListHost, Network, Ports, read_entry, read_network

CLIENT_DENIED: Final = "client_denied"
CLIENT_NOT_ALLOWED: Final = "client_not_allowed"
DESTINATION_DENIED: Final = "destination_denied"
DESTINATION_NOT_ALLOWED: Final = "destination_not_allowed"
REASONS: Final = (CLIENT_DENIED, CLIENT_NOT_ALLOWED, DESTINATION_DENIED, DESTINATION_NOT_ALLOWED)

PROXY: Final = "access"
ACCOUNT: Final = "account"
CREDENTIAL: Final = "credential"
"""Whose rules they are: the beginning of an entry's name and, but for the proxy's, of a reason."""

UNREADABLE: Final = "which can't be read"
"""Of a list in the name of an entry."""

Found = tuple[int, str]
"""The index of an entry that matches, and what of it does, where the entry is a list; else empty."""


class EntryMatch(NamedTuple):
    """`reason` is one of `REASONS`, or empty when it is allowed; `rule` is the deciding entry, empty without one;
    `decider` is that of a denial as clients may know it."""

    reason: str
    rule: str
    decider: Decider = NOTHING_DECIDED

    @property
    def denied(self) -> bool:
        """Whether it is denied."""
        return bool(self.reason)


ALLOWED: Final = EntryMatch("", "")


class _ByPort:
    """The first entry for each port, out of the ranges of one host: segments with their entry's index."""

    __slots__ = ("_indices", "_starts")

    def __init__(self, ranges: list[tuple[Ports, int]]) -> None:
        self._starts: list[int] = []
        self._indices: list[int | None] = []
        waiting = sorted(ranges)
        edges = sorted({edge for (low, high), _index in ranges for edge in (low, high + 1)})
        active: list[tuple[int, int]] = []
        position = 0
        for edge in edges:
            while position < len(waiting) and waiting[position][0][0] <= edge:
                (_low, high), index = waiting[position]
                heapq.heappush(active, (index, high))
                position += 1
            while active and active[0][1] < edge:
                heapq.heappop(active)
            self._starts.append(edge)
            self._indices.append(active[0][0] if active else None)

    def first(self, port: int) -> int | None:
        """The index of the first entry that holds for `port`."""
        found = bisect_right(self._starts, port) - 1
        return self._indices[found] if found >= 0 else None


class _Networks:
    """Networks of one IP version: for each prefix length that occurs a table of what stands before it."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._ranges: dict[int, dict[int, list[tuple[Ports, int]]]] = {}
        self._tables: list[tuple[int, dict[int, _ByPort]]] = []

    def add(self, network: Network, ports: Ports, index: int) -> None:
        shift = self._width - network.prefixlen
        table = self._ranges.setdefault(shift, {})
        table.setdefault(int(network.network_address) >> shift, []).append((ports, index))

    def compile(self) -> None:
        for shift, table in self._ranges.items():
            self._tables.append((shift, {number: _ByPort(ranges) for number, ranges in table.items()}))
        self._ranges.clear()

    def find(self, number: int) -> Iterator[_ByPort]:
        for shift, table in self._tables:
            found = table.get(number >> shift)
            if found is not None:
                yield found


class EntryList:
    """One list of entries, by what they name. `name` is its own, with its owner's in front.

    `denies`: an entry that names a list which can't be read matches everything, not nothing.
    """

    def __init__(
        self,
        name: str,
        written: tuple[str, ...],
        entries: Iterable[tuple[Network | str | ListHost, Ports]],
        lists: NamedLists = NO_LISTS,
        denies: bool = False,
    ) -> None:
        self._name = name
        self._lists = lists
        self._denies = denies
        self._of_lists: list[tuple[int, ListHost, Ports]] = []
        self._written = written
        self._networks = {4: _Networks(32), 6: _Networks(128)}
        names: dict[str, list[tuple[Ports, int]]] = {}
        self._has_networks = False
        for index, (host, ports) in enumerate(entries):
            if isinstance(host, str):
                names.setdefault(host, []).append((ports, index))
            elif isinstance(host, ListHost):
                self._of_lists.append((index, host, ports))
            else:
                self._has_networks = True
                self._networks[host.version].add(host, ports, index)
        self._names = {host: _ByPort(ranges) for host, ranges in names.items()}
        for networks in self._networks.values():
            networks.compile()
        self.names_hosts = any(host != "*" for host in names) or any(not each[1].attribute for each in self._of_lists)
        """Whether an entry may name hosts, which `*`, ports alone, networks and places don't."""

    def __bool__(self) -> bool:
        return bool(self._written)

    @property
    def has_networks(self) -> bool:
        """Whether any entry matches addresses."""
        return self._has_networks or any(self._lists.judges_addresses(host) for _index, host, _ports in self._of_lists)

    def by_name(self, name: str, port: int) -> Found | None:
        """The first entry that holds for a name (lower case, no dot at the end), whatever its address."""
        return self._first_named(name, port, every=True)

    def naming(self, name: str, port: int) -> Found | None:
        """As `by_name`, of the entries that name hosts: `*` is left out."""
        return self._first_named(name, port, every=False) if self.names_hosts else None

    def _first_named(self, name: str, port: int, every: bool) -> Found | None:
        index = self._index(name, port, every)
        found = None if index is None else (index, "")
        return self._first_of_lists(found, port, lambda named: named.by_name(name)) if self._of_lists else found

    def by_address(self, address: Address, port: int) -> Found | None:
        """The first network that holds for an address."""
        networks = self._networks[address.version]
        index = _least(found.first(port) for found in networks.find(int(address)))
        found = None if index is None else (index, "")
        return self._first_of_lists(found, port, lambda named: named.by_address(address)) if self._of_lists else found

    def entry(self, found: Found) -> str:
        """The name of an entry: its field, its index and itself, and what of a list has matched."""
        index, detail = found
        return f"{self._name}[{index}] {self._written[index]}" + (f" ({detail})" if detail else "")

    def _first_of_lists(self, known: Found | None, port: int, match: Callable[[FoundList], str | None]) -> Found | None:
        """The first entry with a list that matches, unless `known` comes before it."""
        for index, host, (low, high) in self._of_lists:
            if known is not None and known[0] < index:
                break
            if low <= port <= high:
                named = self._lists.find(host)
                detail = match(named) if named is not None else UNREADABLE if self._denies else None
                if detail is not None:
                    return index, detail
        return known

    def denied_by(self, found: Found) -> EntryMatch:
        """The denial of a destination by an entry."""
        index = found[0]
        named = next((host.name for place, host, _ports in self._of_lists if place == index), "")
        return EntryMatch(
            DESTINATION_DENIED, self.entry(found), Decider(rule=f"{self._name}[{index}]", named_list=named)
        )

    def not_allowed(self) -> EntryMatch:
        """The denial of a destination because no entry matches."""
        return EntryMatch(DESTINATION_NOT_ALLOWED, self.no_match(), Decider(rule=self._name))

    def no_match(self) -> str:
        """The rule of a denial because no entry matches."""
        return f"{self._name}: no entry matches"

    def _index(self, name: str, port: int, every: bool) -> int | None:
        """That of the first name, or `*.` and a name, that holds; with `every` also of `*`."""
        names = self._names
        if not names:
            return None
        ranges = names.get("*") if every else None
        least = None if ranges is None else ranges.first(port)
        ranges = names.get(name)
        if ranges is not None:
            least = _earlier(least, ranges.first(port))
        start = name.find(".")
        while start >= 0:
            ranges = names.get("*" + name[start:])
            if ranges is not None:
                least = _earlier(least, ranges.first(port))
            start = name.find(".", start + 1)
        return least


class AccessRules:
    """The access rules of one configuration, or those of an account or credential. Changed ones are a new object."""

    def __init__(self, spec: AccessSpec, owner: str = PROXY, lists: NamedLists = NO_LISTS) -> None:
        self.owner = owner
        self.report = spec.mode == "report"
        self._allow_clients = _clients(f"{owner}.allow_clients", spec.allow_clients)
        self._deny_clients = _clients(f"{owner}.deny_clients", spec.deny_clients)
        self._allow = _destinations(f"{owner}.allow_destinations", spec.allow_destinations, lists)
        self._deny = _destinations(f"{owner}.deny_destinations", spec.deny_destinations, lists, denies=True)
        self.has_client_rules = bool(self._allow_clients or self._deny_clients)
        self.has_destination_rules = bool(self._allow or self._deny)
        self.names_hosts = self._allow.names_hosts
        """Whether an entry that allows may name hosts."""

    def match_client(self, client_ip: str) -> EntryMatch:
        """Whether this address may use the proxy."""
        if not self.has_client_rules:
            return ALLOWED
        address = plain(client_ip)
        denied = self._deny_clients.by_address(address, 1)
        if denied is not None:
            return EntryMatch(CLIENT_DENIED, self._deny_clients.entry(denied))
        if not self._allow_clients:
            return ALLOWED
        allowed = self._allow_clients.by_address(address, 1)
        if allowed is None:
            return EntryMatch(CLIENT_NOT_ALLOWED, self._allow_clients.no_match())
        return EntryMatch("", self._allow_clients.entry(allowed))

    def match_name(self, host: str, port: int) -> EntryMatch | None:
        """The match whatever `host` resolves to; None when the addresses decide."""
        if not self.has_destination_rules:
            return ALLOWED
        name = _plain(host)
        denied = self._deny.by_name(name, port)
        if denied is not None:
            return self._deny.denied_by(denied)
        if self._allow and not self._allow.has_networks and self._allow.by_name(name, port) is None:
            return self._allow.not_allowed()
        return None

    def match_unresolved(self, host: str, port: int) -> EntryMatch:
        """Whether `host` may be requested of an upstream, which resolves it: only entries with names can allow it."""
        by_name = self.match_name(host, port)
        if by_name is not None or not self._allow:
            return by_name or ALLOWED
        allowed = self._allow.by_name(_plain(host), port)
        if allowed is None:
            return self._allow.not_allowed()
        return EntryMatch("", self._allow.entry(allowed))

    def naming(self, host: str, port: int) -> str:
        """The first entry that allows `host` by its name, as records name it; empty without one. `*`, ports alone and
        networks name nothing."""
        found = self._allow.naming(_plain(host), port)
        return "" if found is None else self._allow.entry(found)

    def match_address(self, host: str, port: int, address_text: str) -> EntryMatch:
        """Whether `host` may be connected to at this address; includes `match_name`."""
        by_name = self.match_name(host, port)
        if by_name is not None:
            return by_name
        name, address = _plain(host), plain(address_text)
        inner = embedded_ipv4(address)
        faces = (address,) if inner is None else (address, inner)
        denied = min(filter(None, (self._deny.by_address(face, port) for face in faces)), default=None)
        if denied is not None:
            return self._deny.denied_by(denied)
        if not self._allow:
            return ALLOWED
        allowed = self._allow.by_name(name, port)
        if allowed is None:
            allowed = self._allow.by_address(address, port)
        if allowed is None:
            return self._allow.not_allowed()
        return EntryMatch("", self._allow.entry(allowed))


def _clients(name: str, written: tuple[str, ...]) -> EntryList:
    return EntryList(name, written, ((read_network(text), ALL_PORTS) for text in written))


def _destinations(name: str, written: tuple[str, ...], lists: NamedLists, denies: bool = False) -> EntryList:
    read = (read_entry(text) for text in written)
    return EntryList(name, written, ((entry.host, entry.ports) for entry in read), lists, denies)


def _earlier(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


def _least(indices: Iterable[int | None]) -> int | None:
    return min((index for index in indices if index is not None), default=None)


def _plain(host: str) -> str:
    return host.lower().removesuffix(".")


COMPILED_MAX = 256
"""Sets of rules that are kept compiled; accounts of one plan share theirs."""

OwnRules = tuple[AccessRules, ...]


def own_rules(account: AccountSpec | None, credential: AccountSpec | None, lists: NamedLists = NO_LISTS) -> OwnRules:
    """Those of the account and of the credential that was used; empty where neither has any."""
    of_account = () if account is None else _rules_of(ACCOUNT, account, lists)
    return of_account if credential is None else of_account + _rules_of(CREDENTIAL, credential, lists)


def _rules_of(owner: str, spec: AccountSpec, lists: NamedLists) -> OwnRules:
    allow, deny = spec.allow_destinations, spec.deny_destinations
    return (_compiled(owner, allow, deny, lists),) if allow or deny else ()


@lru_cache(maxsize=COMPILED_MAX)
def _compiled(owner: str, allow: tuple[str, ...], deny: tuple[str, ...], lists: NamedLists) -> AccessRules:
    return AccessRules(AccessSpec(allow_destinations=allow, deny_destinations=deny), owner, lists)
