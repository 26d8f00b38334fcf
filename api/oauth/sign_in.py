"""Sign-ins at the configured provider, from the first redirect to the identity."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from actors.net.own_requests import OutgoingGuard
from api.errors import TooBusy
from api.oauth.identity import Identity
from api.oauth.pending import PendingSignIns, Started
from api.oauth.provider import Provider
from config.settings.oauth import OAuth2

AT_ONCE = 3
"""Requests that may wait for the provider at the same time: a provider that is slow must not take every thread of
the API."""


class Begun(NamedTuple):
    """Where the browser goes, and the sign-in that awaits it."""

    url: str
    started: Started


class SignIns:
    """Those with one set of settings; with others there are others. Thread-safe.

    Methods raise `Invalid`, `TooBusy`, `IdentityRefused`, `PeerUnavailable`, and must not be called while the settings
    have it disabled.
    """

    def __init__(self, settings: OAuth2, guard: Callable[[], OutgoingGuard]) -> None:
        self.settings = settings
        self._provider = Provider(settings, guard)
        self._pending = PendingSignIns()
        self._slots = threading.BoundedSemaphore(AT_ONCE)

    def begin(self, address: str) -> Begun:
        """A new sign-in for a client at `address`."""
        started = self._pending.start(address)
        with self._slot():
            return Begun(self._provider.authorization_url(started.state, started.nonce, started.verifier), started)

    def finish(self, code: str, state: str, issuer: str | None, cookies: Mapping[str, str] | None) -> Identity:
        """Who has signed in. `cookies` are a browser's, None is a program; `issuer` is what RFC 9207 adds, if known."""
        with self._slot():
            started = self._pending.take(state, cookies)
            self._provider.check_issuer(issuer)
            return self._provider.identity(code, started.nonce, started.verifier)

    @contextmanager
    def _slot(self) -> Iterator[None]:
        if not self._slots.acquire(blocking=False):
            raise TooBusy(1, "Too many sign-ins are waiting for the identity provider")
        try:
            yield
        finally:
            self._slots.release()
