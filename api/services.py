"""Everything that the handlers need, put together in one place."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from actors.bus.events import event_topic
from actors.bus.messages import Event
from api.accounts import Accounts
from api.api_keys import LastUsed
from api.bridge import Bridge
from api.fleet import Fleet
from api.oauth.sign_in import SignIns
from api.proxies import Proxies
from api.proxy_test import ProxyTester
from api.security.attempts import Attempts
from api.security.authentication import Authenticator
from api.security.rates import RateLimits
from api.security.tokens import Tokens
from api.store import Store
from config.paths import DataDir
from config.settings import Auth, Proxy, Security, Server

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ApiSettings:
    """The part of the settings that the API needs."""

    server: Server = field(default_factory=Server)
    auth: Auth = field(default_factory=Auth)
    proxy: Proxy = field(default_factory=Proxy)
    security: Security = field(default_factory=Security)

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> ApiSettings:
        """From what `config.settings.plain` gives."""
        return cls(
            server=Server.model_validate(plain.get("server", {})),
            auth=Auth.model_validate(plain.get("auth", {})),
            proxy=Proxy.model_validate(plain.get("proxy", {})),
            security=Security.model_validate(plain.get("security", {})),
        )


Publish = Callable[[str, dict[str, Any]], None]
"""Called as `(event type, data)`."""


class Services:
    """The services of one API process. All of them are thread-safe."""

    def __init__(
        self,
        store: Store,
        bridge: Bridge,
        settings: ApiSettings,
        signing_key: bytes,
        data: DataDir,
        supervisor_pid: int | None = None,
    ) -> None:
        self.store = store
        self.bridge = bridge
        self.settings = settings
        self.data = data
        self.supervisor_pid = supervisor_pid
        self.started_at = time.time()
        self.tokens = Tokens(store, signing_key, settings.auth.jwt)
        self.attempts = Attempts(settings.auth.max_login_attempts)
        self.authenticator = Authenticator(store, self.tokens, self.attempts, LastUsed(store), self.publish)
        self.rates = RateLimits(settings.security.rate_limiting)
        self.fleet = Fleet(bridge)
        self.proxies = Proxies(store, bridge, self.publish, settings.proxy.default_timeout, settings.server.tls)
        self.accounts = Accounts(self.proxies, bridge)
        self.tester = ProxyTester(bridge, settings.proxy.test_url)
        self.sign_ins = SignIns(settings.auth.oauth2)

    def take_over(self, settings: ApiSettings) -> None:
        """The settings were read again: what can change while the API runs does, for the requests to come."""
        self.settings = settings
        self.tokens.lifetimes = settings.auth.jwt
        self.attempts.limit = settings.auth.max_login_attempts
        if self.rates.settings != settings.security.rate_limiting:
            self.rates = RateLimits(settings.security.rate_limiting)
        self.proxies.take_over(settings.proxy.default_timeout, settings.server.tls)
        self.tester.default_url = settings.proxy.test_url
        if self.sign_ins.settings != settings.auth.oauth2:
            self.sign_ins = SignIns(settings.auth.oauth2)

    def publish(self, kind: str, data: dict[str, Any]) -> None:
        """Say on the events plane that something happened."""
        event = Event("evt_" + secrets.token_hex(12), kind, time.time(), data)
        self.bridge.publish(event_topic(event), event)
