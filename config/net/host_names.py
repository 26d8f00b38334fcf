"""Host names as text, and how they differ from addresses."""

from __future__ import annotations

import re
from ipaddress import ip_address

NUMERIC_END = re.compile(r"(?:^|\.)(?:0[xX][0-9A-Fa-f]*|[0-9]+)$", re.ASCII)
"""The last label is a number: resolvers take such a name for an odd spelling of an address (`127.1`, `0x7f.1`)."""

_NAME = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)(?:\.(?!-)[A-Za-z0-9_-]{1,63}(?<!-))*", re.ASCII)


def is_host_name(text: str) -> bool:
    """Whether `text` is the name of a host, in ASCII and without a dot at its end; an underscore is allowed."""
    return len(text) <= 253 and _NAME.fullmatch(text) is not None and not NUMERIC_END.search(text)


def from_this_machine(host: str) -> str:
    """The host by which this machine reaches a listener at `host`: loopback where it listens at all addresses."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - nothing is bound here


def is_loopback(host: str) -> bool:
    """Whether a host, by its address or as `localhost`, is reached from this machine alone."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
