"""Content negotiation for files that exist in several encodings (RFC 9110, 12.5.3)."""

from __future__ import annotations

import re
from collections.abc import Collection

_ENTRY = re.compile(r"([a-z0-9*-]{1,20})(?:\s*;\s*q=([01](?:\.[0-9]{0,3})?))?", re.ASCII)
IDENTITY = "identity"


def preferred(accept: str | None, available: Collection[str]) -> str:
    """The first of `available` that has the largest weight in `Accept-Encoding`; else `identity`."""
    weights = _weights(accept or "")
    others = weights.get("*", 0.0)
    accepted = {name: weights.get(name, others) for name in available}
    best = max(accepted, key=lambda name: accepted[name], default=IDENTITY)
    return best if accepted.get(best, 0.0) > 0 else IDENTITY


def _weights(accept: str) -> dict[str, float]:
    """Entries that can't be read count as not accepted."""
    entries = (_ENTRY.fullmatch(each.strip()) for each in accept.lower()[:500].split(","))
    return {entry[1]: float(entry[2] or 1) for entry in entries if entry}
