"""Entries of lists as numbers and normal text: what the compiler stores."""

from __future__ import annotations

from ipaddress import IPv4Network
from typing import NamedTuple

from config.net.domains import in_a_labels
from config.net.entries import read_network
from config.net.host_names import is_host_name


class Range(NamedTuple):
    """A network: IP version, first address and length."""

    version: int
    start: int
    length: int


def domain_of(text: str) -> str:
    """`text` in lower case, in A-labels and without a dot at its end. Raises `ValueError`."""
    name = in_a_labels(text).lower().removesuffix(".")
    if not is_host_name(name):
        raise ValueError("is not a domain")
    return name


def range_of(text: str) -> Range:
    """An address or a network. Raises `ValueError`."""
    network = read_network(text)
    version = 4 if isinstance(network, IPv4Network) else 6
    return Range(version, int(network.network_address), network.prefixlen)
