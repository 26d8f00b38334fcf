"""Names of header fields, as what sets and removes them compares them."""

from __future__ import annotations

_FRAMING = (
    "connection content-length expect host http2-settings keep-alive max-forwards proxy-authenticate "
    "proxy-authentication-info proxy-authorization proxy-connection te trailer transfer-encoding upgrade via"
)
OWN_FIELDS = frozenset(_FRAMING.split())
"""Fields of framing, of routing and of one hop, by which hops understand each other: a proxy sets them itself."""


def canonical_name(name: str) -> str:
    """One spelling for all names that servers may take for the same: without case, and `_` is `-`.

    Many hand `X-User` and `X_User` to applications as one variable, so one of them would stand for the other.
    """
    return name.lower().replace("_", "-")
