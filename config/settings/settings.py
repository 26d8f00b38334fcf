"""The operator's configuration: every key with its type, its default and its limits. `loading` reads it.

A value that is refused gets the reason as a sentence.
"""

from __future__ import annotations

import hashlib
import re
from functools import reduce
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, StrictStr, model_validator
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from config import OperatorError
from config.files.secret_box import as_settings
from config.model import json_patterns
from config.model.choices import WORKERS_MAX
from config.model.fields import WORKERS, Host, object_name
from config.net.addresses import TCP_ADDRESS, is_plain_address
from config.net.dns_servers import TTL_MAX, read_address, read_hosts_name, read_server
from config.net.names import is_host_name
from config.settings.env import ENV_PREFIX
from config.settings.groups import (
    Alerts,
    Cluster,
    History,
    Live,
    Logging,
    OAuth2,
    SettingsGroup,
    Telemetry,
    WebhookSettings,
)

SERVERS_MAX = 8


def _server(text: str) -> str:
    return str(read_server(text))


NameServer = Annotated[str, AfterValidator(_server)]
HostsName = Annotated[str, AfterValidator(read_hosts_name)]
Address = Annotated[str, AfterValidator(read_address)]
Addresses = Annotated[
    tuple[Address, ...],
    Field(min_length=1, max_length=32),
    BeforeValidator(lambda value: (value,) if isinstance(value, str) else value),
]
"""A single one may be written without a list."""


class Dns(SettingsGroup):
    """`proxy.dns`. Without `servers` names are resolved as the system is configured; `hosts` come before all servers.

    `prefer` is the family whose addresses are tried first. What a name server says is kept for its time to live, but
    for `min_ttl` seconds at least and `max_ttl` at most.
    """

    servers: tuple[NameServer, ...] = Field((), max_length=SERVERS_MAX)
    hosts: dict[HostsName, Addresses] = Field(default_factory=dict, max_length=1000)
    prefer: Literal["any", "ipv4", "ipv6"] = "any"
    min_ttl: int = Field(0, ge=0, le=TTL_MAX)
    max_ttl: int = Field(86_400, ge=1, le=TTL_MAX)

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.min_ttl > self.max_ttl:
            raise ValueError("min_ttl must not be above max_ttl")
        return self


_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def _network(text: str) -> str:
    ip_network(text, strict=False)
    return text


def _egress_exception(text: str) -> str:
    """A network, or a name (`*.` for all below it)."""
    if "/" in text or ":" in text or re.fullmatch(r"[0-9.]+", text):
        return _network(text)
    if not re.fullmatch(r"(\*\.)?[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?", text):
        raise ValueError("must be a CIDR, an address or a host name, perhaps with a leading '*.'")
    return text


def _publish_address(text: str) -> str:
    """A ZeroMQ address of this machine."""
    match = TCP_ADDRESS.fullmatch(text)
    if text and (match is None or int(match[2]) > 65535 or not _is_address(match[1])):
        raise ValueError(
            "must be empty, or tcp:// with an address of this machine (127.0.0.1, [::1]) and a port, where 0 is any "
            "that is free"
        )
    return text


def _is_address(text: str) -> bool:
    try:
        return ip_address(text.strip("[]")).version == (6 if text.startswith("[") else 4)
    except ValueError:
        return False


def _curve_key(text: str) -> str:
    """A public key as ZeroMQ writes it (Z85, RFC 32): 32 bytes as 40 characters."""
    groups = [text[place : place + 5] for place in range(0, len(text), 5)]
    values = [reduce(lambda sum_, each: sum_ * 85 + _Z85.find(each), group, 0) for group in groups]
    if len(text) != 40 or any(each not in _Z85 for each in text) or max(values) >= 1 << 32:
        raise ValueError(
            "must be a public CURVE key in Z85: 40 characters; `scripts/watch-metrics --new-key` makes one"
        )
    return text


def _web_url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be an absolute http or https URL")
    return text


_URL = re.compile(r"https?://[!#$%&'()*+,\-./0-9:;=?@A-Z\[\]_a-z~]{1,1000}")
_MAIL = re.compile(r"[!#$%'*+\-./0-9=A-Z^_`a-z{|}~]{1,64}@[0-9A-Za-z-]{1,63}(?:\.[0-9A-Za-z-]{1,63}){0,8}")


def _contact(text: str) -> str:
    """Where people ask, as clients of proxies are sent it."""
    if not _MAIL.fullmatch(text) and not (_URL.fullmatch(text) and _has_host(text)):
        without = " without mailto:" if text[:7].lower() == "mailto:" else ""
        raise ValueError(f"must be an absolute http or https URL, or a mail address{without}")
    return text


def _has_host(url: str) -> bool:
    try:
        return bool(urlsplit(url).hostname)
    except ValueError:
        return False


def _listen_host(text: str) -> str:
    if re.fullmatch(r"[0-9.]+", text):
        ip_address(text)
    elif not re.fullmatch(r"[A-Za-z0-9_.:%-]+", text):
        raise ValueError("must be an IP address or a host name of this machine")
    return text


def _public_name(text: str) -> str:
    if text and not (is_plain_address(text) or is_host_name(text)):
        raise ValueError("must be a host name or an IP address, or empty")
    if is_plain_address(text) and ip_address(text).is_unspecified:
        raise ValueError("must be an address that clients can connect to, or empty")
    return text


def _policy_name(text: str) -> str:
    return text and object_name(text)


PublicName = Annotated[str, AfterValidator(_public_name)]
_REQUESTED_PUBLIC_NAME = Annotated[
    StrictStr, AfterValidator(_public_name), json_patterns.text_or_none(json_patterns.HOST, 253)
]
PolicyName = Annotated[str, AfterValidator(_policy_name)]
_REQUESTED_POLICY = Annotated[
    StrictStr, AfterValidator(_policy_name), json_patterns.text_or_none(json_patterns.OBJECT_NAME, 64)
]
ListenHost = Annotated[str, AfterValidator(_listen_host)]
EgressException = Annotated[str, AfterValidator(_egress_exception)]
Contact = Annotated[str, AfterValidator(_contact)]
WebUrl = Annotated[str, AfterValidator(_web_url)]
PublishAddress = Annotated[str, AfterValidator(_publish_address)]
CurveKey = Annotated[str, AfterValidator(_curve_key)]
Network = Annotated[str, AfterValidator(_network)]
Port = Annotated[int, Field(ge=1, le=65535)]
Seconds = Annotated[int, Field(ge=1)]


LONGEST_SESSION = 366 * 24 * 3600
"""Seconds of `auth.session_timeout` that the API sets at the most."""


class ConfigError(OperatorError):
    """The configuration can't be used. `problems` holds one sentence for each bad key."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class ServerTls(SettingsGroup):
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


class Server(SettingsGroup):
    """`server`: the management API and the process as a whole."""

    host: Annotated[ListenHost, Live(Host)] = "127.0.0.1"
    port: Annotated[Port, Live()] = 8080
    max_connections: Annotated[int, Field(ge=1, le=100_000), Live()] = 1000
    drain_timeout: float = Field(10.0, ge=0, le=3600)
    upgrade_drain: float = Field(3600.0, ge=0, le=86_400)
    trusted_proxies: tuple[Network, ...] = ()
    tls: ServerTls = ServerTls()


class Jwt(SettingsGroup):
    """`auth.jwt`: lifetimes of tokens in seconds."""

    access_token_ttl: Seconds | None = None
    """None means: as `auth.session_timeout`."""
    refresh_token_ttl: Seconds = 30 * 24 * 3600


class Auth(SettingsGroup):
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


class ProxyGroup(SettingsGroup):
    """`proxy`: what holds for all proxies."""

    default_timeout: Annotated[int, Field(ge=1, le=3600), Live()] = 30
    keep_alive_timeout: Annotated[int, Field(ge=1, le=3600), Live()] = 60
    max_idle_connections: Annotated[int, Field(ge=0, le=10_000), Live()] = 100
    dns_cache_seconds: Annotated[int, Field(ge=0, le=3600), Live()] = 30
    sleep_after: Annotated[int, Field(ge=0, le=31_536_000), Live()] = 0
    policy: Annotated[PolicyName, Live(_REQUESTED_POLICY)] = ""
    """Its rules come before the policies of accounts and of each proxy."""
    public_name: Annotated[PublicName, Live(_REQUESTED_PUBLIC_NAME)] = ""
    """The host by which clients reach proxies that listen at all addresses."""
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


class AccountSettings(SettingsGroup):
    """`accounts`: clients of proxies. `self_service`: whether holders of accounts may sign in at `/me`.

    `weak_passwords`: whether accounts may have passwords that users may not have.
    """

    self_service: bool = False
    weak_passwords: bool = False


class RateLimiting(SettingsGroup):
    """`security.rate_limiting`: two windows, per API key, else user, else address.

    All interactive sessions of a user together have the two of `session_…` instead.
    """

    enabled: bool = True
    requests_per_minute: int = Field(100, ge=1)
    requests_per_hour: int = Field(1000, ge=1)
    session_per_minute: int = Field(600, ge=1)
    session_per_hour: int = Field(20_000, ge=1)


class Security(SettingsGroup):
    """`security`: who may reach the management API, and how often."""

    https_only: bool = False
    ip_whitelist: tuple[Network, ...] = ()
    request_logging: bool = True
    public_pac: bool = False
    rate_limiting: RateLimiting = RateLimiting()


class MetricsSettings(SettingsGroup):
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
    proxy: ProxyGroup = ProxyGroup()
    accounts: AccountSettings = AccountSettings()
    security: Security = Security()
    metrics: MetricsSettings = MetricsSettings()
    alerts: Alerts = Alerts()
    webhooks: WebhookSettings = WebhookSettings()
    history: History = History()
    cluster: Cluster = Cluster()
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


_LEFT_OUT: Any = {
    "admin_password": True,
    "metrics": {"prometheus_token"},
    "cluster": {"dsn", "listen_dsn"},
    "telemetry": True,
}


def plain(settings: Settings) -> dict[str, Any]:
    """The settings as the API's process gets them: plain values, and the one secret that it needs.

    That is `auth.oauth2.client_secret`, which must not be logged or returned.
    """
    values = settings.model_dump(mode="json", exclude=_LEFT_OUT)
    values["prometheus_token_hash"] = settings.metrics.token_digest()
    values["auth"]["oauth2"]["client_secret"] = settings.auth.oauth2.client_secret.get_secret_value()
    return values
