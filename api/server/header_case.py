"""How the names of header fields are spelled on the wire.

They mean the same in any case (RFC 9110, section 5.1), but waitress capitalizes each part of them, and people search
for `ETag` and `X-RateLimit-Limit`.
"""

from __future__ import annotations

import re

_SPELLED = (
    "ETag",
    "RateLimit",
    "RateLimit-Policy",
    "WWW-Authenticate",
    "X-RateLimit-Limit",
    "X-RateLimit-Remaining",
    "X-RateLimit-Reset",
)
_BY_LOWER = {name.lower().encode(): name.encode() for name in _SPELLED}
_NAME = re.compile(rb"(?<=\r\n)(?:" + b"|".join(_BY_LOWER) + rb")(?=: )", re.IGNORECASE)


def spelled(head: bytes) -> bytes:
    """The head of a response with the names of its fields as their specifications write them."""
    return _NAME.sub(lambda found: _BY_LOWER[found[0].lower()], head)
