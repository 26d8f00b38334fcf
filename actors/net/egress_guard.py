"""The egress guard: which addresses a proxy may connect to.

It checks the resolved address, never how it was written. By default only addresses are allowed that are globally
reachable by the registries of IANA, and an IPv6 address that carries an IPv4 one inside (mapped, compatible,
NAT64, 6to4, Teredo) is allowed only when the inner one is too; an address of this machine itself never is, since it
reaches services behind the firewall. The product's own listeners and API are never allowed, whatever is excepted,
since a proxy that connects to itself is a loop or a way in.

The product's own requests, those of webhooks and to identity providers among them, have one list (`OutgoingGuard`). The
product's own listeners and API, link-local and metadata addresses are closed to all; addresses that are not public, and
those of this machine, to those whose target is not the operator's choice.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Network, ip_address, ip_network
from typing import Any

from actors.bounded import keep
from actors.bus.messages.specs import EgressSpec
from actors.net.this_machine import Address, is_local
from config.net.names import Range, merged

_SPECIAL_V4 = tuple(
    IPv4Network(text)
    for text in (
        "0.0.0.0/8",  # this network, RFC 791
        "10.0.0.0/8",  # private, RFC 1918
        "100.64.0.0/10",  # shared address space (CGNAT), RFC 6598
        "127.0.0.0/8",  # loopback, RFC 1122
        "168.63.129.16/32",  # the host of a virtual machine in Azure, whose metadata it serves
        "169.254.0.0/16",  # link-local and cloud metadata, RFC 3927
        "172.16.0.0/12",  # private, RFC 1918
        "192.0.0.0/24",  # IETF protocol assignments, RFC 6890
        "192.0.2.0/24",  # documentation, RFC 5737
        "192.31.196.0/24",  # AS112, RFC 7535
        "192.52.193.0/24",  # AMT, RFC 7450
        "192.88.99.0/24",  # 6to4 relay anycast, RFC 7526
        "192.168.0.0/16",  # private, RFC 1918
        "192.175.48.0/24",  # AS112, RFC 7534
        "198.18.0.0/15",  # benchmarking, RFC 2544
        "198.51.100.0/24",  # documentation, RFC 5737
        "203.0.113.0/24",  # documentation, RFC 5737
        "224.0.0.0/4",  # multicast, RFC 5771
        "240.0.0.0/4",  # reserved and broadcast, RFC 1112, 8190
    )
)
_GLOBAL_V6 = IPv6Network("2000::/3")
"""All that is global unicast now; everything outside it is special or not assigned."""
_SPECIAL_V6 = tuple(
    IPv6Network(text)
    for text in (
        "2001::/23",  # IETF protocol assignments, RFC 2928 (Teredo, benchmarking, ORCHID, … are inside)
        "2001:db8::/32",  # documentation, RFC 3849
        "2620:4f:8000::/48",  # AS112, RFC 7534
        "3fff::/20",  # documentation, RFC 9637
    )
)
_NAT64 = IPv6Network("64:ff9b::/96")
_NEVER = tuple(
    ip_network(text)
    for text in (
        "0.0.0.0/8",  # this network
        "100.100.100.200/32",  # metadata (Alibaba)
        "168.63.129.16/32",  # metadata (Azure)
        "169.254.0.0/16",  # link-local and metadata
        "192.0.0.0/24",  # IETF protocol assignments, and metadata (Oracle)
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved and broadcast
        "::/128",  # unspecified
        "fd00:ec2::/32",  # metadata (Amazon)
        "fd20:ce::/32",  # metadata (Google)
        "fe80::/10",  # link-local
        "ff00::/8",  # multicast
    )
)
"""What no upstream may be and nothing of the product's own requests may reach, even where private addresses may."""
_CACHE_SIZE = 4096
LOCAL_KNOWN = 5.0
"""Seconds for which it is remembered whether an address is this machine's; addresses come and go."""

LOOPBACK = "127.0.0.1"
FOREVER = float("inf")
PORT_MAX = 65535


_UNSPECIFIED: frozenset[Address] = frozenset((ip_address("0.0.0.0"), ip_address("::")))  # noqa: S104 - as listeners have


class OwnListeners:
    """Addresses at which the product itself listens, `(host, port)`; a host may be a name or unspecified.

    `ranges` have a host with the first and the last of consecutive ports.
    """

    def __init__(self, addresses: Iterable[tuple[str, int]], ranges: Iterable[Range] = ()) -> None:
        self._hosts: dict[int, set[str]] = {}
        """As they are written, by port."""
        for host, port in addresses:
            self._hosts.setdefault(port, set()).add(host)
        self._ranges = tuple(ranges)
        self._spans = [(first, last) for _host, first, last in merged(("", *each[1:]) for each in self._ranges)]
        """The ports of all ranges, whatever their hosts."""
        self._read: dict[int, frozenset[Address]] = {}
        """The same, read when a port is first asked for: there may be ten thousand."""

    def has(self, address: str, port: int) -> bool:
        """Whether connecting to `address` at `port` reaches one of them."""
        return (port in self._hosts or (bool(self._spans) and self._in_range(port))) and self._is_one(address, port)

    def _in_range(self, port: int) -> bool:
        at = bisect_right(self._spans, (port, PORT_MAX)) - 1
        return at >= 0 and port <= self._spans[at][1]

    def _hosts_at(self, port: int) -> set[str]:
        return self._hosts.get(port, set()) | {host for host, first, last in self._ranges if first <= port <= last}

    def _is_one(self, address: str, port: int) -> bool:
        own = self._read.get(port)
        if own is None:
            own = self._read[port] = frozenset(map(_own_address, self._hosts_at(port)))
        seen = _parse(address)
        seen = embedded_ipv4(seen) or seen
        return seen in own or ((seen.is_unspecified or not _UNSPECIFIED.isdisjoint(own)) and _may_be_local(seen))


def own_addresses(group: Mapping[str, Any]) -> tuple[list[tuple[str, int]], list[Range]]:
    """The addresses of the product's own listeners, and those with consecutive ports, by the group `egress` of the
    settings of actors."""
    ranges = [(str(host), int(first), int(last)) for host, first, last in group.get("own_ranges", ())]
    return [(str(host), int(port)) for host, port in group.get("own", ())], ranges


class EgressGuard:
    """Checks addresses by one `EgressSpec`. Results are cached; a changed spec is a new guard.

    `local` returns whether an address is this machine's, and is called again every `LOCAL_KNOWN` seconds of `clock`.
    """

    def __init__(
        self,
        spec: EgressSpec,
        local: Callable[[Address], bool] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._policy = spec.policy
        self._allowed_networks = []
        self._allowed_names = set()
        for entry in spec.allow:
            try:
                self._allowed_networks.append(ip_network(entry, strict=False))
            except ValueError:
                self._allowed_names.add(entry.lower().rstrip("."))
        self._own = OwnListeners(spec.own, spec.own_ranges)
        self._is_local = local or is_local
        self._clock = clock
        self._known: dict[str, tuple[str | None, float]] = {}

    def check(self, address: str, port: int, name: str) -> str | None:
        """None when `address` may be connected to for the target `name`, else a sentence that says why not."""
        if self._own.has(address, port):
            return "the target is this service itself"
        if self._policy == "off" or self._excepted(name):
            return None
        refusal, until = self._known.get(address, (None, 0.0))
        now = self._clock()
        if until <= now:
            refusal, lasts = self._check_address(address)
            keep(self._known, address, (refusal, now + lasts), _CACHE_SIZE)
        return refusal

    def _excepted(self, name: str) -> bool:
        """Whether the name is excepted by itself, or by a `*.` entry for its domain."""
        if not self._allowed_names:
            return False
        name = name.rstrip(".")
        if name in self._allowed_names:
            return True
        labels = name.split(".")
        return any("*." + ".".join(labels[cut:]) in self._allowed_names for cut in range(1, len(labels)))

    def _check_address(self, written: str) -> tuple[str | None, float]:
        """The result, and the seconds for which it holds."""
        address = _parse(written)
        inner = embedded_ipv4(address)
        if any(each in network for network in self._allowed_networks for each in (address, inner or address)):
            return None, FOREVER
        if self._policy == "private":
            return f"{address} is link-local or reserved" if is_never(address) else None, FOREVER
        if not is_public(address):
            return f"{address} is not a public address", FOREVER
        try:
            if any(self._is_local(each) for each in {address, inner or address}):
                return f"{address} is an address of this machine", LOCAL_KNOWN
        except OSError as error:
            return f"cannot tell whether {address} is an address of this machine: {error.strerror or error}", 0.0
        return None, LOCAL_KNOWN


class UpstreamGuard:
    """Checks the addresses of upstreams by the same `EgressSpec`. What it adds to `EgressGuard`:

    Own proxies may be upstreams of each other, where they are written as an address or `localhost`: a name that leads
    to one could be anybody's. Those that are `fetched` from a source are written by others: none may be an own proxy.
    The API, other listeners of the product, link-local and metadata addresses never are.
    """

    def __init__(
        self,
        spec: EgressSpec,
        local: Callable[[Address], bool] | None = None,
        fetched: bool = False,
    ) -> None:
        self._fetched = fetched
        self._services = OwnListeners(spec.services)
        self._proxies = OwnListeners(spec.own, spec.own_ranges)
        allow = spec.allow if spec.upstreams_allow is None else spec.upstreams_allow
        self._addresses = EgressGuard(EgressSpec(spec.policy, allow, ()), local)

    def check(self, address: str, port: int, name: str) -> str | None:
        """None when an upstream that is written as `name` may be connected to there, else why not."""
        if self._services.has(address, port):
            return "it is this service itself, not one of its proxies"
        if self._proxies.has(address, port):
            if self._fetched:
                return "it is a proxy of this service, which upstreams from a source must not be"
            by_address = is_localhost(name) or name == address
            return None if by_address else "it is a proxy of this service, which has to be written by its address"
        if is_never(_parse(address)):
            return f"{address} is link-local or reserved, and never an upstream"
        sentence = self._addresses.check(address, port, name)
        return None if sentence is None else f"{sentence}, and proxy.upstreams_allow doesn't except it"


class NameServerGuard:
    """Checks the addresses of name servers that a proxy names. What it adds to `EgressGuard`:

    Only public addresses are allowed, networks in `allow` (`proxy.dns_allow`), and exactly the servers, host and port,
    that the configuration has: `named` returns them. `own` are the product's listeners.
    """

    def __init__(
        self,
        own: OwnListeners,
        allow: Sequence[str],
        named: Callable[[], Iterable[tuple[str, int]]],
    ) -> None:
        self._own = own
        self._named = named
        self._addresses = EgressGuard(EgressSpec("public_only", tuple(allow), ()))

    def check(self, address: str, port: int, host: str) -> str | None:
        """None when a server that is written with this host may be asked there, else why not."""
        if is_never(_parse(address)):
            return f"{address} is link-local or reserved, and never a name server"
        if not {(address, port), (host, port)}.isdisjoint(self._named()):
            sentence = None
        else:
            sentence = self._addresses.check(address, port, "")
        if sentence is not None:
            return f"{sentence}, and the configuration names it neither in proxy.dns_allow nor as a name server"
        return "it is this service itself" if self._own.has(address, port) else None


def _parse(address: str) -> Address:
    return ip_address(address.partition("%")[0])


def embedded_ipv4(address: Address) -> IPv4Address | None:
    """The IPv4 address that an IPv6 one carries: mapped, compatible, NAT64 (RFC 6052), 6to4, Teredo."""
    if isinstance(address, IPv4Address):
        return None
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    number = int(address)
    if address in _NAT64 or (number >> 32 == 0 and number > 1):
        return IPv4Address(number & 0xFFFFFFFF)
    return None


def is_public(address: Address) -> bool:
    """Whether the address is globally reachable, and so is any IPv4 address that it carries."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _SPECIAL_V4)
    inner = embedded_ipv4(address)
    if inner is not None and not is_public(inner):
        return False
    if address in _NAT64:
        return True
    return address in _GLOBAL_V6 and not any(address in network for network in _SPECIAL_V6)


def is_never(address: Address) -> bool:
    """Whether it, or the IPv4 address that it carries, is link-local, a metadata service, multicast, or reserved."""
    inner = embedded_ipv4(address)
    return any(each in network for network in _NEVER for each in (address, inner or address))


def is_localhost(name: str) -> bool:
    """Whether it is one of the names that always resolve to loopback (RFC 6761 6.3)."""
    return f".{name.lower().rstrip('.')}".endswith(".localhost")


def _own_address(host: str) -> Address:
    """A host given by name counts as any local address."""
    try:
        return ip_address(host)
    except ValueError:
        return ip_address("0.0.0.0")  # noqa: S104 - see above


def _may_be_local(address: Address) -> bool:
    try:
        return is_local(address)
    except OSError:
        return True  # unknown now, and the product itself must never be reached


class OutgoingGuard:
    """`own` are the addresses of the product's own listeners, `(host, port)`, and `ranges` those of consecutive ports.

    `excepted_by` names, for refusals, the setting that permits private addresses; empty: they are permitted.
    """

    def __init__(self, own: Iterable[tuple[str, int]], excepted_by: str = "", ranges: Iterable[Range] = ()) -> None:
        self._closed = EgressGuard(EgressSpec("private", (), tuple(own), own_ranges=tuple(ranges)))
        self._public = EgressGuard(EgressSpec("public_only", (), ())) if excepted_by else None
        self._excepted_by = excepted_by

    def check(self, address: str, port: int, name: str) -> str | None:
        """None when `address` may be connected to for the target `name`, else a sentence that says why not."""
        closed = self._closed.check(address, port, name)
        if closed is not None or self._public is None:
            return closed
        sentence = self._public.check(address, port, name)
        return sentence and f"{sentence}; {self._excepted_by} of the configuration would let it"
