"""The operator's configuration: every key with its type, its default and its limits. `loading` reads it."""

from __future__ import annotations

import hashlib
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from config.files.credentials import as_settings
from config.model.fields import WORKERS, Host
from config.net.tcp_address import TCP_ADDRESS
from config.settings.dns import Dns
from config.settings.env import ENV_PREFIX
from config.settings.groups import Alerts, Group, History, Live, Logging, Webhooks
from config.settings.oauth import OAuth2
from config.settings.telemetry import Telemetry
from config.settings.types import (
    Contact,
    CurveKey,
    EgressException,
    ListenHost,
    Network,
    Port,
    PublishAddress,
    Seconds,
    WebUrl,
)
from config.workers import WORKERS_MAX

LONGEST_SESSION = 366 * 24 * 3600
"""Seconds of `auth.session_timeout` that the API sets at the most."""


class ConfigError(Exception):
    """The configuration can't be used. `problems` holds one sentence for each bad key."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class ServerTls(Group):
    """`server.tls`: the certificate of the product's own TLS, and of `https` proxies that have none of their own.

    `enabled` is for the management API, which speaks TLS alone then.
    """

    enabled: bool = False
    cert_file: Path | None = None
    key_file: Path | None = None

    @model_validator(mode="after")
    def _has_its_files(self) -> Self:
        missing = [name for name in ("cert_file", "key_file") if getattr(self, name) is None]
        if self.enabled and missing:
            raise ValueError(f"enabled needs {' and '.join(missing)}")
        return self

    def check_certificate(self) -> None:
        """Raise `ConfigError` when the API speaks TLS and can't with these files."""
        from config.files.certificates import CertificateError, server_context  # not every command needs TLS

        if self.enabled and self.cert_file is not None and self.key_file is not None:
            try:
                server_context(self.cert_file, self.key_file)
            except CertificateError as error:
                raise ConfigError([f"server.tls.{error}"]) from error


class Server(Group):
    """`server`: the management API and the process as a whole."""

    host: Annotated[ListenHost, Live(Host)] = "127.0.0.1"
    port: Annotated[Port, Live()] = 8080
    max_connections: Annotated[int, Field(ge=1, le=100_000), Live()] = 1000
    drain_timeout: float = Field(10.0, ge=0, le=3600)
    upgrade_drain: float = Field(3600.0, ge=0, le=86_400)
    trusted_proxies: tuple[Network, ...] = ()
    tls: ServerTls = ServerTls()


class Jwt(Group):
    """`auth.jwt`: lifetimes of tokens in seconds."""

    access_token_ttl: Seconds | None = None
    """None means: as `auth.session_timeout`."""
    refresh_token_ttl: Seconds = 30 * 24 * 3600


class Auth(Group):
    """`auth`: how people and programs sign in to the management API."""

    session_timeout: Annotated[Seconds, Live(Annotated[int, Field(strict=True, ge=1, le=LONGEST_SESSION)])] = 3600
    max_login_attempts: Annotated[int, Field(ge=1, le=1000), Live()] = 5
    max_api_keys: int = Field(100, ge=1, le=100_000)
    jwt: Jwt = Jwt()
    oauth2: OAuth2 = OAuth2()

    @property
    def access_token_ttl(self) -> int:
        """Seconds that an access token lives: `auth.jwt.access_token_ttl`, else `auth.session_timeout`."""
        return self.jwt.access_token_ttl or self.session_timeout


class Proxy(Group):
    """`proxy`: what holds for all proxies."""

    default_timeout: Annotated[int, Field(ge=1, le=3600), Live()] = 30
    keep_alive_timeout: Annotated[int, Field(ge=1, le=3600), Live()] = 60
    max_idle_connections: Annotated[int, Field(ge=0, le=10_000), Live()] = 100
    dns_cache_seconds: Annotated[int, Field(ge=0, le=3600), Live()] = 30
    sleep_after: Annotated[int, Field(ge=0, le=31_536_000), Live()] = 0
    workers: Annotated[Annotated[int, Field(ge=1, le=WORKERS_MAX)] | Literal["auto"], WORKERS] = 1
    egress_guard: Literal["public_only", "off"] = "public_only"
    egress_allow: tuple[EgressException, ...] = ()
    upstreams_allow: tuple[EgressException, ...] | None = None
    """Loopback and private upstreams that may be used besides own proxies. None means: as `egress_allow`."""
    dns_allow: tuple[Network, ...] = ()
    """Networks in which name servers of proxies may be although they are not public."""
    contact: Contact | None = None
    """Whom clients may ask that a proxy refuses; None: it is left out."""
    test_url: WebUrl = "https://api.ipify.org?format=json"
    dns: Dns = Dns()


class Accounts(Group):
    """`accounts`: clients of proxies. `self_service`: whether holders of accounts may sign in at `/me`.

    `weak_passwords`: whether accounts may have passwords that users may not have.
    """

    self_service: bool = False
    weak_passwords: bool = False


class RateLimiting(Group):
    """`security.rate_limiting`: two windows, per API key, else user, else address.

    All interactive sessions of a user together have the two of `session_…` instead.
    """

    enabled: bool = True
    requests_per_minute: int = Field(100, ge=1)
    requests_per_hour: int = Field(1000, ge=1)
    session_per_minute: int = Field(600, ge=1)
    session_per_hour: int = Field(20_000, ge=1)


class Security(Group):
    """`security`: who may reach the management API, and how often."""

    https_only: bool = False
    ip_whitelist: tuple[Network, ...] = ()
    request_logging: bool = True
    public_pac: bool = False
    rate_limiting: RateLimiting = RateLimiting()


class Metrics(Group):
    """`metrics`: how others than the API's users get at the metrics.

    `prometheus_token`, sent as bearer, opens `GET /metrics`. `publish` is where programs subscribe; empty: nowhere.
    With `curve_clients`, their public keys, only those hear anything, and encrypted. `prometheus_accounts` is how many
    accounts have series of their own there: those that have used most.
    """

    publish: PublishAddress = "tcp://127.0.0.1:5556"
    curve_clients: tuple[CurveKey, ...] = Field((), max_length=1_000)
    prometheus_token: SecretStr | None = Field(None, min_length=16, max_length=256)
    prometheus_accounts: int = Field(0, ge=0, le=100)

    @model_validator(mode="after")
    def _guarded(self) -> Self:
        match = TCP_ADDRESS.fullmatch(self.publish)
        if match and not ip_address(match[1].strip("[]")).is_loopback and not self.curve_clients:
            raise ValueError(
                f"publish: {self.publish} can be reached from elsewhere, which needs curve_clients, the public keys of "
                "those who may subscribe; without them it must be a loopback address"
            )
        return self

    def token_digest(self) -> str | None:
        """The SHA-256 of the token in hex, which is enough to know it again."""
        if self.prometheus_token is None:
            return None
        return hashlib.sha256(self.prometheus_token.get_secret_value().encode()).hexdigest()


class Settings(BaseSettings):
    """All of it. `data_dir` and `run_dir` None mean: chosen at start."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX,
        env_nested_delimiter="__",
        extra="forbid",
        frozen=True,
        nested_model_default_partial_update=True,
    )

    data_dir: Path | None = None
    run_dir: Path | None = None
    admin_password: SecretStr | None = None
    server: Server = Server()
    logging: Logging = Logging()
    auth: Auth = Auth()
    proxy: Proxy = Proxy()
    accounts: Accounts = Accounts()
    security: Security = Security()
    metrics: Metrics = Metrics()
    alerts: Alerts = Alerts()
    webhooks: Webhooks = Webhooks()
    history: History = History()
    telemetry: Telemetry = Telemetry()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The order of precedence: command line (init), environment, credentials; `loading` adds the file."""
        return (init_settings, env_settings, InitSettingsSource(settings_cls, as_settings()))


def plain(settings: Settings) -> dict[str, Any]:
    """The settings as the API's process gets them: plain values, and the one secret that it needs.

    That is `auth.oauth2.client_secret`, which must not be logged or returned.
    """
    values = settings.model_dump(
        mode="json", exclude={"admin_password": True, "metrics": {"prometheus_token"}, "telemetry": True}
    )
    values["prometheus_token_hash"] = settings.metrics.token_digest()
    values["auth"]["oauth2"]["client_secret"] = settings.auth.oauth2.client_secret.get_secret_value()
    return values
