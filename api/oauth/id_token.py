"""ID tokens (OpenID Connect Core 1.0, section 3.1.3.7) and the keys that they are signed with.

Only asymmetric algorithms are accepted, whatever the token or the provider says: with HS256 the client's secret would
be a signing key, and a public key could be mistaken for one (RFC 8725, section 3.1).
"""

from __future__ import annotations

import hmac
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from api.oauth.identity import IdentityRefused

ALGORITHMS = ("RS256", "ES256", "PS256")
LEEWAY = 30
"""Seconds that the provider's clock may differ from ours."""
KEYS_KEPT = 3600.0
REFETCH_PAUSE = 30.0
"""Seconds that a key set is kept, and between two fetches for a key that isn't in it."""

_RSA_BITS = 2048
_REQUIRED = ["iss", "sub", "aud", "exp", "iat"]
_KEY_TYPES = {"RS256": "RSA", "PS256": "RSA", "ES256": "EC"}


class KeySet:
    """The provider's public keys, from `fetch`. Thread-safe; one fetch at a time.

    An unknown key id fetches the set again, but not more often than every `REFETCH_PAUSE` seconds: tokens with made-up
    key ids must not become requests to the provider.
    """

    def __init__(self, fetch: Callable[[], dict[str, Any]], clock: Callable[[], float] = time.monotonic) -> None:
        self._fetch = fetch
        self._clock = clock
        self._lock = threading.Lock()
        self._keys: list[dict[str, Any]] = []
        self._fetched = float("-inf")

    def key_for(self, header: dict[str, Any]) -> jwt.PyJWK:
        """The key for a token with this header. Raises `IdentityRefused`, `PeerUnavailable`."""
        with self._lock:
            if self._clock() - self._fetched >= KEYS_KEPT:
                self._refresh()
            found = _fitting(self._keys, header)
            if not found and self._clock() - self._fetched >= REFETCH_PAUSE:
                self._refresh()
                found = _fitting(self._keys, header)
        if len(found) != 1:
            raise IdentityRefused(f"the ID token's key is {'ambiguous' if found else 'unknown'}")
        return _usable(found[0], header["alg"])

    def _refresh(self) -> None:
        keys = self._fetch().get("keys")
        self._keys = [key for key in keys if isinstance(key, dict)] if isinstance(keys, list) else []
        self._fetched = self._clock()


def claims_of(token: str, keys: KeySet, client_id: str, nonce: str, accepts: Callable[[dict[str, Any]], bool]) -> Any:
    """The claims of a good ID token. `accepts` judges the issuer. Raises `IdentityRefused`, `PeerUnavailable`."""
    try:
        header = jwt.get_unverified_header(token)
        if header.get("alg") not in ALGORITHMS:
            raise IdentityRefused(f"the ID token's algorithm {str(header.get('alg'))[:20]!r} is not allowed")
        claims: dict[str, Any] = jwt.decode(
            token,
            keys.key_for(header),
            algorithms=[header["alg"]],
            audience=client_id,
            leeway=LEEWAY,
            options={"require": _REQUIRED, "verify_iss": False},
        )
    except (jwt.PyJWTError, ValueError, RecursionError) as error:
        raise IdentityRefused(f"the ID token is not valid: {error}") from error
    _check_claims(claims, client_id, nonce, accepts)
    return claims


def _check_claims(
    claims: dict[str, Any], client_id: str, nonce: str, accepts: Callable[[dict[str, Any]], bool]
) -> None:
    """Beyond what pyjwt has checked: issuer, nonce, authorized party."""
    if not accepts(claims):
        raise IdentityRefused("the ID token is of another issuer")
    given = claims.get("nonce")
    if not isinstance(given, str) or not hmac.compare_digest(given.encode("utf-8", "replace"), nonce.encode()):
        raise IdentityRefused("the ID token is of another sign-in: its nonce is wrong")
    party, audience = claims.get("azp"), claims["aud"]
    if (party is not None or (isinstance(audience, list) and len(audience) > 1)) and party != client_id:
        raise IdentityRefused("the ID token was issued to another client")


def _fitting(keys: Sequence[dict[str, Any]], header: dict[str, Any]) -> list[dict[str, Any]]:
    """The keys that this token may be signed with: of its kind and, if it names one, of that id."""
    algorithm, wanted = header["alg"], header.get("kid")
    return [
        key
        for key in keys
        if key.get("kty") == _KEY_TYPES[algorithm]
        and key.get("use", "sig") == "sig"
        and key.get("alg", algorithm) == algorithm
        and (wanted is None or key.get("kid") == wanted)
    ]


def _usable(key: dict[str, Any], algorithm: str) -> jwt.PyJWK:
    try:
        made = jwt.PyJWK.from_dict({name: value for name, value in key.items() if name != "d"}, algorithm)
    except (jwt.PyJWTError, ValueError, TypeError, KeyError) as error:
        raise IdentityRefused("the ID token's key can't be used") from error
    if isinstance(made.key, RSAPublicKey) and made.key.key_size < _RSA_BITS:
        raise IdentityRefused(f"the ID token's key has less than {_RSA_BITS} bits")
    return made
