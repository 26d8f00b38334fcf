"""Credentials in `Proxy-Authorization`: `Basic` (RFC 7617), and `Bearer` (RFC 6750) for the secret of a credential."""

from __future__ import annotations

import base64
import binascii
import re

from actors.forwarding.protocols.secrets import PREFIX

_BASIC = re.compile(rb"[Bb][Aa][Ss][Ii][Cc] +([A-Za-z0-9+/]+={0,2})")
_BEARER = re.compile(rb"[Bb][Ee][Aa][Rr][Ee][Rr] +(pfc_[0-9A-Za-z]+)")


def read_credentials(value: bytes | None) -> tuple[str, bytes] | None:
    """User and password, or None when there are none. With `Bearer` the user is empty and the password a secret."""
    found = read_basic(value)
    if found is not None or value is None:
        return found
    bearer = _BEARER.fullmatch(value)
    return None if bearer is None else ("", bearer[1])


def read_basic(value: bytes | None) -> tuple[str, bytes] | None:
    """User and password of a `Basic` value, or None when it isn't one. Only beside a secret the user may be empty."""
    match = _BASIC.fullmatch(value) if value is not None else None
    if match is None:
        return None
    try:
        decoded = base64.b64decode(match[1], validate=True)
    except binascii.Error:
        return None
    user, colon, password = decoded.partition(b":")
    if not colon or not (user or password.startswith(PREFIX)):
        return None
    return user.decode("utf-8", "replace"), password
