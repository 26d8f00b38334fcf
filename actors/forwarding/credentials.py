"""Who may use a proxy: user names and passwords, checked against bcrypt off the loop.

A pair that was good is remembered for a minute under a keyed hash, so that the cost of bcrypt is paid once and a copy
of this process's memory does not give the password away.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
from collections.abc import Callable

from actors.bus.loop import Loop
from actors.bus.messages import ProxySpec
from actors.forwarding.workers import Workers

REMEMBERED = 60.0
MEMORY_SIZE = 1024
TESTERS_MAX = 64

OnChecked = Callable[[str | None], None]


def prehash(password: bytes) -> bytes:
    """What bcrypt gets: a digest, since bcrypt passes over what is behind byte 72 and stops at NUL."""
    return base64.b64encode(hashlib.sha256(password).digest())


class Credentials:
    """Checks clients' credentials for one proxy. A new configuration is a new object."""

    def __init__(self, loop: Loop, workers: Workers, spec: ProxySpec) -> None:
        self._loop = loop
        self._workers = workers
        self._user = spec.auth_username
        self._hash = spec.auth_hash
        self._key = os.urandom(32)
        self._good: dict[bytes, float] = {}
        self._testers: dict[tuple[str, bytes], float] = {}

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
            done(user if tester or user == self._user else None)
            return
        if self._testers.pop((user, password), 0.0) > self._loop.now:
            done(user)
            return
        digest = hashlib.blake2b(user.encode() + b"\0" + password, key=self._key).digest()
        if self._good.get(digest, 0.0) > self._loop.now:
            done(user)
            return
        right_user = self._user is not None and hmac.compare_digest(user.encode(), self._user.encode())
        stored = (self._hash or "").encode()
        self._workers.submit(
            lambda: _matches(password, stored),
            lambda matches: self._checked(user if matches and right_user else None, digest, done),
        )

    def _checked(self, user: str | None, digest: bytes, done: OnChecked) -> None:
        if user is not None:
            if len(self._good) >= MEMORY_SIZE:
                self._good.clear()
            self._good[digest] = self._loop.now + REMEMBERED
        done(user)


def _matches(password: bytes, stored: bytes) -> bool:
    import bcrypt  # only proxies with credentials pay for it

    try:
        return bcrypt.checkpw(prehash(password), stored)
    except ValueError:
        return False  # no hash is stored
