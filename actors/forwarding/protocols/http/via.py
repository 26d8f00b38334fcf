"""The field `Via`: the entry that a proxy adds, and whether it is there already (RFC 9110 7.6.3)."""

from __future__ import annotations


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
