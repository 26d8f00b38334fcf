"""Which of many addresses a request leaves from: at random, or by a key that has the same address each time.

All addresses that may be used are equally likely, whatever entries they come from: one that two entries name is one
address. The address of each family is chosen by itself. A key has the same address in every process, on every proxy
that has these entries, and after a restart.
"""

from __future__ import annotations

import random
import socket
from bisect import bisect_right
from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b
from itertools import accumulate

from actors.forwarding.net.source_address import SourceAddress
from config.net.entries import is_ipv6, is_network, usable

Range = tuple[int, int]


class NumberedAddresses:
    """The addresses of one family that some entries name."""

    __slots__ = ("_networks", "_ranges", "_starts", "count")

    def __init__(self, entries: Iterable[str]) -> None:
        """Raises `ValueError`."""
        listed = tuple(entries)
        self._ranges = _joined(usable(each) for each in listed)
        self._networks = _joined(usable(each) for each in listed if is_network(each))
        sizes = [last - first + 1 for first, last in self._ranges]
        self._starts = list(accumulate(sizes, initial=0))
        self.count = self._starts.pop()

    def at(self, index: int) -> int:
        """One of them, of `count`."""
        place = bisect_right(self._starts, index) - 1
        return self._ranges[place][0] + index - self._starts[place]

    def is_free(self, address: int) -> bool:
        """Whether no interface needs to have the address: a network has it."""
        return any(first <= address <= last for first, last in self._networks)


class SourceChoice:
    """The addresses of some entries, by family."""

    __slots__ = ("_entries", "_ipv4", "_ipv6")

    def __init__(self, entries: tuple[str, ...]) -> None:
        """Raises `ValueError`."""
        self._entries = entries
        self._ipv4 = NumberedAddresses(each for each in entries if not is_ipv6(each))
        self._ipv6 = NumberedAddresses(each for each in entries if is_ipv6(each))

    def choose(self, key: str | None, rule: str) -> SourceAddress:
        """The addresses of a key; None: at random. `rule` is what of the configuration has the entries."""
        free: list[str] = []
        ipv4 = _text(socket.AF_INET, self._ipv4, key, free)
        ipv6 = _text(socket.AF_INET6, self._ipv6, key, free)
        some = max(self._ipv4.count, self._ipv6.count) > 1
        return SourceAddress(ipv4, ipv6, tuple(free), rule, self._entries if key is None and some else ())


@lru_cache(maxsize=1024)
def choice_of(entries: tuple[str, ...]) -> SourceChoice:
    """The choice among these entries: they are read once. Raises `ValueError`."""
    return SourceChoice(entries)


def _text(family: socket.AddressFamily, addresses: NumberedAddresses, key: str | None, free: list[str]) -> str:
    """One of the addresses, empty without any; noted in `free` if no interface needs to have it."""
    if not addresses.count:
        return ""
    chosen = addresses.at(random.randrange(addresses.count) if key is None else _digest(key) % addresses.count)  # noqa: S311
    text = socket.inet_ntop(family, chosen.to_bytes(16 if family is socket.AF_INET6 else 4, "big"))
    if addresses.is_free(chosen):
        free.append(text)
    return text


def _digest(key: str) -> int:
    """Wide enough for the rest of a division to be even over 2**128 addresses."""
    return int.from_bytes(blake2b(key.encode("utf-8", "surrogateescape"), digest_size=32).digest(), "big")


def _joined(ranges: Iterable[Range]) -> list[Range]:
    """In order, none touching another."""
    joined: list[Range] = []
    for first, last in sorted(ranges):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], last))
        else:
            joined.append((first, last))
    return joined
