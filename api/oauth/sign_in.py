"""Sign-ins at the configured provider, from the first redirect to the identity."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from actors.net.client_key import client_key
from actors.net.own_requests import OutgoingGuard
from api.errors import TooBusy
from api.oauth.identity import Identity
from api.oauth.pending import PendingSignIns, Started
from api.oauth.provider import Provider
from config.settings.oauth import OAuth2

AT_ONCE = 4
"""Requests that may wait for the provider at the same time: a slow provider must not block every thread of the API."""

OF_ONE_CLIENT = 3
"""Of them, those of one client, so that it can't block others."""


class Begun(NamedTuple):
    """Where the browser goes, and the sign-in that awaits it."""

    url: str
    started: Started


class SignIns:
    """Sign-ins with one set of settings. Thread-safe.

    Methods raise `Invalid`, `TooBusy`, `IdentityRefused`, `PeerUnavailable`, and must not be called while the settings
    have it disabled.
    """

    def __init__(self, settings: OAuth2, guard: Callable[[], OutgoingGuard]) -> None:
        self.settings = settings
        self._provider = Provider(settings, guard)
        self._pending = PendingSignIns()
        self._lock = threading.Lock()
        self._taken: Counter[str] = Counter()
        """By client, the requests that wait for the provider."""

    def begin(self, address: str) -> Begun:
        """A new sign-in for a client at `address`."""
        started = self._pending.start(address)
        with self._slot(address):
            return Begun(self._provider.authorization_url(started.state, started.nonce, started.verifier), started)

    def finish(
        self, code: str, state: str, issuer: str | None, cookies: Mapping[str, str] | None, address: str
    ) -> Identity:
        """Who has signed in from `address`. `cookies` are a browser's, None is a program; `issuer` is of RFC 9207."""
        with self._slot(address):
            started = self._pending.take(state, cookies)
            self._provider.check_issuer(issuer)
            return self._provider.identity(code, started.nonce, started.verifier)

    @contextmanager
    def _slot(self, address: str) -> Iterator[None]:
        client = client_key(address)
        with self._lock:
            if self._taken.total() >= AT_ONCE or self._taken[client] >= OF_ONE_CLIENT:
                raise TooBusy(1, "Too many sign-ins are waiting for the identity provider")
            self._taken[client] += 1
        try:
            yield
        finally:
            with self._lock:
                self._taken[client] -= 1
                self._taken += Counter()  # forgets those who have none
