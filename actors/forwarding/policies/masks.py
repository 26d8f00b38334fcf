"""Sets of rules as the bits of one integer, and tables that say which rules a request satisfies in one respect.

A bit stands for the rule of that index, so that the conditions of a thousand rules are combined by a few operations.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final

from config.net.entries import Network, Ports
from config.net.ip import Address

NONE: Final = 0


def bits(indices: Iterable[int]) -> int:
    """The set of these rules."""
    mask = 0
    for index in indices:
        mask |= 1 << index
    return mask


class PortMasks:
    """The rules of entries for one host, by port."""

    __slots__ = ("_masks", "_starts")

    def __init__(self, ranges: list[tuple[Ports, int]]) -> None:
        """`ranges` are ports with the index of a rule."""
        rules: dict[Ports, int] = {}
        for ports, index in ranges:
            rules[ports] = rules.get(ports, NONE) | 1 << index
        self._starts = sorted({edge for low, high in rules for edge in (low, high + 1)})
        self._masks = [_holding(rules, edge) for edge in self._starts]

    def at(self, port: int) -> int:
        """The rules that hold for `port`."""
        found = bisect_right(self._starts, port) - 1
        return self._masks[found] if found >= 0 else NONE


def _holding(rules: dict[Ports, int], port: int) -> int:
    mask = NONE
    for (low, high), those in rules.items():
        if low <= port <= high:
            mask |= those
    return mask


class NameMasks:
    """The rules by names of hosts: a name alone, `*.` and a name, `*`."""

    def __init__(self, entries: Iterable[tuple[str, Ports, int]]) -> None:
        ranges: dict[str, list[tuple[Ports, int]]] = {}
        for host, ports, index in entries:
            ranges.setdefault(host, []).append((ports, index))
        self._hosts = {host: PortMasks(each) for host, each in ranges.items()}

    def at(self, name: str, port: int) -> int:
        """The rules that hold for a name (lower case, no dot at the end), or for an address by `*` alone."""
        hosts = self._hosts
        if not hosts:
            return NONE
        mask = NONE
        for key in ("*", name):
            if key in hosts:
                mask |= hosts[key].at(port)
        start = name.find(".")
        while start >= 0:
            found = hosts.get("*" + name[start:])
            if found is not None:
                mask |= found.at(port)
            start = name.find(".", start + 1)
        return mask


class NetworkMasks:
    """The rules by networks, with ports."""

    def __init__(self, entries: Iterable[tuple[Network, Ports, int]]) -> None:
        ranges: dict[tuple[int, int], dict[int, list[tuple[Ports, int]]]] = {}
        every: list[tuple[Ports, int]] = []
        for network, ports, index in entries:
            shift = network.max_prefixlen - network.prefixlen
            table = ranges.setdefault((network.version, shift), {})
            table.setdefault(int(network.network_address) >> shift, []).append((ports, index))
            every.append((ports, index))
        self._tables: dict[int, list[tuple[int, dict[int, PortMasks]]]] = {4: [], 6: []}
        for (version, shift), table in ranges.items():
            self._tables[version].append((shift, {number: PortMasks(each) for number, each in table.items()}))
        self._every = PortMasks(every)

    def at(self, address: Address, port: int) -> int:
        """The rules that hold for this address."""
        mask, number = NONE, int(address)
        for shift, table in self._tables[address.version]:
            found = table.get(number >> shift)
            if found is not None:
                mask |= found.at(port)
        return mask

    def possible(self, port: int) -> int:
        """The rules that hold for some address."""
        return self._every.at(port)


class WordMasks:
    """The rules by words, such as user names or methods; `anything` are those without such a condition."""

    __slots__ = ("anything", "words")

    def __init__(self, anything: int, entries: Iterable[tuple[str, int]]) -> None:
        self.anything = anything
        words: dict[str, int] = {}
        for word, index in entries:
            words[word] = words.get(word, NONE) | 1 << index
        self.words = words

    def at(self, words: Iterable[str]) -> int:
        """The rules that hold where any of `words` is given."""
        mask, known = self.anything, self.words
        for word in words:
            mask |= known.get(word, NONE)
        return mask
