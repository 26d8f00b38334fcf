"""Passwords that are only ever checked: bcrypt over a pre-hash.

bcrypt reads 72 bytes at most (and stops at a NUL), so what it gets is the base64 of the SHA-256 of the password: 44
characters that depend on all of it.

A hash that was made elsewhere may be bcrypt over the password itself. It can't be seen from the hash, so such a one is
stored with the prefix `FOREIGN`, and both are tried.
"""

from __future__ import annotations

import base64
import hashlib

import bcrypt

COST = 10
"""log2 of bcrypt's rounds: about 50 ms for one check on one core of a small server."""
FOREIGN = "plain:"
"""Precedes a hash from elsewhere: bcrypt over the plain password, as of htpasswd, or over the pre-hash."""
_BCRYPT_MAX = 72
"""Bytes of a password that bcrypt reads."""


def hash_password(password: str, cost: int = COST) -> str:
    """The hash to store."""
    return bcrypt.hashpw(prehashed(password), bcrypt.gensalt(cost)).decode("ascii")


def check_password(password: str, stored: str) -> bool:
    """Whether `stored` was made from `password`; False when `stored` is no hash."""
    if stored.startswith(FOREIGN):
        return check_foreign(password, stored)
    return check_prehashed(prehashed(password), stored.encode("ascii"))


def check_prehashed(prehash: bytes, stored: bytes) -> bool:
    """As `check_password`, with the result of `prehashed`: the slow part, which does not need the password itself.

    False for a hash from elsewhere.
    """
    try:
        return bcrypt.checkpw(prehash, stored)
    except ValueError:  # not a bcrypt hash
        return False


def foreign_hash(hashed: str) -> str:
    """A hash of bcrypt from elsewhere, as it is stored."""
    return FOREIGN + hashed


def check_foreign(password: str, stored: str) -> bool:
    """Whether a hash from elsewhere was made from `password`: from the password itself, or from its pre-hash."""
    hashed = stored.removeprefix(FOREIGN).encode("ascii")
    plain = password.encode("utf-8", "surrogatepass")[:_BCRYPT_MAX]
    return check_prehashed(plain, hashed) or check_prehashed(prehashed(password), hashed)


def prehashed(password: str) -> bytes:
    """44 characters of base64."""
    return base64.b64encode(hashlib.sha256(password.encode("utf-8", "surrogatepass")).digest())
