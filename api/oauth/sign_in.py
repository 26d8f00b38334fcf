"""Sign-ins at the configured provider, from the first redirect to the identity.

Those that were begun and not finished are pending: one entry per state, in memory, used once, gone after ten minutes.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from actors.net.client_key import client_key
from actors.net.egress_guard import OutgoingGuard
from api.concurrency_limit import ConcurrencyLimit
from api.errors import Invalid
from api.oauth.id_token import Identity
from config.settings.groups import OAuth2

if TYPE_CHECKING:  # loaded when it is used first
    from api.oauth.provider import Provider

LIFETIME = 600
"""Seconds that a person may take at the provider."""
PER_ADDRESS = 100
REMEMBERED = 20_000
"""Pending sign-ins of one address (with IPv6 one /64) and in all; beyond that the oldest one is dropped."""

_UNKNOWN = "is unknown, used already or older than ten minutes; begin the sign-in again"


@dataclass(frozen=True, slots=True)
class Started:
    """What a new sign-in goes to the provider with, and the cookie that binds it to the browser.

    `return_path` is where the browser goes at the end of a sign-in whose session is kept in a cookie; else it is None.
    """

    state: str
    nonce: str
    verifier: str
    cookie: str
    return_path: str | None = None


@dataclass(frozen=True, slots=True)
class _Entry:
    started: Started
    address: str
    until: float


class PendingSignIns:
    """Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._by_address: dict[str, OrderedDict[str, None]] = {}

    def start(self, address: str, return_path: str | None = None) -> Started:
        """A new sign-in for a client at `address`."""
        started = Started(_random(), _random(), _random(), _random(), return_path)
        address = client_key(address)
        now = self._clock()
        with self._lock:
            self._drop_old(now)
            own = self._by_address.setdefault(address, OrderedDict())
            if len(own) >= PER_ADDRESS:
                self._drop(next(iter(own)))
            elif len(self._entries) >= REMEMBERED:
                self._drop(next(iter(self._entries)))
            self._entries[started.state] = _Entry(started, address, now + LIFETIME)
            self._by_address.setdefault(address, own)[started.state] = None
        return started

    def take(self, state: str, cookies: Mapping[str, str] | None) -> Started:
        """The sign-in that goes with `state`, once. `cookies` None: a program asks, which keeps its states itself.

        One with a return path only a browser can have. Raises `Invalid`, and then the state is used all the same.
        """
        with self._lock:
            self._drop_old(self._clock())
            entry = self._drop(state)
        if entry is None:
            raise Invalid("state", _UNKNOWN)
        if cookies is None and entry.started.return_path is not None:
            cookies = {}
        given = None if cookies is None else cookies.get(cookie_name(state), "")
        if given is not None and not hmac.compare_digest(
            given.encode("utf-8", "replace"), entry.started.cookie.encode()
        ):
            raise Invalid("state", "belongs to a sign-in that was not begun in this browser; begin the sign-in again")
        return entry.started

    def _drop_old(self, now: float) -> None:
        while self._entries and next(iter(self._entries.values())).until <= now:
            self._drop(next(iter(self._entries)))

    def _drop(self, state: str) -> _Entry | None:
        entry = self._entries.pop(state, None)
        if entry is not None:
            own = self._by_address[entry.address]
            del own[state]
            if not own:
                del self._by_address[entry.address]
        return entry


def cookie_name(state: str) -> str:
    """The cookie of one sign-in; each tab of a browser has its own. Without the prefix that https allows."""
    return f"proxyfleet-sign-in-{hashlib.sha256(state.encode()).hexdigest()[:16]}"


def _random() -> str:
    """256 bits in 43 characters; what RFC 7636 section 4.1 recommends for a verifier."""
    return secrets.token_urlsafe(32)


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
        self._guard = guard
        self._pending = PendingSignIns()
        self._limit = ConcurrencyLimit(AT_ONCE, OF_ONE_CLIENT, "sign-ins at the identity provider", "client")

    @cached_property
    def _provider(self) -> Provider:
        """Loaded by the first sign-in: without a provider nothing needs it."""
        from api.oauth.provider import Provider

        return Provider(self.settings, self._guard)

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
