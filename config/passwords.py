"""Passwords that are only ever checked: bcrypt over a pre-hash.

bcrypt reads 72 bytes at most (and stops at a NUL), so what it gets is the base64 of the SHA-256 of the password: 44
characters that depend on all of it.
"""

from __future__ import annotations

import base64
import hashlib

import bcrypt

COST = 10
"""log2 of bcrypt's rounds: about 50 ms for one check on one core of a small server."""


def hash_password(password: str, cost: int = COST) -> str:
    """The hash to store."""
    return bcrypt.hashpw(prehashed(password), bcrypt.gensalt(cost)).decode("ascii")


def check_password(password: str, stored: str) -> bool:
    """Whether `stored` was made from `password`; False when `stored` is no hash."""
    return check_prehashed(prehashed(password), stored.encode("ascii"))


def check_prehashed(prehash: bytes, stored: bytes) -> bool:
    """As `check_password`, with the result of `prehashed`: the slow part, which does not need the password itself."""
    try:
        return bcrypt.checkpw(prehash, stored)
    except ValueError:  # not a bcrypt hash
        return False


def prehashed(password: str) -> bytes:
    """44 characters of base64."""
    return base64.b64encode(hashlib.sha256(password.encode("utf-8", "surrogatepass")).digest())
