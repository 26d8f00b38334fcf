"""Policies as the documentation says it, slowly: each rule in order, each condition with no help of tables."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from typing import Any

from actors.accounts.records import WeekSchedule
from actors.bus.messages.specs import PolicySpec, RuleSpec
from actors.forwarding.policies.facts import Facts, readings
from actors.net.egress_guard import embedded_ipv4
from config.net.entries import ListHost


@dataclass
class FixedList:
    """A list of domains and networks."""

    domains: tuple[str, ...] = ()
    networks: tuple[str, ...] = ()

    def by_name(self, name: str) -> str | None:
        return next((each for each in self.domains if name == each or name.endswith("." + each)), None)

    def by_address(self, address: Any) -> str | None:
        found = (each for each in self.networks if ip_network(each).version == address.version)
        return next((each for each in found if address in ip_network(each)), None)


@dataclass
class FixedLists:
    """Lists by name; any other can't be read."""

    known: dict[str, FixedList]

    def find(self, host: ListHost) -> FixedList | None:
        return self.known.get(host.name)

    def judges_addresses(self, host: ListHost) -> bool:
        return host.name in self.known and bool(self.known[host.name].networks)


NO_LISTS = FixedLists({})
OPEN = "open"
PROXY = frozenset({"prx_1", "office", "tag:berlin"})
"""What rules may call the proxy."""


def first_rule(policy: PolicySpec, facts: Facts, address: str | None, lists: FixedLists) -> tuple[Any, list[int]]:
    """The index of the deciding rule, None without one, or `OPEN`; and those in report mode before it."""
    reported: list[int] = []
    for index, rule in enumerate(policy.rules):
        if not _matches_request(rule, facts):
            continue
        holds = _matches_target(rule, facts, address, lists)
        if holds is None:
            return OPEN, []
        if holds and not rule.report:
            return index, reported
        if holds:
            reported.append(index)
    return None, reported


def _matches_request(rule: RuleSpec, facts: Facts) -> bool:
    if (rule.methods or rule.paths or rule.set_headers or rule.remove_headers) and not facts.method:
        return False
    if rule.tunnel and facts.method:
        return False
    words = [f"tag:{tag}" for tag in facts.tags] + [facts.user] * bool(facts.user)
    if rule.accounts and not set(words) & set(rule.accounts):
        return False
    if rule.clients and not any(_within(facts.client_ip, each) for each in rule.clients):
        return False
    if rule.listen_ports and not any(low <= facts.listen_port <= high for low, high in rule.listen_ports):
        return False
    refuses = rule.use == "deny"
    methods = [method.upper() for method in rule.methods] if refuses else rule.methods
    if methods and "*" not in methods and (facts.method.upper() if refuses else facts.method) not in methods:
        return False
    if rule.paths and not _path_matches(rule, facts.path, refuses):
        return False
    if any(facts.params.get(name) != value for name, value in rule.params):
        return False
    if rule.proxies and not PROXY & set(rule.proxies):
        return False
    if rule.until and facts.now >= rule.until:
        return False
    return rule.schedule is None or WeekSchedule(rule.schedule).is_open(facts.now)


def _path_matches(rule: RuleSpec, whole: str, refuses: bool) -> bool:
    path, mark, query = whole.partition("?")
    found = readings(path or "/")
    if not found:
        return refuses
    paths = [each.partition("?")[0] for each in rule.paths if _query_matches(each, mark, query, refuses)]
    pairs = ((paths, found[0]), ([each.replace("%3A", ":") for each in paths], found[-1]))
    outcomes = [any(_pattern(each).fullmatch(reading) for each in texts) for texts, reading in pairs]
    return any(outcomes) if refuses else all(outcomes)


def _query_matches(pattern: str, mark: str, query: str, refuses: bool) -> bool:
    _path, wanted, text = pattern.partition("?")
    if not wanted or not mark:
        return not wanted
    if "%00" in query or "%zz" in query:
        return refuses
    return _pattern(text).fullmatch(query.replace("%2e", ".").replace("%2F", "/")) is not None


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, text.split("*"))), re.DOTALL)


def _matches_target(rule: RuleSpec, facts: Facts, address: str | None, lists: FixedLists) -> bool | None:
    """None: the address decides."""
    if not rule.destinations:
        return True
    address = facts.host if facts.literal else address
    outcomes = [_entry_matches(rule, each, facts, address, lists) for each in rule.destinations]
    return True if True in outcomes else None if None in outcomes else False


def _entry_matches(rule: RuleSpec, entry: str, facts: Facts, address: str | None, lists: FixedLists) -> bool | None:
    name = facts.host.lower().rstrip(".")
    faces = [] if address is None else [ip_address(address)]
    if faces and rule.use == "deny":
        faces += [inner for face in faces if (inner := embedded_ipv4(face)) is not None]
    if entry.startswith("list:"):
        known = lists.known.get(entry.removeprefix("list:"))
        if known is None:
            return rule.use == "deny"
        if not facts.literal and known.by_name(name):
            return True
        return any(known.by_address(face) for face in faces) if faces else None if known.networks else False
    host, _, port = entry.partition(":") if entry.count(":") < 2 else (entry, "", "")
    if port and facts.port != int(port):
        return False
    if host in ("", "*"):
        return True
    try:
        ip_network(host)
    except ValueError:
        return name.endswith(host[1:]) and name != host[2:] if host.startswith("*.") else name == host
    return any(_within(str(face), host) for face in faces) if faces else None


def _within(address: str, network: str) -> bool:
    known, where = ip_address(address), ip_network(network)
    return known.version == where.version and known in where
