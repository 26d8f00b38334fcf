"""Addresses of this machine that a proxy goes out from."""

from __future__ import annotations

import socket
from ipaddress import ip_address

from config.net.ip import unmapped

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
