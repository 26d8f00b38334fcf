"""What squid decides, as slowly and plainly as it can be written: converted policies are compared with it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network

LETTERS = "MTWHFAS"


@dataclass(frozen=True)
class Request:
    """One request. `minute` is of the week, from Monday."""

    client: str
    host: str
    address: str
    port: int
    method: str
    user: str
    minute: int


@dataclass(frozen=True)
class Acl:
    """An access list as it is written."""

    name: str
    kind: str
    values: tuple[str, ...]

    def text(self) -> str:
        return f"acl {self.name} {self.kind} {' '.join(self.values)}"


@dataclass(frozen=True)
class Rule:
    """A line of a list; names with `!` are negated."""

    allow: bool
    names: tuple[str, ...]

    def text(self, directive: str) -> str:
        return f"{directive} {'allow' if self.allow else 'deny'} {' '.join(self.names)}"


def matches(acl: Acl, request: Request) -> bool:
    """Whether an access list matches."""
    one: dict[str, Callable[[str], bool]] = {
        "src": lambda value: ip_address(request.client) in ip_network(value),
        "dst": lambda value: ip_address(request.address) in ip_network(value),
        "dstdomain": lambda value: _in_domain(request.host, value),
        "dstdom_regex": lambda value: re.search(value, request.host) is not None,
        "port": lambda value: _in_range(request.port, value),
        "method": lambda value: request.method == value,
        "proxy_auth": lambda value: value in ("REQUIRED", request.user),
    }
    if acl.kind == "time":
        return _in_time(request.minute, acl.values)
    return any(one[acl.kind](value) for value in acl.values)


def _in_domain(host: str, value: str) -> bool:
    return host == value.removeprefix(".") or (value.startswith(".") and host.endswith(value))


def _in_range(port: int, value: str) -> bool:
    low, _, high = value.partition("-")
    return int(low) <= port <= int(high or low)


def _in_time(minute: int, values: Sequence[str]) -> bool:
    days, clock = values
    start, end = (int(each[:2]) * 60 + int(each[3:]) for each in clock.split("-"))
    return LETTERS[minute // 1440] in days and start <= minute % 1440 <= end


def allows(rules: Sequence[Rule], request: Request, known: Mapping[str, Acl]) -> bool:
    """What the first line that matches says; else the opposite of the last."""
    for rule in rules:
        if all(matches(known[name.removeprefix("!")], request) is not name.startswith("!") for name in rule.names):
            return rule.allow
    return bool(rules) and not rules[-1].allow


@dataclass(frozen=True)
class Ways:
    """The lines that choose between upstreams and the direct way; each upstream has lists of its own."""

    always: list[Rule] = field(default_factory=list)
    never: list[Rule] = field(default_factory=list)
    peers: list[list[Rule]] = field(default_factory=list)

    def text(self) -> str:
        lines = [each.text("always_direct") for each in self.always]
        lines += [each.text("never_direct") for each in self.never]
        for index, access in enumerate(self.peers):
            lines.append(f"cache_peer 192.0.2.{index} parent 3128 0 name=p{index}")
            lines += [each.text(f"cache_peer_access p{index}") for each in access]
        return "\n".join(lines)


def way(ways: Ways, request: Request, known: Mapping[str, Acl]) -> str | list[str]:
    """`direct`, `deny` where none is left, or the names of the upstreams that may be used.

    What squid sends directly though it has an upstream (POST, CONNECT) is in the report of a conversion.
    """
    chosen = [f"p{index}" for index, access in enumerate(ways.peers) if not access or allows(access, request, known)]
    if ways.always and allows(ways.always, request, known):
        return "direct"
    never = bool(ways.never) and allows(ways.never, request, known)
    return chosen or ("deny" if never else "direct")
