"""Writes regions as rules of a policy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, product
from typing import Any, NamedTuple

from api.import_export.convert.draft import Draft
from api.import_export.convert.host_sets import Addresses, Names
from api.import_export.convert.intervals import Intervals
from api.import_export.convert.regions import PLAIN, TUNNEL, Region, is_within, joined, meet
from config.model.policies import MATCHES_MAX, RULES_MAX
from config.model.schedules import DAYS

LISTED = 100
"""Domains that a rule names itself; more of them become a list."""
DECIDED_MAX = 4 * RULES_MAX
REACH = 50
"""Rules behind one that may make it superfluous."""
LABEL_MAX = 80
MORE = " and more"
DAY = 24 * 60


class TooManyRules(Exception):
    """More rules than a policy may have."""


class Decided(NamedTuple):
    """What is done with a region. `order` is that of the line that says so, `way` ends the rule's name."""

    label: str
    way: str
    region: Region
    action: dict[str, Any]
    order: int


class RuleWriter:
    """The rules of one policy, in order. Times are of one time zone."""

    def __init__(self, draft: Draft, timezone: str) -> None:
        self._decided: list[Decided] = []
        self._draft = draft
        self._timezone = timezone
        self._taken: dict[str, int] = {}

    def add(self, label: str, way: str, region: Region, action: dict[str, Any], order: int = 0) -> None:
        """Do `action` with all requests of `region`. Raises `TooManyRules`."""
        if len(self._decided) == DECIDED_MAX:
            raise TooManyRules
        self._decided.append(Decided(label, way, region, action, order))

    def rules(self) -> list[dict[str, Any]]:
        """All that was added, as few rules. Raises `TooManyRules`."""
        self._decided = [each for index, each in enumerate(self._decided) if not self._is_repeated(index)]
        found = [
            {"name": self._unique(f"{each.label}{each.way}"), "match": match, "action": each.action}
            for each in self._merged()
            for match in self._matches(each.region)
        ]
        if len(found) > RULES_MAX:
            raise TooManyRules
        return found

    def _merged(self) -> list[Decided]:
        """With one in place of two that do the same, where no other between them decides of what is moved."""
        found: list[Decided] = []
        for one in self._decided:
            for index in range(len(found) - 1, max(-1, len(found) - 1 - REACH), -1):
                other = found[index]
                together = (
                    None if other.action != one.action or other.way != one.way else joined(other.region, one.region)
                )
                if together is not None and one.action.get("use") != "deny":
                    found[index] = other._replace(region=together, label=_both_labels(other.label, one.label))
                    break
                if other.action != one.action and meet(other.region, one.region) is not None:
                    found.append(one)
                    break
            else:
                found.append(one)
        return found

    def _is_repeated(self, index: int) -> bool:
        """Whether a rule behind does the same with more, and is of the same line or one before: this one was only a
        part that a line leaves to those behind it."""
        one = self._decided[index]
        for other in self._decided[index + 1 : index + 1 + REACH]:
            if other.action == one.action:
                if other.order <= one.order and is_within(one.region, other.region):
                    return True
            elif meet(one.region, other.region) is not None:
                return False
        return False

    def _unique(self, name: str) -> str:
        number = self._taken[name] = self._taken.get(name, 0) + 1
        return name if number == 1 else f"{name} #{number}"

    def _matches(self, region: Region) -> Iterator[dict[str, Any]]:
        """Conditions that together match the region: one, unless a list of one would be too long."""
        plain: dict[str, Any] = {}
        if region.methods == TUNNEL:
            plain["tunnel"] = True
        elif region.methods is not None and (region.methods != PLAIN or region.paths is None):
            plain["methods"] = sorted(region.methods)
        if region.minutes is not None:
            plain["schedule"] = {"timezone": self._timezone, "windows": list(windows(region.minutes))}
        lists = {
            "accounts": None if region.users is None else sorted(region.users),
            "destinations": self._destinations(region),
            "paths": None if region.paths is None else sorted(region.paths),
            "clients": None if region.clients is None else region.clients.networks(),
        }
        given = {name: entries for name, entries in lists.items() if entries is not None}
        for chunks in product(*(list(_chunks(entries)) for entries in given.values())):
            yield {**dict(zip(given, chunks, strict=True)), **plain}

    def _destinations(self, region: Region) -> list[str] | None:
        ports = None if region.ports is None else [_ports(low, high) for low, high in region.ports.ranges]
        if region.hosts is None:
            return ports
        hosts = self._hosts(region.hosts)
        return hosts if ports is None else [f"{_bracketed(host)}{each}" for host in hosts for each in ports]

    def _hosts(self, hosts: Addresses | Names) -> list[str]:
        if isinstance(hosts, Addresses):
            return hosts.networks()
        domains = hosts.domains() if len(hosts.domains()) > LISTED else frozenset()
        lists = [f"list:{name}" for name in self._draft.list_of(domains)] if domains else []
        alone = sorted((each, "") for each in hosts.exact - domains) + sorted(
            (each, "*.") for each in hosts.below - domains
        )
        return [*lists, *(prefix + name for name, prefix in sorted(alone))]


def _chunks(entries: Sequence[str]) -> Iterator[list[str]]:
    waiting = iter(entries)
    while chunk := list(islice(waiting, MATCHES_MAX)):
        yield chunk


def _ports(low: int, high: int) -> str:
    return f":{low}" if low == high else f":{low}-{high}"


def _bracketed(host: str) -> str:
    """IPv6 before ports."""
    return f"[{host}]" if ":" in host and not host.startswith("list:") else host


def windows(minutes: Intervals) -> Iterator[dict[str, Any]]:
    """Windows of a schedule: those of several days that are alike in one."""
    days: dict[tuple[int, int], list[str]] = {}
    for low, high in minutes.ranges:
        for day in range(low // DAY, high // DAY + 1):
            start, end = max(low, day * DAY) - day * DAY, min(high, day * DAY + DAY - 1) - day * DAY + 1
            days.setdefault((start, end), []).append(DAYS[day])
    for (start, end), named in days.items():
        yield {"days": named, "from": _clock(start), "to": _clock(end)}


def _clock(minute: int) -> str:
    return f"{minute // 60:02}:{minute % 60:02}"


def _both_labels(one: str, other: str) -> str:
    if one == other or len(one) + len(other) > LABEL_MAX:
        return one if one == other or one.endswith(MORE) else f"{one}{MORE}"
    return f"{one}; {other}"
