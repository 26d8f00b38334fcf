"""Access and refresh tokens.

A sign-in makes a *family*: one document that says who signed in and which refresh token is the current one. Access
tokens are JWTs (RFC 7519, HS256) that name their family; they are good while the signature holds, the time isn't
over, the family is there and its user is active. So a logout is the deletion of one document, durable and at once.

A family has a fingerprint of the password's hash, and of when its user was disabled last. Another password deletes the
families of its user, and so does disabling or deleting it; one that began at another node of a fleet, and wasn't known
where that was done, is refused by the fingerprint wherever it comes to, also when a deleted user comes back.

A sign-in may ask for an interactive session (`SESSIONS`); its family says so as long as it lives.

A refresh token is `rt_<family>_<secret>`; only a hash of the secret is stored. Each use makes a new one. An old one
that comes again was stolen, or its successor was: the family ends (RFC 9700, section 4.14). The id of a family is no
secret, as access tokens and the audit trail name it. A made-up secret ends nothing (`api.security.tokens`).

The refresh token of a `COOKIE` session is in a cookie, which all tabs of a browser share, and is accepted from nowhere
else. There a token is good for `GRACE` seconds more when it was replaced: for a tab that has sent it at the same time,
and for one that has lost the response. It then gives the one that is current, so tabs don't end up with several.

The secrets in refresh tokens are recognized by a hash, and by a tag when they are old. A secret is 43 characters: a
nonce of 126 bits, and a tag of it by the key of its family. So one that was issued once differs from a made-up one,
without a list of all of them. In a family whose secrets follow from each other, the key also makes the next nonce: the
same next one for all that ask with the same secret.
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
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NoReturn

import jwt

from api.engine.loose import LooseObjects
from api.security import users
from api.security.signing import SigningKey, SigningKeys
from api.security.users import User
from api.store import Document, NotStored, RevisionConflict, Store, StoreError, Write
from config.settings.settings import Auth

ISSUER = "proxyfleet"
AUDIENCE = "proxyfleet-api"
ALGORITHM = "HS256"
COLLECTION = "refresh_families"
FAMILIES_PER_USER = 100
"""Sign-ins of one user that live at the same time; with more of them the oldest ends."""

COOKIE = "cookie"
SESSIONS = ("interactive", COOKIE)
"""Kinds of sessions that people use, through the command line or a page; a sign-in that names none is a program's."""
GRACE = 10.0
"""Seconds that the refresh token of a cookie is good after it was replaced."""
REPLACED_MAX = 50
"""Of a family, so many replaced tokens are good at the same time; the oldest go first."""

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
class Client:
    """Who signs in or refreshes, for the list of sessions: an address, and what the client says it is."""

    address: str | None = None
    user_agent: str | None = None


@dataclass(frozen=True, slots=True)
class IssuedTokens:
    """What a sign-in or a refresh gives. Lifetimes are in seconds."""

    access_token: str
    refresh_token: str
    expires_in: int
    refresh_expires_in: int


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
        lifetimes: Callable[[], Lifetimes],
        clock: Callable[[], float] = time.time,
        loose: LooseObjects | None = None,
        catch_up: Callable[[], object] = lambda: None,
    ) -> None:
        """`loose` are those of the store, which other nodes of a fleet change, too.

        `catch_up` has the store take what others have committed, and raises `StoreError`.
        """
        self._loose = loose
        self._catch_up = catch_up
        self._store = store
        self._keys = keys
        self.lifetimes = lifetimes
        self._clock = clock
        self._lock = threading.Lock()

    def issue(self, user: User, session: str | None = None, client: Client | None = None) -> IssuedTokens:
        """Start a family for a user who has just signed in, as they were then. Raises `StoreWriteError`."""
        family, key = secrets.token_hex(12), new_key()
        secret = new_secret(key)
        with self._lock:
            now = self._clock()
            body = {"id": family, "user_id": user.id, "session": session, "tag_key": key, "created_at": now}
            body["password"] = user.sign_in_mark
            if self._loose is not None and self._loose.node is not None:
                body["node"] = self._loose.node
            self._begin(user.id, self._following(body, secret, client))
        return self._pair(user.id, family, secret, self.lifetimes().refresh_token_ttl)

    def refresh(self, token: str, by_cookie: bool = False, client: Client | None = None) -> tuple[str, IssuedTokens]:
        """The user id and the next pair. Raises `BadToken`, `ExpiredToken`, `StoreWriteError`."""
        family, secret = _parts(token)
        document = self._family(family)
        if document is not None and not is_hash_of(document.body["secret_hash"], secret):
            self._require_newest(document.body, secret)
        with self._lock:
            found = self._rotate(family, secret, by_cookie, client)
        if self._loose is None:
            return found
        try:
            self._loose.settle()
        except RevisionConflict:  # another node has ended it, or replaced the same token
            with self._lock:
                found = self._rotate(family, secret, by_cookie, client)
        return found

    def _require_newest(self, family: Mapping[str, Any], secret: str) -> None:
        """A secret that was issued and is not the current one may be newer than what is here. Raises `BadToken`."""
        if self._loose is not None and was_issued(secret, family["tag_key"]) and not self._loose.ask():
            raise BadToken

    def owner(self, token: str) -> tuple[str, str]:
        """The family and the user id that a refresh token of a cookie was issued for, the current one or an old one.

        Raises `BadToken`.
        """
        family, secret = _parts(token)
        document = self._family(family)
        if document is None or document.body.get("session") != COOKIE:
            raise BadToken
        if not was_issued(secret, document.body["tag_key"]):
            raise BadToken
        return family, document.body["user_id"]

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
        document = self._family(str(family))
        if document is None or document.body["user_id"] != user_id:
            raise BadToken
        return Claims(user_id, family, expires_at, document.body.get("session"))

    def rotate_key(self, revoke_previous: bool = False) -> tuple[str, float]:
        """Sign with a new key: its id, and until when tokens of the previous one are accepted (Unix seconds).

        With `revoke_previous` all access tokens end now; refresh tokens, which are not signed, stay good. Raises
        `StoreError`. The caller is within `Engine.exclusive`, so that no sign-in comes between.
        """
        now = self._clock()
        until = (
            now
            if revoke_previous
            else max((each.body["access_until"] for each in self._store.find(COLLECTION)), default=now)
        )
        fresh = self._keys.rotate(None if revoke_previous else until)
        _claims_of.cache_clear()  # and with it the keys that are good no more
        return fresh.id, until

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

    def revoke_of_node(self, node: str) -> None:
        """End every family that began at this node of a fleet, which is removed. Raises `StoreWriteError`."""
        if self._loose is not None:
            self._loose.ask()
        for document in self._store.find(COLLECTION, node=node):
            self.revoke(document.id)

    def fits_user(self, family: Mapping[str, Any]) -> bool:
        """Whether a family is of the password that its user has, and began after the user was disabled last.

        Those of earlier releases don't say.
        """
        if (known := family.get("password")) is None:
            return True
        user = users.by_id(self._store, family["user_id"])
        return user is not None and user.sign_in_mark == known

    def _family(self, family: str) -> Document | None:
        """The document of a family. One that isn't here may be of a sign-in at another node of this moment.

        One that does not fit its user is ended, if the user isn't a later one that isn't here yet.
        """
        found = self._store.get(COLLECTION, family)
        if found is None and self._loose is not None:
            self._loose.ask()
            found = self._store.get(COLLECTION, family)
        if found is None or self.fits_user(found.body):
            return found
        with suppress(StoreError):  # without the database it is refused, and not ended
            self._catch_up()
            if self.fits_user(found.body):
                return found
            self.revoke(family)
        return None

    def _rotate(self, family: str, secret: str, by_cookie: bool, client: Client | None) -> tuple[str, IssuedTokens]:
        document = self._store.get(COLLECTION, family)
        if document is None or (document.body.get("session") == COOKIE) is not by_cookie:
            raise BadToken
        body, now = document.body, self._clock()
        current = secret if is_hash_of(body["secret_hash"], secret) else _current(body, secret, now)
        if current is None:
            self._refuse(body, secret)
        elif body["refresh_until"] <= now:
            raise ExpiredToken(body["refresh_until"])
        elif current is not secret:
            return body["user_id"], self._pair(body["user_id"], family, current, int(body["refresh_until"] - now))
        key = body["tag_key"]
        fresh = next_secret(secret, key) if by_cookie else new_secret(key)
        if (user := users.by_id(self._store, body["user_id"])) is not None:
            body = {"password": user.sign_in_mark, **body}  # one of an earlier release has none
        following = self._following(body, fresh, client)
        if by_cookie:
            following["replaced"] = _replaced(body, now)
        try:
            self._store.put(COLLECTION, following, expect=document.revision)
        except RevisionConflict as error:  # a logout came between
            raise BadToken from error
        return body["user_id"], self._pair(body["user_id"], family, fresh, self.lifetimes().refresh_token_ttl)

    def _refuse(self, body: Mapping[str, Any], secret: str) -> NoReturn:
        """The secret is not the current one: end the family if it was one. Raises `BadToken`, `StoreWriteError`."""
        if not was_issued(secret, body["tag_key"]):
            raise BadToken
        self.revoke(body["id"])
        raise ReusedToken(body["user_id"], body["id"])

    def _following(self, family: Mapping[str, Any], secret: str, client: Client | None) -> dict[str, Any]:
        """The document of a family with a new secret. Access tokens that it has had may end after those to come."""
        now = self._clock()
        refresh_until = now + self.lifetimes().refresh_token_ttl
        access_until = max(family.get("access_until", 0.0), now + self.lifetimes().access_token_ttl + 1)
        seen = {} if client is None else {"address": client.address, "user_agent": client.user_agent}
        return {
            **family,
            **seen,
            "secret_hash": hash_of(secret),
            "used_at": now,
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

    def _pair(self, user_id: str, family: str, secret: str, refresh_expires_in: int) -> IssuedTokens:
        lifetime = self.lifetimes().access_token_ttl
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
        return IssuedTokens(self._sign(claims), f"rt_{family}_{secret}", lifetime, refresh_expires_in)

    def _sign(self, claims: dict[str, Any]) -> str:
        key = self._keys.current
        return jwt.encode(claims, key.secret, ALGORITHM, headers={"kid": key.id})

    def _decode(self, token: str) -> Mapping[str, Any]:
        """The claims, of an expired token too. Raises `jwt.PyJWTError`."""
        return _claims_of(token, self._keys.believed())


@lru_cache(maxsize=1024)
def _claims_of(token: str, keys: tuple[SigningKey, ...]) -> Mapping[str, Any]:
    """What a token that one of these keys has signed says, with the algorithm fixed whatever it says (RFC 8725).

    It is remembered, as PyJWT takes about as long for it as all else of a request. `exp` is compared by us: it has a
    fraction (RFC 7519, section 2), which PyJWT would cut off. And both moments are those of the fleet's clock, which
    PyJWT does not know. Raises `jwt.PyJWTError`.
    """
    named = jwt.get_unverified_header(token).get("kid")
    required = ["iss", "aud", "sub", "jti", "iat", "exp", "fam"]
    for key in keys:
        if isinstance(named, str) and named != key.id:
            continue
        with suppress(jwt.InvalidSignatureError):  # of another key
            claims: dict[str, Any] = jwt.decode(
                token,
                key.secret,
                algorithms=[ALGORITHM],
                audience=AUDIENCE,
                issuer=ISSUER,
                options={"require": required, "verify_exp": False, "verify_iat": False},
            )
            return MappingProxyType(claims)
    raise jwt.InvalidSignatureError("signed with no key of ours")


def _parts(token: str) -> tuple[str, str]:
    """Family and secret of a refresh token. Raises `BadToken`."""
    match = _REFRESH.fullmatch(token)
    if match is None:
        raise BadToken
    return match[1], match[2]


def _current(family: Mapping[str, Any], secret: str, now: float) -> str | None:
    """The current secret of a family for one that it has replaced lately; else None."""
    good = [each for each in family.get("replaced", ()) if each["until"] > now]
    if not any(is_hash_of(each["secret_hash"], secret) for each in good):
        return None
    for _ in good:
        secret = next_secret(secret, family["tag_key"])
        if is_hash_of(family["secret_hash"], secret):
            return secret
    return None


def _replaced(family: Mapping[str, Any], now: float) -> list[dict[str, Any]]:
    """The replaced secrets that are still good, with the one that is replaced now."""
    good = [each for each in family.get("replaced", ()) if each["until"] > now]
    return [*good, {"secret_hash": family["secret_hash"], "until": now + GRACE}][-REPLACED_MAX:]


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
