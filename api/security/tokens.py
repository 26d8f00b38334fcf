"""Access and refresh tokens.

A sign-in makes a *family*: one document that says who signed in and which refresh token is the current one. Access
tokens are JWTs (RFC 7519, HS256) that name their family; they are good while the signature holds, the time isn't
over, the family is there and its user is active. So a logout is the deletion of one document, durable and at once.

A sign-in may ask for an interactive session (`SESSIONS`); its family says so as long as it lives.

A refresh token is `rt_<family>_<secret>`; only a hash of the secret is stored. Each use makes a new one. An old one
that comes again was stolen, or its successor was: the family ends (RFC 9700, section 4.14). The id of a family is no
secret, as access tokens and the audit trail name it. So that a made-up secret ends nothing, each secret carries a tag
made with a key of its family, by which an old one is recognized without a list of them.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jwt

from api.security.signing import SigningKeys
from api.store import NotStored, RevisionConflict, Store, Write
from config.settings.settings import Auth

ISSUER = "proxyfleet"
AUDIENCE = "proxyfleet-api"
ALGORITHM = "HS256"
COLLECTION = "refresh_families"
FAMILIES_PER_USER = 100
"""Sign-ins of one user that live at the same time; with more of them the oldest ends."""

SESSIONS = ("interactive", "cookie")
"""Kinds of sessions that people use, through the command line or a page; a sign-in that names none is a program's."""

_REFRESH = re.compile(r"rt_([0-9a-f]{24})_([0-9A-Za-z_-]{43})", re.ASCII)


class BadToken(Exception):
    """The token is not one of ours, or its family is dead."""


class ReusedToken(BadToken):
    """A refresh token came a second time; its family is dead now."""

    def __init__(self, user_id: str, family: str) -> None:
        super().__init__("the refresh token was used before")
        self.user_id = user_id
        self.family = family


class ExpiredToken(Exception):
    """The token was good until `expired_at` (Unix seconds)."""

    def __init__(self, expired_at: float) -> None:
        super().__init__("the token has expired")
        self.expired_at = expired_at


@dataclass(frozen=True, slots=True)
class Claims:
    """What a good access token says. `session` is one of `SESSIONS` if the sign-in asked for one."""

    user_id: str
    family: str
    expires_at: float
    session: str | None = None


@dataclass(frozen=True, slots=True)
class TokenPair:
    """What a sign-in or a refresh gives."""

    access_token: str
    refresh_token: str
    expires_in: int


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """Seconds that tokens live from their issue."""

    access_token_ttl: int
    refresh_token_ttl: int

    @classmethod
    def of(cls, auth: Auth) -> Lifetimes:
        """Those in the settings."""
        return cls(auth.access_token_ttl, auth.jwt.refresh_token_ttl)


class Tokens:
    """Issues, checks and revokes. Thread-safe."""

    def __init__(
        self,
        store: Store,
        keys: SigningKeys,
        lifetimes: Lifetimes | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._keys = keys
        self.lifetimes = lifetimes or Lifetimes.of(Auth())
        self._clock = clock
        self._lock = threading.Lock()

    def issue(self, user_id: str, session: str | None = None) -> TokenPair:
        """Start a family for a user who has just signed in. Raises `StoreWriteError`."""
        family, key = secrets.token_hex(12), secrets.token_hex(32)
        secret = _new_secret(key)
        with self._lock:
            body = self._family(family, user_id, key, secret, self._clock())
            self._begin(user_id, {**body, "session": session})
        return self._pair(user_id, family, secret)

    def refresh(self, token: str) -> tuple[str, TokenPair]:
        """The user id and the next pair. Raises `BadToken`, `ExpiredToken`, `StoreWriteError`."""
        match = _REFRESH.fullmatch(token)
        if match is None:
            raise BadToken
        family, secret = match.groups()
        with self._lock:
            return self._rotate(family, secret)

    def check(self, token: str) -> Claims:
        """What a good access token says. Raises `BadToken`, `ExpiredToken`."""
        try:
            claims = self._decode(token)
            expires_at = float(claims["exp"])
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            raise BadToken from error
        if not self._clock() < expires_at:
            raise ExpiredToken(expires_at)
        user_id, family = claims["sub"], claims["fam"]
        document = self._store.get(COLLECTION, str(family))
        if document is None or document.body["user_id"] != user_id:
            raise BadToken
        return Claims(user_id, family, expires_at, document.body.get("session"))

    def rotate_key(self, revoke_previous: bool = False) -> tuple[str, float]:
        """Sign with a new key: its id, and until when tokens of the previous one are accepted (Unix seconds).

        With `revoke_previous` all access tokens end now; refresh tokens, which are not signed, stay good. Raises
        `StoreWriteError`.
        """
        with self._lock:
            now = self._clock()
            until = now if revoke_previous else last_token_end(self._store, now)
            return self._keys.rotate(None if revoke_previous else until).id, until

    def revoke(self, family: str) -> None:
        """End a family, with its access tokens, for good. Raises `StoreWriteError`."""
        try:
            self._store.delete(COLLECTION, family)
        except NotStored:
            return  # it ended in the meantime

    def revoke_all(self, user_id: str) -> None:
        """End every family of a user. Raises `StoreWriteError`."""
        for document in self._store.find(COLLECTION, user_id=user_id):
            self.revoke(document.id)

    def _rotate(self, family: str, secret: str) -> tuple[str, TokenPair]:
        document = self._store.get(COLLECTION, family)
        if document is None:
            raise BadToken
        body = document.body
        if not hmac.compare_digest(_digest(secret), body["secret_hash"]):
            if not _was_issued(secret, body.get("tag_key")):
                raise BadToken
            self.revoke(family)
            raise ReusedToken(body["user_id"], family)
        if body["refresh_until"] <= self._clock():
            raise ExpiredToken(body["refresh_until"])
        key = body.get("tag_key") or secrets.token_hex(32)
        fresh = _new_secret(key)
        following = self._family(family, body["user_id"], key, fresh, body["created_at"], last_access_end(body))
        try:
            self._store.put(COLLECTION, {**following, "session": body.get("session")}, expect=document.revision)
        except RevisionConflict as error:  # a logout came between
            raise BadToken from error
        return body["user_id"], self._pair(body["user_id"], family, fresh)

    def _family(
        self, family: str, user_id: str, key: str, secret: str, created_at: float, earlier: float = 0.0
    ) -> dict[str, Any]:
        """`earlier` is when the access tokens that the family has had end; one to come may end before them."""
        now = self._clock()
        refresh_until = now + self.lifetimes.refresh_token_ttl
        access_until = max(earlier, now + self.lifetimes.access_token_ttl + 1)
        return {
            "id": family,
            "user_id": user_id,
            "secret_hash": _digest(secret),
            "tag_key": key,
            "created_at": created_at,
            "refresh_until": refresh_until,
            "access_until": access_until,
            "keep_until": max(refresh_until, access_until),
        }

    def _begin(self, user_id: str, family: dict[str, Any]) -> None:
        """Store a new family, and delete others to make room for it, in one write."""
        while over := self._room(user_id):
            try:
                self._store.commit([*over, Write(COLLECTION, family["id"], family, 0)])
                return
            except NotStored:
                continue  # a sign-out in the meantime has made room
        self._store.put(COLLECTION, family, expect=0)

    def _room(self, user_id: str) -> list[Write]:
        """The end of families that are over, and of the oldest of a user who has too many."""
        now = self._clock()
        over = self._store.find(COLLECTION, lambda body: body["keep_until"] <= now)
        live = self._store.find(COLLECTION, lambda body: body["keep_until"] > now, user_id=user_id)
        live.sort(key=lambda document: document.body["refresh_until"])
        ended = over + live[: max(0, len(live) + 1 - FAMILIES_PER_USER)]
        return [Write(COLLECTION, document.id, None) for document in ended]

    def _pair(self, user_id: str, family: str, secret: str) -> TokenPair:
        lifetime = self.lifetimes.access_token_ttl
        now = self._clock()
        claims = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "sub": user_id,
            "jti": secrets.token_hex(12),
            "iat": int(now),
            "exp": round(now + lifetime, 3),
            "fam": family,
        }
        return TokenPair(self._sign(claims), f"rt_{family}_{secret}", lifetime)

    def _sign(self, claims: dict[str, Any]) -> str:
        key = self._keys.current
        return jwt.encode(claims, key.secret, ALGORITHM, headers={"kid": key.id})

    def _decode(self, token: str) -> dict[str, Any]:
        """The claims, of an expired token too, with the algorithm fixed whatever the token says (RFC 8725).

        Raises `jwt.PyJWTError`.
        """
        named = jwt.get_unverified_header(token).get("kid")
        for key in self._keys.believed(named if isinstance(named, str) else None):
            try:
                return _decode_by(key.secret, token)
            except jwt.InvalidSignatureError:
                continue  # of another key
        raise jwt.InvalidSignatureError("signed with no key of ours")


def _decode_by(secret: bytes, token: str) -> dict[str, Any]:
    """`exp` is compared by us: it has a fraction (RFC 7519, section 2), which PyJWT would cut off."""
    required = ["iss", "aud", "sub", "jti", "iat", "exp", "fam"]
    claims: dict[str, Any] = jwt.decode(
        token,
        secret,
        algorithms=[ALGORITHM],
        audience=AUDIENCE,
        issuer=ISSUER,
        options={"require": required, "verify_exp": False},
    )
    return claims


def last_token_end(store: Store, now: float) -> float:
    """When the last access token that was issued ends, at the latest."""
    return max((last_access_end(document.body) for document in store.find(COLLECTION)), default=now)


def last_access_end(family: Mapping[str, Any]) -> float:
    """When the last access token of a family ends; of families of older releases a later moment."""
    return float(family.get("access_until", family["keep_until"]))


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _new_secret(key: str) -> str:
    """43 characters: a nonce of 126 bits and its tag."""
    nonce = secrets.token_urlsafe(16)[:21]
    return nonce + _tag(nonce, key)


def _was_issued(secret: str, key: str | None) -> bool:
    """Whether `secret` was made with this key; families of earlier releases have none until their next refresh."""
    return key is not None and hmac.compare_digest(secret[21:], _tag(secret[:21], key))


def _tag(nonce: str, key: str) -> str:
    mac = hmac.digest(bytes.fromhex(key), nonce.encode(), hashlib.sha256)
    return base64.urlsafe_b64encode(mac)[:22].decode()
