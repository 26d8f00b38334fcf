"""Writes regions as rules of a policy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, product
from typing import Any

from api.import_export.convert.draft import Draft
from api.import_export.convert.host_sets import Addresses, Names
from api.import_export.convert.intervals import Intervals
from api.import_export.convert.regions import PLAIN_METHODS, TUNNEL, Region
from config.model.policies import MATCHES_MAX, RULES_MAX
from config.model.schedules import DAYS

LISTED = 100
"""Domains that a rule names itself; more of them become a list."""
NAME_MAX = 100
DAY = 24 * 60


class TooManyRules(Exception):
    """More rules than a policy may have."""


class RuleWriter:
    """The rules of one policy, in order. Times are of one time zone."""

    def __init__(self, draft: Draft, timezone: str) -> None:
        self.rules: list[dict[str, Any]] = []
        self._draft = draft
        self._timezone = timezone
        self._taken: dict[str, int] = {}

    def add(self, name: str, region: Region, action: dict[str, Any]) -> None:
        """Rules that do `action` with all requests of `region`. Raises `TooManyRules`."""
        for match in self._matches(region):
            if len(self.rules) == RULES_MAX:
                raise TooManyRules
            if action.get("use") == "deny" and match.get("methods") == sorted(PLAIN_METHODS):
                del match["methods"]
                match["paths"] = ["/*"]  # of a rule that denies, it holds for all plain HTTP
            self.rules.append({"name": self._unique(name), "match": match, "action": action})

    def add_other_methods(self, region: Region) -> None:
        """A rule that refuses all plain HTTP of `region`."""
        name = "methods that are not registered"
        for match in self._matches(region):
            match["paths"] = ["/*"]
            if self.rules and self.rules[-1]["match"] == match and self.rules[-1]["action"].get("use") == "deny":
                continue
            self.rules.append({"name": self._unique(name), "match": match, "action": {"use": "deny"}})

    def _unique(self, name: str) -> str:
        plain = name if len(name) <= NAME_MAX - 8 else f"{name[: NAME_MAX - 9]}…"
        number = self._taken[plain] = self._taken.get(plain, 0) + 1
        return plain if number == 1 else f"{plain} #{number}"

    def _matches(self, region: Region) -> Iterator[dict[str, Any]]:
        """Conditions that together match the region: one, unless a list of one would be too long."""
        plain: dict[str, Any] = {}
        if region.methods is not None and TUNNEL not in region.methods:
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
        if "paths" in given and plain.get("methods") == sorted(PLAIN_METHODS):
            del plain["methods"]  # paths are those of plain HTTP
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
