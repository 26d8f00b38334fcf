"""Where connections and datagrams of a proxy leave from: an address of each family, or what the kernel chooses.

Of many addresses one is chosen at random, or by a key that has the same address each time. All that may be used are
equally likely, whatever entries they come from: one that two entries name is one address. The address of each family
is chosen by itself. A key has the same address in every process, on every proxy that has these entries, and after a
restart.
"""

from __future__ import annotations

import errno
import random
import socket
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from ipaddress import ip_address
from itertools import accumulate
from typing import Final

from actors.forwarding.protocols import failures
from actors.forwarding.protocols.failures import Failure
from actors.net.this_machine import is_local
from config.net.entries import is_ipv6, is_network, usable

_IP_BIND_ADDRESS_NO_PORT: Final = 24
"""ip(7): the port is chosen when it is known where to, so that one address serves more than 28,000 connections."""
_IP_FREEBIND: Final = 15
_IPV6_FREEBIND: Final = 78
"""ip(7): bind to an address that no interface has. Needs no capability."""

_NO_WAY: Final = (errno.EINVAL, errno.ENETUNREACH)
"""How the kernel refuses to connect from an IPv4 address that no route makes local; the second has other causes too."""


class SourceAddressUnavailable(OSError):
    """The address is not, or no more, one of this machine."""


@dataclass(frozen=True, slots=True)
class SourceAddress:
    """An address of each family, empty without one. Without any it is the kernel's choice.

    `free` are those of them that no interface needs to have. `rule` is what of the configuration says so. `drawn` are
    the entries that the addresses were drawn from at random, for this use alone.
    """

    ipv4: str = ""
    ipv6: str = ""
    free: tuple[str, ...] = ()
    rule: str = ""
    drawn: tuple[str, ...] = ()

    @property
    def given(self) -> bool:
        """Whether it says anything."""
        return bool(self.ipv4 or self.ipv6)

    def of(self, family: int) -> str:
        """The address of this family, empty without one."""
        return self.ipv6 if family == socket.AF_INET6 else self.ipv4

    def towards(self, destination: str) -> str:
        """The address for connections to another, empty without one."""
        return self.ipv6 if ":" in destination else self.ipv4

    def refuses(self, destination: str) -> Failure | None:
        """Why there is no way from here to an address: it is of a family that has no source address."""
        if not self.given or self.towards(destination):
            return None
        return failures.no_source_address(self.rule) if self.rule else failures.OTHER_FAMILY

    def key(self, host: str) -> str:
        """The host as idle connections from here are found by. No host name has a space."""
        return f"{host} from {self.ipv4} {self.ipv6}"

    def bind(self, sock: socket.socket) -> None:
        """Let what goes out of `sock` leave from here. Raises `SourceAddressUnavailable`, and `OSError` otherwise."""
        address = self.of(sock.family)
        if not address:
            return
        if sock.type & socket.SOCK_STREAM:
            sock.setsockopt(socket.IPPROTO_IP, _IP_BIND_ADDRESS_NO_PORT, 1)
        try:
            self.allow_foreign(sock)
            sock.bind((address, 0))
        except OSError as error:
            raise self.unavailable(sock.family, error) from error

    def allow_foreign(self, sock: socket.socket) -> None:
        """Let `sock` be bound to an address of this source that no interface has."""
        if sock.family == socket.AF_INET6 and self.ipv6 in self.free:
            sock.setsockopt(socket.IPPROTO_IPV6, _IPV6_FREEBIND, 1)
        elif sock.family == socket.AF_INET and self.ipv4 in self.free:
            sock.setsockopt(socket.IPPROTO_IP, _IP_FREEBIND, 1)

    def connect(self, sock: socket.socket, address: tuple[str, int]) -> int:
        """As `connect_ex`. Raises `SourceAddressUnavailable`, when no route says that the source address is local."""
        code, own = sock.connect_ex(address), self.of(sock.family)
        if code in _NO_WAY and own in self.free and not is_local(ip_address(own)):
            raise self.unavailable(sock.family, OSError(code, "its network is not routed to this machine"))
        return code

    def unavailable(self, family: int, error: OSError) -> SourceAddressUnavailable:
        """The error for its address of this family."""
        return SourceAddressUnavailable(error.errno, f"{self.of(family)}: {error.strerror}")


ANY: Final = SourceAddress()


def plain_source(address: str) -> SourceAddress:
    """One address of this machine, or any when it is empty."""
    return SourceAddress(ipv6=address) if ":" in address else SourceAddress(ipv4=address)


def may_serve(made: SourceAddress | None, wanted: SourceAddress | None) -> bool:
    """Whether a connection that was made to leave from the one may serve a request that is to leave from the other.

    One that was drawn at random may where it could have been drawn for that request as well.
    """
    if made is None or wanted is None:
        return made is wanted
    return made == wanted or (bool(made.drawn) and (made.drawn, made.rule) == (wanted.drawn, wanted.rule))


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
