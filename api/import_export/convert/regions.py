"""Regions: sets of requests that a rule of a policy can describe, as one condition on each dimension.

The conditions are sets: whole numbers as sorted ranges (ports, addresses), host names, and words.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, summarize_address_range
from typing import Any, Self

from api.import_export.convert.statements import passes
from config.model.choices import ANY_METHOD
from config.model.fields import user_name

USER_NAME_MAX = 128


@dataclass(frozen=True, slots=True)
class Intervals:
    """Disjoint ranges in order, both ends included. Made by `of`."""

    ranges: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, ranges: Iterable[tuple[int, int]]) -> Self:
        """The set of all that is in any of the ranges."""
        merged: list[tuple[int, int]] = []
        for low, high in sorted(ranges):
            if merged and low <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(merged[-1][1], high))
            else:
                merged.append((low, high))
        return cls(tuple(merged))

    @classmethod
    def union(cls, sets: Iterable[Self]) -> Self:
        """All that is in any of them."""
        return cls.of(span for each in sets for span in each.ranges)

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def __and__(self, other: Self) -> Self:
        found, left, right = [], 0, 0
        while left < len(self.ranges) and right < len(other.ranges):
            (low, high), (from_, to) = self.ranges[left], other.ranges[right]
            if max(low, from_) <= min(high, to):
                found.append((max(low, from_), min(high, to)))
            left, right = (left + 1, right) if high < to else (left, right + 1)
        return type(self)(tuple(found))

    def outside(self, low: int, high: int) -> Self:
        """What of `low` to `high` is not in it."""
        found, start = [], low
        for first, last in self.ranges:
            found.append((start, first - 1))
            start = last + 1
        return type(self)(tuple(each for each in (*found, (start, high)) if each[0] <= each[1]))


class Addresses(Intervals):
    """A set of addresses: those of IPv6 as numbers from `V6` on."""

    __slots__ = ()

    V6 = 2**33

    @classmethod
    def read(cls, text: str) -> Addresses:
        """`192.0.2.0/24`, `192.0.2.0/255.255.255.0`, `192.0.2.1-192.0.2.9`, `all`. Raises `ValueError`."""
        if text.lower() in _WORDS:
            return _WORDS[text.lower()]
        first, dash, last = text.partition("-")
        try:
            network = ipaddress.ip_network(first.strip("[]"), strict=False)
            low, high = network[0], ipaddress.ip_address(last) if dash else network[-1]
        except ValueError:
            raise ValueError("is no address, network or range of addresses") from None
        mapped = isinstance(network, IPv6Network) and network.subnet_of(_MAPPED)
        if mapped or low.version != high.version or int(low) > int(high) or (dash and "/" in first):
            raise ValueError("is no network or range of addresses of one family")
        start = cls.V6 if low.version == 6 else 0
        return cls(((start + int(low), start + int(high)),))

    def networks(self) -> list[str]:
        """As few networks as cover it; addresses stand alone."""
        found: list[IPv4Network | IPv6Network] = []
        for low, high in self.ranges:
            if low < self.V6:
                found += summarize_address_range(IPv4Address(low), IPv4Address(high))
            else:
                found += summarize_address_range(IPv6Address(low - self.V6), IPv6Address(high - self.V6))
        return [str(each.network_address if each.num_addresses == 1 else each) for each in found]


V4_ADDRESSES = Addresses(((0, 2**32 - 1),))
V6_ADDRESSES = Addresses(((Addresses.V6, Addresses.V6 + 2**128 - 1),))
ALL_ADDRESSES = Addresses.union((V4_ADDRESSES, V6_ADDRESSES))


def superiors(name: str) -> Iterator[str]:
    """The domains that a name is below, nearest first."""
    while "." in name:
        name = name.partition(".")[2]
        yield name


@dataclass(frozen=True, slots=True)
class Names:
    """A set of host names in lower case; `*.example.com` stands for all below a domain."""

    entries: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.entries)

    def __and__(self, other: Names) -> Names:
        return Names(frozenset(filter(other.has, self.entries)) | frozenset(filter(self.has, other.entries)))

    @classmethod
    def union(cls, sets: Iterable[Names]) -> Names:
        """All that is in any of them."""
        return cls(frozenset().union(*(each.entries for each in sets)))

    def has(self, entry: str) -> bool:
        """Whether a name, or all below a domain, is in it."""
        above = superiors(entry.removeprefix("*."))
        return entry in self.entries or any(f"*.{each}" in self.entries for each in above)

    def domains(self) -> frozenset[str]:
        """Those that are in it with all below them."""
        return frozenset(each for each in self.entries if f"*.{each}" in self.entries)


TUNNEL = frozenset({"CONNECT"})
"""In place of methods: what is no plain HTTP."""
PLAIN = frozenset({ANY_METHOD})
"""All methods of plain HTTP."""
PORTS = (1, 65535)


@dataclass(frozen=True, slots=True)
class Region:
    """Requests that meet all conditions; None is none.

    `methods` is `TUNNEL`, `PLAIN`, or names of methods of plain HTTP.
    """

    clients: Addresses | None = None
    hosts: Addresses | Names | None = None
    ports: Intervals | None = None
    methods: frozenset[str] | None = None
    users: frozenset[str] | None = None

    @staticmethod
    def of_users(names: Iterable[str]) -> Regions:
        """A client of one of these user names. Names that none can have (a colon, RFC 7617) match no client."""
        possible = (each for each in names if len(each) <= USER_NAME_MAX and passes(user_name, each))
        return of_all(Region(users=frozenset(possible)))

    @staticmethod
    def of_methods(methods: frozenset[str]) -> Regions:
        """Requests by one of these methods, those that open tunnels included."""
        plain = PLAIN if methods >= PLAIN else methods - TUNNEL
        if plain == PLAIN and methods >= TUNNEL:
            return (EVERYTHING,)
        return of_all(Region(methods=plain), Region(methods=methods & TUNNEL))

    def others(self) -> Region | None:
        """All requests that are not in it, if that is a region and a short one."""
        given = [each.name for each in fields(self) if getattr(self, each.name) is not None]
        if given == ["ports"] and self.ports is not None:
            return Region(ports=self.ports.outside(*PORTS))
        if given == ["methods"] and self.methods in (TUNNEL, PLAIN):
            return Region(methods=PLAIN if self.methods == TUNNEL else TUNNEL)
        return None

    @property
    def empty(self) -> bool:
        """Whether no request is in it."""
        return any(not value for each in _DIMENSIONS if (value := getattr(self, each)) is not None)


EVERYTHING = Region()
Regions = tuple[Region, ...]
_DIMENSIONS = tuple(each.name for each in fields(Region))


def meet(one: Region, other: Region) -> tuple[Region, bool] | None:
    """The requests in both, None if there are none; and whether it is exactly these, or more."""
    found = {name: _both(name, getattr(one, name), getattr(other, name)) for name in _DIMENSIONS}
    region = Region(**{name: both for name, (both, _exact) in found.items()})
    return None if region.empty else (region, all(exact for _both, exact in found.values()))


def is_within(one: Region, other: Region) -> bool:
    """Whether all requests of one region are certainly in the other."""
    for name in _DIMENSIONS:
        narrow, wide = getattr(one, name), getattr(other, name)
        if wide is not None and (narrow is None or _both(name, narrow, wide) != (narrow, True)):
            return False
    return True


def _both(name: str, one: Any, other: Any) -> tuple[Any, bool]:
    """What is in both conditions of one dimension, and whether it is exactly that."""
    if one is None or other is None:
        return other if one is None else one, True
    if name == "methods" and PLAIN in (one, other) and TUNNEL not in (one, other):
        return other if one == PLAIN else one, True
    if type(one) is not type(other):  # a rule can't ask for a name and for its address
        return one if isinstance(one, Names) else other, False
    return one & other, True


def of_all(*regions: Region) -> Regions:
    """Those of the regions that have a request."""
    return tuple(each for each in regions if not each.empty)


def of_one(dimension: str, whole: Any) -> Regions:
    """Requests that meet one condition."""
    return of_all(EVERYTHING if whole == ALL_ADDRESSES else Region(**{dimension: whole}))


_WORDS = {
    **dict.fromkeys(("all", "0/0", "0.0.0.0/0", "0.0.0.0/0.0.0.0", "0.0.0.0-255.255.255.255"), ALL_ADDRESSES),
    "ipv4": V4_ADDRESSES,
    "ipv6": V6_ADDRESSES,
    "none": Addresses(),
}
_MAPPED = IPv6Network("::ffff:0:0/96")


def ports(text: str) -> Intervals:
    """`443`, `1025-65535`. Raises `ValueError`."""
    low, dash, high = text.partition("-")
    if not (low.isdecimal() and (high.isdecimal() or not dash)):
        raise ValueError("is no port")
    return Intervals.of([(int(low), int(high or low))]) & Intervals((PORTS,))
