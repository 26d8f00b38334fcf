"""Who may use a proxy: user names and passwords, checked against bcrypt off the loop.

A pair that was good is remembered for a minute under a keyed hash, so that the cost of bcrypt is paid once and a copy
of this process's memory does not give the password away.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Callable

from actors.bus.loop import Loop
from actors.bus.messages import ProxySpec
from actors.workers import Workers

REMEMBERED = 60.0
MEMORY_SIZE = 1024
TESTERS_MAX = 64

_NEVER = 0.0, b""

OnChecked = Callable[[str | None], None]


def prehash(password: bytes) -> bytes:
    """What bcrypt gets: a digest, since bcrypt passes over what is behind byte 72 and stops at NUL."""
    return base64.b64encode(hashlib.sha256(password).digest())


class Credentials:
    """Checks clients' credentials for one proxy: those of `auth` and of its accounts."""

    def __init__(self, loop: Loop, workers: Workers, spec: ProxySpec) -> None:
        self._loop = loop
        self._workers = workers
        self._hashes: dict[str, bytes] = {}
        self._key = os.urandom(32)
        self._good: dict[bytes, tuple[float, bytes]] = {}
        self._testers: dict[tuple[str, bytes], float] = {}
        self.take_over(spec)

    def take_over(self, spec: ProxySpec) -> None:
        """The users and passwords of another configuration. What is remembered holds for unchanged passwords alone."""
        users = [(account.username, account.password_hash) for account in spec.accounts]
        if spec.auth_username is not None:
            users.append((spec.auth_username, spec.auth_hash))
        self._hashes = {user: (stored or "").encode() for user, stored in users}

    def knows(self, user: str) -> bool:
        """Is there such a user?"""
        return user in self._hashes

    def stored(self, user: str) -> bytes | None:
        """The hash of the user's password, empty where there are no passwords; None for nobody who is known."""
        return self._hashes.get(user)

    def admit_tester(self, user: str, token: str, ttl: float) -> None:
        """Take these credentials once within `ttl` seconds; the token is empty where the protocol has no passwords."""
        if len(self._testers) >= TESTERS_MAX:
            self._testers.clear()
        self._testers[user, token.encode()] = self._loop.now + ttl

    def check(self, user: str | None, password: bytes | None, done: OnChecked) -> None:
        """Call `done` with the user's name, or None; in this very call when the answer is known.

        No `user`: no credentials came. No `password`: the protocol has none (SOCKS4), and the name alone decides.
        """
        if user is None:
            done(None)
            return
        if password is None:
            tester = self._testers.pop((user, b""), 0.0) > self._loop.now
            done(user if tester or user in self._hashes else None)
            return
        if self._testers.pop((user, password), 0.0) > self._loop.now:
            done(user)
            return
        digest = hashlib.blake2b(user.encode() + b"\0" + password, key=self._key).digest()
        stored = self._hashes.get(user)
        until, right = self._good.get(digest, _NEVER)
        if until > self._loop.now and right == stored:
            done(user)
            return
        # Somebody unknown costs a check, too: else the time would tell who is known.
        against = stored if stored is not None else next(iter(self._hashes.values()), b"")
        self._workers.submit(
            lambda: _matches(password, against),
            lambda matches: self._checked(user, stored if matches else None, digest, done),
        )

    def _checked(self, user: str, matched: bytes | None, digest: bytes, done: OnChecked) -> None:
        """`matched` is the hash that the password was right for; it must still be the user's."""
        if matched is None or self._hashes.get(user) != matched:
            done(None)
            return
        if len(self._good) >= MEMORY_SIZE:
            self._good.clear()
        self._good[digest] = self._loop.now + REMEMBERED, matched
        done(user)


def _matches(password: bytes, stored: bytes) -> bool:
    import bcrypt  # only proxies with credentials pay for it

    try:
        return bcrypt.checkpw(prehash(password), stored)
    except ValueError:
        return False  # no hash is stored
