"""Passwords that are only ever checked: bcrypt over a pre-hash.

bcrypt reads 72 bytes at most (and stops at a NUL), so what it gets is the base64 of the SHA-256 of the password: 44
characters that depend on all of it.

A hash that was made elsewhere may be bcrypt over the password itself. It can't be seen from the hash, so such a one is
stored with the prefix `FOREIGN`, and both are tried. When the right password comes, one of our own takes its place;
`renewal` says that the two are of one password, so that what was authenticated by the previous goes on.
"""

from __future__ import annotations

import base64
import hashlib
import re

import bcrypt

COST = 10
"""log2 of bcrypt's rounds: about 50 ms for one check on one core of a small server."""
FOREIGN = "plain:"
"""Precedes a foreign hash: bcrypt over the plain password, as of htpasswd, or over the pre-hash."""
PREHASHED = "sha256:"
"""Precedes a given hash that is over the pre-hash, at our own cost: it is one of our own, and stays."""
_HASH = re.compile(rf"({FOREIGN})?\$2[aby]\$([0-3][0-9])\$.{{53}}")
_DIGEST = b"J8G1rpbQV9lBTiUXHNPvzWb1u6JzpS."
_COST_MIN = 4
_BCRYPT_MAX = 72
"""Bytes of a password that bcrypt reads."""


def hash_password(password: str, cost: int = COST) -> str:
    """The hash to store."""
    return bcrypt.hashpw(prehashed(password), bcrypt.gensalt(cost)).decode("ascii")


def hash_to_store(password: str, known: str | None) -> str:
    """`known`, if it is a hash of this password, else a new one: the present password, given again, is no change."""
    return known if known is not None and check_password(password, known) else hash_password(password)


def check_password(password: str, stored: str) -> bool:
    """Whether `stored` was made from `password`; False when `stored` is no hash."""
    return any(check_hash(given, hashed) for given, hashed in attempts(password, stored))


def attempts(password: str, stored: str) -> list[tuple[bytes, bytes]]:
    """What bcrypt gets, and the hash that it must result in: pairs of both, of which any may match.

    The last ones of a foreign hash never match: a wrong password costs as much as against a hash of our own.
    """
    prehash = prehashed(password)
    if not is_foreign(stored):
        return [(prehash, stored.encode("ascii"))]
    hashed = stored.removeprefix(FOREIGN).encode("ascii")
    plain = password.encode("utf-8", "surrogatepass")[:_BCRYPT_MAX]
    missing = _costs((1 << COST) - rounds_of(stored))
    return [(plain, hashed), (prehash, hashed), *((b"", _salt(cost) + _DIGEST) for cost in missing)]


def check_hash(given: bytes, hashed: bytes) -> bool:
    """Whether one of `attempts` matches: the slow part. False when `hashed` is no hash."""
    try:
        return bcrypt.checkpw(given, hashed)
    except ValueError:  # not a bcrypt hash
        return False


def foreign_hash(hashed: str) -> str:
    """A foreign hash of bcrypt, as it is stored."""
    return FOREIGN + hashed


def given_hash(hashed: str) -> str:
    """A hash that a request has, as it is stored: one of our own with `PREHASHED`, else one from elsewhere."""
    return hashed.removeprefix(PREHASHED) if hashed.startswith(PREHASHED) else foreign_hash(hashed)


def unknown_hash() -> str:
    """A hash of our own cost that no password is known for."""
    return (_salt(COST) + _DIGEST).decode("ascii")


def spend_rounds(rounds: int) -> int:
    """Make about so many rounds for nothing, at most those of a hash of our own; how many they were."""
    costs = _costs(rounds)
    for cost in costs:
        bcrypt.hashpw(b"", _salt(cost))
    return sum(1 << cost for cost in costs)


def _costs(rounds: int) -> list[int]:
    """Costs of hashes that together are about so many rounds, at most those of a hash of our own."""
    costs, left = [], rounds
    for cost in range(COST, _COST_MIN - 1, -1):
        if left >= 1 << cost:
            costs.append(cost)
            left -= 1 << cost
    return costs


def _salt(cost: int) -> bytes:
    return b"$2b$%02d$CwTycUXWue0Thq9StjUM0u" % cost


def is_foreign(stored: str) -> bool:
    """Whether a hash is foreign."""
    return stored.startswith(FOREIGN)


def rounds_of(stored: str | None) -> int:
    """The rounds of bcrypt that a wrong password costs; 0 where there is no hash."""
    found = None if stored is None else _HASH.fullmatch(stored)
    return 0 if found is None else (2 if found[1] else 1) << int(found[2])


def is_whole(password: str) -> bool:
    """Whether bcrypt reads all of it: a foreign hash says nothing about what is behind that."""
    return len(password.encode("utf-8", "surrogatepass")) <= _BCRYPT_MAX


def fingerprint(stored: str) -> str:
    """By which a hash is recognized; it is another one when the password has changed."""
    return hashlib.sha256(stored.encode()).hexdigest()


def renewal(previous: str, stored: str) -> str:
    """What is stored beside a hash that has taken the place of the previous one of the same password.

    `previous` is the fingerprint of that.
    """
    return hashlib.sha256(f"{previous} {stored}".encode()).hexdigest()


def prehashed(password: str) -> bytes:
    """44 characters of base64."""
    return base64.b64encode(hashlib.sha256(password.encode("utf-8", "surrogatepass")).digest())
