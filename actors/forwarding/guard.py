"""The egress guard: which addresses a proxy may connect to.

What is judged is the resolved address, never how it was written. By default only addresses that are globally
reachable by the registries of IANA pass, and an IPv6 address that carries an IPv4 one inside (mapped, compatible,
NAT64, 6to4, Teredo) passes only when the inner one does too. The product's own listeners and API never pass, whatever
is excepted, since a proxy that can be made to talk to itself is a loop or a way in.
"""

from __future__ import annotations

import socket
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from actors.bounded import keep
from actors.bus.messages import EgressSpec

_SPECIAL_V4 = tuple(
    IPv4Network(text)
    for text in (
        "0.0.0.0/8",  # this network, RFC 791
        "10.0.0.0/8",  # private, RFC 1918
        "100.64.0.0/10",  # shared address space (CGNAT), RFC 6598
        "127.0.0.0/8",  # loopback, RFC 1122
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
_MEMORY_SIZE = 4096

LOOPBACK = "127.0.0.1"

Address = IPv4Address | IPv6Address


class Guard:
    """Judges addresses by one `EgressSpec`. Verdicts are remembered; a changed spec is a new guard."""

    def __init__(self, spec: EgressSpec) -> None:
        self._public_only = spec.policy == "public_only"
        self._allowed_networks = []
        self._allowed_names = set()
        for entry in spec.allow:
            try:
                self._allowed_networks.append(ip_network(entry, strict=False))
            except ValueError:
                self._allowed_names.add(entry.lower().rstrip("."))
        self._own_ports = {port for _host, port in spec.own}
        self._own = set(spec.own)
        self._verdicts: dict[str, str | None] = {}

    def judge(self, address: str, port: int, name: str) -> str | None:
        """None when `address` may be connected to for the target `name`, else a sentence that says why not."""
        if port in self._own_ports and self._is_own(address, port):
            return "the target is this service itself"
        if not self._public_only or self._excepted(name):
            return None
        if address not in self._verdicts:
            keep(self._verdicts, address, self._judge_address(ip_address(address.partition("%")[0])), _MEMORY_SIZE)
        return self._verdicts[address]

    def _excepted(self, name: str) -> bool:
        """Is the name excepted by itself, or by a `*.` entry for its domain?"""
        if not self._allowed_names:
            return False
        name = name.rstrip(".")
        if name in self._allowed_names:
            return True
        labels = name.split(".")
        return any("*." + ".".join(labels[cut:]) in self._allowed_names for cut in range(1, len(labels)))

    def _judge_address(self, address: Address) -> str | None:
        if any(address in network for network in self._allowed_networks):
            return None
        inner = hidden_v4(address)
        if inner is not None and any(inner in network for network in self._allowed_networks):
            return None
        if is_public(address):
            return None
        return f"{address} is not a public address"

    def _is_own(self, address: str, port: int) -> bool:
        seen: Address = ip_address(address.partition("%")[0])
        seen = hidden_v4(seen) or seen
        for host, own_port in self._own:
            if own_port != port:
                continue
            try:
                own: Address = ip_address(host)
            except ValueError:
                own = ip_address("0.0.0.0")  # noqa: S104 - a host given by name: any local address counts
            if seen == own or ((own.is_unspecified or seen.is_unspecified) and is_local(seen)):
                return True
        return False


def hidden_v4(address: Address) -> IPv4Address | None:
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
    """Is the address globally reachable, and whatever IPv4 address it carries too?"""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _SPECIAL_V4)
    inner = hidden_v4(address)
    if inner is not None and not is_public(inner):
        return False
    if address in _NAT64:
        return True
    return address in _GLOBAL_V6 and not any(address in network for network in _SPECIAL_V6)


def is_localhost(name: str) -> bool:
    """Is it one of the names that are loopback wherever they are resolved (RFC 6761 6.3)?"""
    return f".{name.lower().rstrip('.')}".endswith(".localhost")


def is_local(address: Address) -> bool:
    """Is it an address of this machine? The kernel then uses it as its own source; no packet is sent by asking."""
    if address.is_loopback or address.is_unspecified:
        return True
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((str(address), 9))
            return bool(ip_address(probe.getsockname()[0]) == address)
    except OSError:
        return False  # no route there, so it is none of ours
