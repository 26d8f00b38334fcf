"""The plain form of an IP address, in which addresses are compared with networks, rules and each other.

An IPv6 socket reports an IPv4 client as `::ffff:192.0.2.7` (RFC 4291, section 2.5.5.2), a link-local one with its zone
(`fe80::1%eth0`, RFC 4007). A rule for 192.0.2.0/24 or fe80::/10 is meant for both, so every decision is made on the
plain form. Addresses that embed an IPv4 one otherwise (NAT64, 6to4, Teredo) stay as they are: the egress guard alone
decodes them (`actors.net.egress_guard.embedded_ipv4`).
"""

from __future__ import annotations

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
