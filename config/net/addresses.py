"""The plain form of an IP address, in which addresses are compared with networks, rules and each other; addresses of
this machine that a proxy goes out from, and those of ZeroMQ (`tcp://`).

An IPv6 socket reports an IPv4 client as `::ffff:192.0.2.7` (RFC 4291, section 2.5.5.2), a link-local one with its zone
(`fe80::1%eth0`, RFC 4007). A rule for 192.0.2.0/24 or fe80::/10 is meant for both, so every decision is made on the
plain form. Addresses that embed an IPv4 one otherwise (NAT64, 6to4, Teredo) stay as they are: the egress guard alone
decodes them (`actors.net.egress_guard.embedded_ipv4`).
"""

from __future__ import annotations

import re
import socket
from ipaddress import IPv4Address, IPv6Address, ip_address

Address = IPv4Address | IPv6Address


def plain(text: str) -> Address:
    """The address in `text` without a zone, and as IPv4 when it is mapped into IPv6. Raises `ValueError`."""
    return unmapped(ip_address(text.partition("%")[0]))


def unmapped(address: Address) -> Address:
    """The IPv4 address that is mapped into an IPv6 one; any other address as it is."""
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address


def is_address(text: str) -> bool:
    """Whether it is an IP address, with a zone or without."""
    try:
        plain(text)
    except ValueError:
        return False
    return True


def is_plain_address(text: str) -> bool:
    """Whether it is an IP address without a zone."""
    return "%" not in text and is_address(text)


_FORM = "must be an IPv4 or IPv6 address of this machine without a port, or empty for any"


def read_bind_address(text: str) -> str:
    """`text` in the usual form, if it is one address or empty; else `ValueError`. IPv4 written as IPv6 is IPv4."""
    if not text:
        return ""
    try:
        address = unmapped(ip_address(text))
    except ValueError:
        raise ValueError(_FORM) from None
    if "%" in text or address.is_unspecified or address.is_multicast or str(address) == "255.255.255.255":
        raise ValueError(_FORM)
    return str(address)


def not_local(address: str) -> str | None:
    """Why connections can't leave from `address`, None when they can. Found out by binding a socket to it."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((address, 0))
    except OSError as error:
        return f"{address} is not an address of this machine: {error.strerror or error}"
    return None


TCP_ADDRESS = re.compile(r"tcp://([0-9.]+|\[[0-9a-fA-F:.]+\]):([0-9]{1,5})", re.ASCII)


def tcp_parts(address: str) -> tuple[str, int] | None:
    """Host and port of a ZeroMQ address of TCP; None for any other."""
    match = TCP_ADDRESS.fullmatch(address)
    return (match[1].strip("[]"), int(match[2])) if match else None
