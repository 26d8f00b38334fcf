"""`Basic` credentials in a field (RFC 7617)."""

from __future__ import annotations

import base64
import binascii
import re

_BASIC = re.compile(rb"[Bb][Aa][Ss][Ii][Cc] +([A-Za-z0-9+/]+={0,2})")


def read_basic(value: bytes | None) -> tuple[str, bytes] | None:
    """User and password of a `Basic` value, or None when it isn't one."""
    match = _BASIC.fullmatch(value) if value is not None else None
    if match is None:
        return None
    try:
        decoded = base64.b64decode(match[1], validate=True)
    except binascii.Error:
        return None
    user, colon, password = decoded.partition(b":")
    if not colon or not user:
        return None
    return user.decode("utf-8", "replace"), password
