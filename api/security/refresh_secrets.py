"""The secrets in refresh tokens: made, recognized by a hash, and by a tag when they are old.

A secret is 43 characters: a nonce of 126 bits, and a tag of it by the key of its family. So one that was issued once
differs from a made-up one, without a list of all of them. In a family whose secrets follow from each other, the key
also makes the next nonce: the same next one for all that ask with the same secret.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets

_NONCE = 21
_TAG = 22


def new_key() -> str:
    """The key of a family."""
    return secrets.token_hex(32)


def new_secret(key: str) -> str:
    """A random one."""
    return _tagged(secrets.token_urlsafe(16)[:_NONCE], key)


def next_secret(secret: str, key: str) -> str:
    """The one that follows `secret` in a family whose secrets follow from each other."""
    return _tagged(_mac(f"after {secret}", key)[:_NONCE], key)


def was_issued(secret: str, key: str) -> bool:
    """Whether `secret` was made with this key."""
    return hmac.compare_digest(secret[_NONCE:], _tag(secret[:_NONCE], key))


def is_hash_of(digest: str, secret: str) -> bool:
    """Whether `digest` is `hash_of` this secret."""
    return hmac.compare_digest(hash_of(secret), digest)


def hash_of(secret: str) -> str:
    """What is stored of a secret."""
    return hashlib.sha256(secret.encode()).hexdigest()


def _tagged(nonce: str, key: str) -> str:
    return nonce + _tag(nonce, key)


def _tag(nonce: str, key: str) -> str:
    return _mac(nonce, key)[:_TAG]


def _mac(text: str, key: str) -> str:
    return base64.urlsafe_b64encode(hmac.digest(bytes.fromhex(key), text.encode(), hashlib.sha256)).decode()
