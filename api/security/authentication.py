"""Authentication of requests: API key, bearer token or HTTP Basic, in this order when a client sends several.

A failed sign-in takes the time of a successful one and reads the same, whatever was wrong with it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from actors.net.client_key import client_key
from api.errors import Denied, TooBusy, Unauthenticated
from api.security import users
from api.security.api_keys import find_key
from api.security.caller import Caller
from api.security.last_used import LastUsed
from api.security.login_throttle import LoginThrottle
from api.security.password_checker import PasswordChecker
from api.security.tokens import BadToken, ExpiredToken, Tokens
from api.security.users import User
from api.store import Store
from config.passwords import COST
from config.text.formatting import timestamp_text

BASIC_REMEMBERED = 60.0
"""Seconds that a checked pair of HTTP Basic is remembered, in memory and as a keyed hash."""

_BASIC_PAIRS = 1_000
UNKNOWN_USER_HASH = f"$2b${COST:02d}$CwTycUXWue0Thq9StjUM0uJ8G1rpbQV9lBTiUXHNPvzWb1u6JzpS."
"""A hash like all others, checked for unknown names, so that they take as long."""


class Authenticator:
    """Checks credentials. Thread-safe."""

    def __init__(
        self,
        store: Store,
        tokens: Tokens,
        attempts: LoginThrottle,
        last_used: LastUsed,
        publish: Callable[[str, dict[str, Any]], None],
        record: Callable[[str, User | None, str, str], None],
        hashing: PasswordChecker,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`record` audits a failed sign-in: the action, the user, the name that was given, the reason.

        `clock` is that of the ends of API keys.
        """
        self._clock = clock
        self._record = record
        self._hashing = hashing
        self._store = store
        self._tokens = tokens
        self._attempts = attempts
        self._last_used = last_used
        self._publish = publish
        self._basic = _BasicMemory()

    def caller(self, api_key: str | None, authorization: str | None, address: str) -> Caller:
        """The caller that the two headers authenticate. Raises `Unauthenticated`, `Denied`, `TooBusy`."""
        if api_key is not None:
            return self._by_key(api_key, address)
        scheme, _, rest = (authorization or "").partition(" ")
        if scheme.lower() == "bearer":
            return self._by_token(rest.strip(" "))
        if scheme.lower() == "basic":
            return self._by_basic(rest.strip(" "), address)
        raise Unauthenticated

    def sign_in(self, username: str, password: str, address: str) -> User:
        """The user with this name and password.

        Raises `Unauthenticated`, or `TooBusy` while the pair is locked or too many passwords are being checked.
        """
        user = users.by_name(self._store, username)
        right = self._is_right(user, username, password, address)
        if user is None or not right or user.status != "active":
            self._refused(user, username, address)
            raise Unauthenticated("The user name or the password is wrong")
        self._attempts.succeeded(username, address)
        return user

    def confirm(self, user: User, password: str, address: str) -> bool:
        """Whether a user who has signed in knows the password. Failures count as those of a sign-in.

        Raises `TooBusy` as `sign_in`.
        """
        right = self._is_right(user, user.username, password, address)
        if not right:
            self._refused(user, user.username, address)
        return right

    def _is_right(self, user: User | None, username: str, password: str, address: str) -> bool:
        locked = self._attempts.locked_for(username, address)
        stored = user.password_hash if user else UNKNOWN_USER_HASH
        right = self._hashing.check_password(password, stored, client_key(address))
        locked = locked or self._attempts.locked_for(username, address)  # guesses at the same time count too
        if locked:
            self._record("auth.login_failed", user, username, "locked out")
            raise TooBusy(locked, "Too many failed sign-ins")
        return right

    def _refused(self, user: User | None, username: str, address: str) -> None:
        """A password was wrong: audit, publish and count that."""
        data = {"username": username[:64], "client_ip": address}
        self._record("auth.login_failed", user, username, "wrong credentials")
        self._publish("auth.login_failed", data)
        if self._attempts.failed(username, address):
            self._record("auth.locked", user, username, "too many failures")
            self._publish("auth.locked", data)

    def _by_key(self, text: str, address: str) -> Caller:
        key = find_key(self._store, text)
        owner = None if key is None else users.by_id(self._store, key.user_id)
        now = self._clock()
        if key is None or owner is None or owner.status != "active" or key.expired(now):
            raise Unauthenticated("The API key is invalid, expired or revoked", "INVALID_API_KEY")
        if not key.admits(address):
            raise Denied("the address of the client is not in the key's ip_whitelist")
        self._last_used.touch(key.id, now)
        return Caller(owner, key=key)

    def _by_token(self, text: str) -> Caller:
        try:
            claims = self._tokens.check(text)
        except ExpiredToken as error:
            raise expired(error) from error
        except BadToken as error:
            raise Unauthenticated("The access token is not valid") from error
        user = users.by_id(self._store, claims.user_id)
        if user is None or user.status != "active":
            raise Unauthenticated("The access token is not valid")
        return Caller(user, claims=claims)

    def _by_basic(self, encoded: str, address: str) -> Caller:
        try:
            username, colon, password = base64.b64decode(encoded, validate=True).decode("utf-8").partition(":")
        except (binascii.Error, UnicodeDecodeError) as error:
            raise Unauthenticated("The Basic credentials can't be read") from error
        if not colon:
            raise Unauthenticated("The Basic credentials can't be read")
        user = users.by_name(self._store, username)
        known = user is not None and user.status == "active" and self._basic.knows(user, password)
        if user is not None and known and not self._attempts.locked_for(username, address):
            return Caller(user)
        user = self.sign_in(username, password, address)
        self._basic.remember(user, password)
        return Caller(user)


def expired(error: ExpiredToken) -> Unauthenticated:
    """The token was good until a moment that the error names."""
    details = {"expired_at": timestamp_text(error.expired_at)}
    return Unauthenticated("The token has expired", "TOKEN_EXPIRED", details)


class _BasicMemory:
    """Pairs that were checked lately. The stored hash is part of the key, so a new password is a new pair."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._lock = threading.Lock()
        self._until: OrderedDict[bytes, float] = OrderedDict()

    def knows(self, user: User, password: str) -> bool:
        with self._lock:
            return self._until.get(self._mark(user, password), 0.0) > time.monotonic()

    def remember(self, user: User, password: str) -> None:
        with self._lock:
            self._until[self._mark(user, password)] = time.monotonic() + BASIC_REMEMBERED
            if len(self._until) > _BASIC_PAIRS:
                self._until.popitem(last=False)

    def _mark(self, user: User, password: str) -> bytes:
        secret = f"{user.id}\0{user.password_hash}\0{password}".encode("utf-8", "surrogatepass")
        return hmac.digest(self._key, secret, hashlib.sha256)
