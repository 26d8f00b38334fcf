"""The forms in which a body is sent, and whether its client has it already (RFC 9110, 8.8.3, 12.5.3 and 13.1.2)."""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Collection
from typing import NamedTuple

_ENTRY = re.compile(r"([a-z0-9*-]{1,20})(?:\s*;\s*q=([01](?:\.[0-9]{0,3})?))?", re.ASCII)
IDENTITY, GZIP = "identity", "gzip"
COMPRESSED_FROM = 1000
"""Bytes of a body from which it is compressed."""
_LEVEL = 1
"""Most of the gain, at a third of the time of zlib's default."""


def preferred(accept: str | None, available: Collection[str]) -> str:
    """The first of `available` that has the largest weight in `Accept-Encoding`; else `identity`."""
    weights = _weights(accept or "")
    others = weights.get("*", 0.0)
    accepted = {name: weights.get(name, others) for name in available}
    best = max(accepted, key=lambda name: accepted[name], default=IDENTITY)
    return best if accepted.get(best, 0.0) > 0 else IDENTITY


class Form(NamedTuple):
    """A content in one encoding. The ETag of a compressed one is weak: its bytes depend on the compressor."""

    content: bytes
    encoding: str
    etag: str

    def made(self) -> bytes:
        """The body. Without a time in it, so that the same content has the same bytes."""
        return self.content if self.encoding == IDENTITY else gzip.compress(self.content, _LEVEL, mtime=0)


def form_of(content: bytes, revision: int | None, accept: str | None) -> Form:
    """In which form it is sent to a client with this `Accept-Encoding`; None: it must not be compressed.

    The ETag is by content, behind the revision where the resource has one: `If-Match` goes by that alone.
    """
    digest = hashlib.blake2b(content, digest_size=12).hexdigest()
    etag = f'"{digest}"' if revision is None else f'"{revision}-{digest}"'
    if len(content) < COMPRESSED_FROM or preferred(accept, (GZIP,)) == IDENTITY:
        return Form(content, IDENTITY, etag)
    return Form(content, GZIP, f"W/{etag}")


def is_known(if_none_match: str | None, etag: str) -> bool:
    """Whether the client has this form already, by weak comparison."""
    known = {each.strip(" \t").removeprefix("W/") for each in (if_none_match or "").split(",")}
    return etag.removeprefix("W/") in known or "*" in known


def _weights(accept: str) -> dict[str, float]:
    """Entries that can't be read count as not accepted."""
    entries = (_ENTRY.fullmatch(each.strip()) for each in accept.lower()[:500].split(","))
    return {entry[1]: float(entry[2] or 1) for entry in entries if entry}
