"""The identity of a person as a provider states it, and ID tokens that prove it (OpenID Connect Core 1.0, section
3.1.3.7) with the keys that they are signed with.

Only asymmetric algorithms are accepted, whatever the token or the provider says: with HS256 the client's secret would
be a signing key, and a public key could be mistaken for one (RFC 8725, section 3.1).
"""

from __future__ import annotations

import hmac
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

LONGEST_SUBJECT = 255


class IdentityRefused(Exception):
    """The identity is not proven, or may not sign in; the text is meant for the person."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A person at a provider. `issuer` and `subject` identify them for good; everything else may change.

    `email` is set only when the provider has verified it. `claims` are all claims.
    """

    provider: str
    issuer: str
    subject: str
    email: str | None
    claims: Mapping[str, Any]


def subject_of(value: Any) -> str | None:
    """An identifier that a provider gave, as text; None when it is none."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    return value if isinstance(value, str) and 0 < len(value) <= LONGEST_SUBJECT else None


def address_of(value: Any) -> str | None:
    """An e-mail address in its normal form; None when it is none."""
    if not isinstance(value, str):
        return None
    from email_validator import EmailNotValidError, validate_email  # 40 ms of a start

    try:
        return validate_email(value, check_deliverability=False, test_environment=True).normalized
    except EmailNotValidError:
        return None


def verified_address(claims: Mapping[str, Any]) -> str | None:
    """The e-mail address in OpenID Connect claims, if they say that it is verified.

    Microsoft says so in `xms_edov` alone; there an address without it may be anything that an administrator of some
    directory has written.
    """
    verified = _is_true(claims.get("email_verified")) or _is_true(claims.get("xms_edov"), "1", 1)
    return address_of(claims.get("email")) if verified else None


def _is_true(value: Any, *more: Any) -> bool:
    """True, or `"true"` as some providers write it; 1 is not meant unless it is among `more`."""
    return value is True or (not isinstance(value, bool) and value in ("true", *more))


def same_address(one: str, other: str) -> bool:
    """Whether two addresses are one. Case is ignored within ASCII alone: beyond it, different letters fold together."""
    if one.isascii() and other.isascii():
        return one.lower() == other.lower()
    return one == other


def domain_of(address: str) -> str:
    """The domain of an address, in IDNA form and lower case where there is one."""
    domain = address.rpartition("@")[2].lower()
    try:
        return domain.encode("idna").decode("ascii")
    except UnicodeError:
        return domain


ALGORITHMS = ("RS256", "ES256", "PS256")
LEEWAY = 30
"""Seconds that the provider's clock may differ from ours."""
KEYS_TTL = 3600.0
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
            if self._clock() - self._fetched >= KEYS_TTL:
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
