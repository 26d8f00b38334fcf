"""The field `Via`: the entry that a proxy adds, and whether it is there already (RFC 9110 7.6.3).

A proxy knows itself by its pseudonym alone: by host name and port, two machines of one name in a chain would be a loop.
"""

from __future__ import annotations

import re

from actors.forwarding.protocols.failures import PROXY_NAME

_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")


def pseudonym_of(proxy_id: str) -> bytes:
    """The name that this proxy has, and no other."""
    return f"{PROXY_NAME}-{proxy_id[-8:]}".encode()


def received_by(pseudonym: bytes, machine: str, port: int) -> bytes:
    """The entry behind the version: host name and port of the proxy, or its pseudonym alone where the field's grammar
    has no such host name."""
    host = machine.encode("ascii", "replace")
    return b"%b:%d (%b)" % (host, port, pseudonym) if _TOKEN.fullmatch(host) else pseudonym


def extended_via(before: bytes | None, minor: int, name: bytes) -> bytes:
    """`before` with an entry for HTTP/1.`minor` behind it, or as it is without a `name`; empty for no field."""
    if not name:
        return before or b""
    ours = b"1.1 " + name if minor else b"1.0 " + name
    return ours if before is None else before + b", " + ours


def passed_here(via: bytes | None, pseudonym: bytes) -> bool:
    """True when `via` names the proxy of this pseudonym, as a name or in a comment."""
    return via is not None and any(_names(hop.split()[1:3], pseudonym) for hop in via.split(b","))


def _names(words: list[bytes], pseudonym: bytes) -> bool:
    return words[:1] == [pseudonym] or words[1:] == [b"(%b)" % pseudonym]
