"""Sign-ins at the configured provider, from the first redirect to the identity."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from actors.net.client_key import client_key
from actors.net.egress_guard import OutgoingGuard
from api.concurrency_limit import ConcurrencyLimit
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


class Finished(NamedTuple):
    """Who has signed in, and where the browser goes; None: the front end has sent the code itself."""

    identity: Identity
    return_path: str | None


class SignIns:
    """Sign-ins with one set of settings. Thread-safe.

    Methods raise `Invalid`, `TooBusy`, `IdentityRefused`, `PeerUnavailable`, and must not be called while the settings
    have it disabled.
    """

    def __init__(self, settings: OAuth2, guard: Callable[[], OutgoingGuard]) -> None:
        self.settings = settings
        self._provider = Provider(settings, guard)
        self._pending = PendingSignIns()
        self._limit = ConcurrencyLimit(AT_ONCE, OF_ONE_CLIENT, "sign-ins at the identity provider", "client")

    def begin(self, address: str, return_path: str | None = None) -> Begun:
        """A new sign-in for a client at `address`. With `return_path`, its session will be in a cookie."""
        started = self._pending.start(address, return_path)
        with self._limit.acquire(client_key(address)):
            return Begun(self._provider.authorization_url(started.state, started.nonce, started.verifier), started)

    def finish(
        self, code: str, state: str, issuer: str | None, cookies: Mapping[str, str] | None, address: str
    ) -> Finished:
        """Finish a sign-in from `address`. `cookies` are a browser's, None is a program; `issuer` is of RFC 9207."""
        with self._limit.acquire(client_key(address)):
            started = self._pending.take(state, cookies)
            self._provider.check_issuer(issuer)
            return Finished(self._provider.identity(code, started.nonce, started.verifier), started.return_path)
