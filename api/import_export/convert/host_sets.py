"""Sets of addresses and of host names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, summarize_address_range

from api.import_export.convert.intervals import Intervals

Network = IPv4Network | IPv6Network
V4_LAST, V6_LAST = 2**32 - 1, 2**128 - 1


@dataclass(frozen=True, slots=True)
class Addresses:
    """A set of addresses of both families."""

    v4: Intervals
    v6: Intervals

    @classmethod
    def of(cls, networks: Iterable[Network]) -> Addresses:
        """All addresses of the networks."""
        spans = [(each.version, int(each.network_address), int(each.broadcast_address)) for each in networks]
        return cls(*(Intervals.of((low, high) for kind, low, high in spans if kind == family) for family in (4, 6)))

    @classmethod
    def between(cls, first: IPv4Address | IPv6Address, last: IPv4Address | IPv6Address) -> Addresses:
        """The addresses from one to another of its family."""
        span, none = Intervals.of([(int(first), int(last))]), Intervals(())
        return cls(span, none) if first.version == 4 else cls(none, span)

    def __bool__(self) -> bool:
        return bool(self.v4 or self.v6)

    def __le__(self, other: Addresses) -> bool:
        return self.v4 <= other.v4 and self.v6 <= other.v6

    def __and__(self, other: Addresses) -> Addresses:
        return Addresses(self.v4 & other.v4, self.v6 & other.v6)

    @classmethod
    def union(cls, sets: Sequence[Addresses]) -> Addresses:
        """All that is in any of them."""
        of_v4 = (span for each in sets for span in each.v4.ranges)
        return cls(Intervals.of(of_v4), Intervals.of(span for each in sets for span in each.v6.ranges))

    def networks(self) -> list[str]:
        """As few networks as cover it; addresses stand alone."""
        found: list[Network] = []
        for low, high in self.v4.ranges:
            found += summarize_address_range(IPv4Address(low), IPv4Address(high))
        for low, high in self.v6.ranges:
            found += summarize_address_range(IPv6Address(low), IPv6Address(high))
        return [str(each.network_address if each.num_addresses == 1 else each) for each in found]


ALL_ADDRESSES = Addresses(Intervals(((0, V4_LAST),)), Intervals(((0, V6_LAST),)))


def superiors(name: str) -> Iterator[str]:
    """The domains that a name is below, nearest first."""
    while "." in name:
        name = name.partition(".")[2]
        yield name


@dataclass(frozen=True, slots=True)
class Names:
    """A set of host names in lower case: some alone, and all that are below some domains."""

    exact: frozenset[str]
    below: frozenset[str]

    def __bool__(self) -> bool:
        return bool(self.exact or self.below)

    def __le__(self, other: Names) -> bool:
        return all(map(other.has, self.exact)) and all(map(other.has_below, self.below))

    def __and__(self, other: Names) -> Names:
        exact = {each for each in self.exact if other.has(each)} | {each for each in other.exact if self.has(each)}
        below = {each for each in self.below if other.has_below(each)}
        return Names(frozenset(exact), frozenset(below | {each for each in other.below if self.has_below(each)}))

    @classmethod
    def union(cls, sets: Sequence[Names]) -> Names:
        """All that is in any of them."""
        return cls(frozenset().union(*(each.exact for each in sets)), frozenset().union(*(each.below for each in sets)))

    def has(self, name: str) -> bool:
        """Whether a name is in it."""
        return name in self.exact or any(each in self.below for each in superiors(name))

    def has_below(self, domain: str) -> bool:
        """Whether all names below a domain are in it."""
        return domain in self.below or any(each in self.below for each in superiors(domain))

    def domains(self) -> frozenset[str]:
        """Those that are in it with all below them."""
        return self.exact & self.below


NO_NAMES = Names(frozenset(), frozenset())
