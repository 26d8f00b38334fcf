"""Sets of rules as the bits of one integer, and tables that say which rules a request satisfies in one respect.

A bit stands for the rule of that index, so that the conditions of a thousand rules are combined by a few operations.

Work on tens of thousands of entries is a generator, so that a loop can turn in between.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Generator, Iterable
from typing import Final, TypeVar

from actors.forwarding.policies.facts import PathPattern
from config.net.addresses import Address
from config.net.entries import Network, Ports

Item = TypeVar("Item")
Result = TypeVar("Result")

Batches = Generator[int, None, Result]
"""Yields the work that was done since it yielded before, as a number of entries that are read; returns the result."""

BATCH: Final = 50
SORTED: Final = 8
"""So many entries are put into a table in the time in which one is read."""


def map_in_batches(work: Callable[[Item], Result], items: Iterable[Item]) -> Batches[list[Result]]:
    """What `work`, which reads an entry, returns for each of them."""
    results: list[Result] = []
    done = 0
    for item in items:
        results.append(work(item))
        done += 1
        if done == BATCH:
            yield done
            done = 0
    if done:
        yield done
    return results


def put_in(add: Callable[[Item], object], items: Iterable[Item]) -> Batches[None]:
    """Call `add`, which puts an entry into a table, for each of them."""
    for count, item in enumerate(items, 1):
        add(item)
        if count % (SORTED * BATCH) == 0:
            yield BATCH


def at_once(batches: Batches[Result]) -> Result:
    """The result of all batches, without a turn in between."""
    while True:
        try:
            next(batches)
        except StopIteration as end:
            result: Result = end.value
            return result


Host = TypeVar("Host")

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

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._masks: list[int] = []

    def fill(self, ranges: Iterable[tuple[Ports, int]]) -> Batches[None]:
        """Take all of it: ports with the index of a rule. There may be tens of thousands for one host."""
        changes: dict[int, list[tuple[int, int]]] = {}

        def add(entry: tuple[Ports, int]) -> None:
            (low, high), index = entry
            changes.setdefault(low, []).append((index, 1))
            changes.setdefault(high + 1, []).append((index, -1))

        yield from put_in(add, ranges)
        self._starts = sorted(changes)
        self._masks = yield from map_in_batches(_Holding().after, (changes[start] for start in self._starts))

    def at(self, port: int) -> int:
        """The rules that hold for `port`."""
        found = bisect_right(self._starts, port) - 1
        return self._masks[found] if found >= 0 else NONE


class _Holding:
    """The rules that hold, while the ports are passed in their order."""

    def __init__(self) -> None:
        self._mask = NONE
        self._ranges: dict[int, int] = {}

    def after(self, change: list[tuple[int, int]]) -> int:
        """The rules that hold behind a change: rules with how many more of their ranges hold from there on."""
        for index, more in change:
            self._ranges[index] = count = self._ranges.get(index, 0) + more
            self._mask = self._mask | 1 << index if count else self._mask & ~(1 << index)
        return self._mask


class _PortTables:
    """Those of many hosts. Hosts with the same ranges share one, as almost all do."""

    def __init__(self) -> None:
        self._known: dict[tuple[tuple[Ports, int], ...], PortMasks] = {}

    def of_hosts(self, ranges: dict[Host, list[tuple[Ports, int]]]) -> Batches[dict[Host, PortMasks]]:
        """By host, as the ranges are."""
        found: dict[Host, PortMasks] = {}
        for count, (host, of_host) in enumerate(ranges.items(), 1):
            key = tuple(of_host)
            masks = self._known.get(key)
            if masks is None:
                masks = self._known[key] = PortMasks()
                yield from masks.fill(key)
            found[host] = masks
            if count % (SORTED * BATCH) == 0:
                yield BATCH
        return found


class NameMasks:
    """The rules by names of hosts: a name alone, `*.` and a name, `*`."""

    def __init__(self) -> None:
        self._ranges: dict[str, list[tuple[Ports, int]]] = {}
        self._hosts: dict[str, PortMasks] = {}

    def add(self, host: str, ports: Ports, index: int) -> None:
        """Take a host and ports with the index of a rule; `finish` is to be called behind the last."""
        self._ranges.setdefault(host, []).append((ports, index))

    def finish(self) -> Batches[None]:
        """Make the tables."""
        self._hosts = yield from _PortTables().of_hosts(self._ranges)
        self._ranges = {}

    def at(self, name: str, port: int) -> int:
        """The rules that hold for a name (lower case, no dot at the end), or for an address by `*` alone."""
        hosts = self._hosts
        if not hosts:
            return NONE
        named = self.naming(name, port)
        every = hosts.get("*")
        return named if every is None else named | every.at(port)

    def naming(self, name: str, port: int) -> int:
        """The rules that hold by the name itself, not by `*`."""
        hosts = self._hosts
        alone = hosts.get(name)
        mask = NONE if alone is None else alone.at(port)
        start = name.find(".")
        while start >= 0:
            found = hosts.get("*" + name[start:])
            if found is not None:
                mask |= found.at(port)
            start = name.find(".", start + 1)
        return mask


class NetworkMasks:
    """The rules by networks, with ports."""

    def __init__(self) -> None:
        self._ranges: dict[tuple[int, int], dict[int, list[tuple[Ports, int]]]] = {}
        self._ports: dict[tuple[Ports, int], None] = {}
        self._tables: dict[int, list[tuple[int, dict[int, PortMasks]]]] = {4: [], 6: []}
        self._every = PortMasks()

    def add(self, network: Network, ports: Ports, index: int) -> None:
        """Take a network and ports with the index of a rule; `finish` is to be called behind the last."""
        shift = network.max_prefixlen - network.prefixlen
        table = self._ranges.setdefault((network.version, shift), {})
        table.setdefault(int(network.network_address) >> shift, []).append((ports, index))
        self._ports[ports, index] = None

    def finish(self) -> Batches[None]:
        """Make the tables."""
        tables = _PortTables()
        for (version, shift), of_length in self._ranges.items():
            self._tables[version].append((shift, (yield from tables.of_hosts(of_length))))
        yield from self._every.fill(self._ports)
        self._ranges, self._ports = {}, {}

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


class PathMasks:
    """The rules by paths, as far as tables can tell: a pattern with a `*` inside holds where its beginning does."""

    __slots__ = ("_exact", "_lengths", "_prefixes")

    def __init__(self) -> None:
        self._exact = WordMasks()
        self._prefixes: dict[str, int] = {}
        self._lengths: list[int] = []

    def fill(self, patterns: Iterable[tuple[PathPattern, int]]) -> Batches[None]:
        """Take all of it: patterns with the index of a rule."""
        prefixes = WordMasks()

        def add(entry: tuple[PathPattern, int]) -> None:
            pattern, index = entry
            (self._exact if pattern.exact else prefixes).add((pattern.prefix, index))

        yield from put_in(add, patterns)
        self._prefixes = prefixes.words
        self._lengths = sorted({len(prefix) for prefix in self._prefixes})

    def at(self, path: str) -> int:
        """The rules that hold, or may hold, for one reading of a path."""
        mask, longest = self._exact.at((path,)), len(path)
        for length in self._lengths:
            if length > longest:
                break
            mask |= self._prefixes.get(path[:length], NONE)
        return mask


class WordMasks:
    """The rules by words, such as user names or methods; `anything` are those without such a condition."""

    __slots__ = ("anything", "words")

    def __init__(self, anything: int = NONE) -> None:
        self.anything = anything
        self.words: dict[str, int] = {}

    def add(self, entry: tuple[str, int]) -> None:
        """Take a word with the index of a rule."""
        word, index = entry
        self.words[word] = self.words.get(word, NONE) | 1 << index

    def at(self, words: Iterable[str]) -> int:
        """The rules that hold where any of `words` is given."""
        mask, known = self.anything, self.words
        for word in words:
            mask |= known.get(word, NONE)
        return mask
