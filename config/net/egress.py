"""Addresses and networks that connections leave from, read from text. Light to import: forwarding actors need it.

An address is one of this machine. A network is one that is routed to it: none of its addresses has to be configured.
`192.0.2.4/32` is a network, so an address that is only routed here is written like that.
"""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address

from config.net.entries import Network, read_network
from config.net.ip import unmapped

_FORM = "must be an address of this machine or a network like 192.0.2.0/24 or 2001:db8:7::/48"
_NO_SOURCES = (
    IPv4Network("0.0.0.0/8"),
    IPv4Network("224.0.0.0/4"),
    IPv4Network("255.255.255.255/32"),
    IPv6Network("::/128"),
    IPv6Network("ff00::/8"),
    IPv6Network("fe80::/10"),
)
"""Unspecified, multicast, broadcast, and link-local addresses of IPv6, which are nothing without an interface."""


def read_egress(text: str) -> Network:
    """One entry. Raises `ValueError`."""
    try:
        network = read_network(text)
    except ValueError:
        raise ValueError(_FORM) from None
    if any(network.version == each.version and network.overlaps(each) for each in _NO_SOURCES):
        raise ValueError(f"{_FORM}: nothing leaves from addresses that are unspecified, multicast or link-local")
    return network


def usual_form(text: str) -> str:
    """An entry as it is stored: bits behind the length are left out, and IPv4 written as IPv6 is IPv4."""
    network = read_egress(text)
    return str(network) if "/" in text else str(network.network_address)


def is_network(entry: str) -> bool:
    """Whether an entry is a network, rather than one address."""
    return "/" in entry


def usable(entry: str) -> tuple[int, int]:
    """The first and the last address of an entry that connections may leave from, as numbers.

    Of a network these are not its own address and its broadcast address (IPv4, RFC 922; not of a /31, RFC 3021), and
    not the anycast address of its routers (IPv6, RFC 4291 section 2.6.1; not of a /127, RFC 6164). Raises `ValueError`.
    """
    network = read_egress(entry)
    first, last = int(network.network_address), int(network.broadcast_address)
    if network.prefixlen >= network.max_prefixlen - 1:
        return first, last
    return first + 1, last - (1 if network.version == 4 else 0)


def number_of(address: str) -> int:
    """An address as a number."""
    return int(unmapped(ip_address(address)))


def is_ipv6(entry: str) -> bool:
    """Whether an entry is of IPv6."""
    return isinstance(read_egress(entry).network_address, IPv6Address)
