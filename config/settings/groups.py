"""Groups of the settings: those that processes besides the API and the supervisor read, by way of `actors.process`, and
`auth.oauth2`: signing in at an identity provider, by OAuth 2.0 and OpenID Connect.

One provider is configured at a time. `google` and `microsoft` are OpenID Connect providers whose addresses are known,
`github` is plain OAuth 2.0 with an API of its own, `custom` is any other: found by its discovery document, or by
explicit addresses. An explicit address replaces the known one (an own GitHub Enterprise, say).
"""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    StrictStr,
    field_validator,
    model_validator,
)

from config.model.choices import LogLevel
from config.net.addresses import is_plain_address
from config.net.names import is_loopback
from config.text.access_fields import FILE_FORMATS, FORMATS, LINE_FIELDS, compiled

RetryDelay = Annotated[float, Field(ge=0, le=30 * 86_400)]


class SettingsGroup(BaseModel):
    """A group of keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True, slots=True)
class Live:
    """Marks a setting that the API shows and changes while the product runs (`config.settings.runtime`).

    A request has to give the type of the setting exactly, or `request` in its place.
    """

    request: Any = None


OUTPUTS = ("stderr", "stdout", "journald", *FILE_FORMATS)
"""Values of `logging.output`; a format, a colon and an absolute path is another one, in the configuration alone."""
_OUTPUT_FILE = re.compile(rf"(?:{'|'.join(FILE_FORMATS)}):/[^\0]+")
_OUTPUT_PATTERN = rf"^({'|'.join(OUTPUTS)}|({'|'.join(FILE_FORMATS)}):/[^\x00]{{1,4096}})$"


def good_output(text: str) -> str:
    """A good value of `logging.output`. Raises `ValueError`."""
    if text not in OUTPUTS and not _OUTPUT_FILE.fullmatch(text):
        formats = ", ".join(FILE_FORMATS)
        raise ValueError(f"must be one of {', '.join(OUTPUTS)}; or one of {formats}, a colon and an absolute path")
    return text


_REQUESTED_OUTPUT = Annotated[
    StrictStr, AfterValidator(good_output), Field(json_schema_extra={"pattern": _OUTPUT_PATTERN})
]


def good_template(text: str) -> str:
    """A good value of `logging.template`. Raises `ValueError`."""
    compiled(text, LINE_FIELDS)
    return text


class Logging(SettingsGroup):
    """`logging`: the product's own log (`level`, `format`) and the access records (`access`, `retention_…`).

    `errors` are the records of requests that failed or were refused.
    `output` is where the log goes, and where records go beside their index; `template` is how its format `template`
    writes a record (`config.text.access_fields`). Records are kept for `retention_days`, and
    as many of them as fit into `retention_size` bytes; 0: any number.
    """

    level: Annotated[LogLevel, Live()] = "info"
    access: Annotated[Literal["all", "errors", "off"], Live()] = "all"
    format: Annotated[Literal["text", "json"], Live()] = "text"
    output: Annotated[str, AfterValidator(good_output), Live(_REQUESTED_OUTPUT)] = "stderr"
    template: Annotated[str, Field(min_length=1, max_length=4096), AfterValidator(good_template)] = FORMATS["squid"]
    retention_days: int = Field(30, ge=1, le=3650)
    retention_size: int = Field(20 * 1024**3, ge=0, le=2**60)


class History(SettingsGroup):
    """`history`: revisions of the configuration. They are kept for `retention_days`, and `max_revisions` of them."""

    retention_days: Annotated[int, Field(ge=1, le=3650), Live()] = 90
    max_revisions: Annotated[int, Field(ge=1, le=1_000_000), Live()] = 10_000


class Alerts(SettingsGroup):
    """`alerts`: when the errors of a proxy are an event. Percent of at least `min_requests` in `window` seconds.

    `quota_warning` is the part of an account's quota, in percent, that is an event; 0 for none.
    """

    error_rate: float = Field(10.0, gt=0, le=100)
    error_rate_recovered: float = Field(5.0, ge=0, le=100)
    min_requests: int = Field(20, ge=1)
    window: int = Field(300, ge=10, le=86_400)
    quota_warning: float = Field(80.0, ge=0, lt=100)

    @model_validator(mode="after")
    def _check_recovery(self) -> Self:
        if self.error_rate_recovered > self.error_rate:
            raise ValueError("error_rate_recovered must not be above error_rate")
        return self


class WebhookSettings(SettingsGroup):
    """`webhooks`: how events are delivered. Seconds, but `retention_days`."""

    allow_private: bool = False
    timeout: float = Field(15.0, gt=0, le=300)
    retry_schedule: tuple[RetryDelay, ...] = Field(
        (5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400), max_length=100
    )
    max_concurrent: int = Field(32, ge=1, le=500)
    retention_days: int = Field(30, ge=1, le=3650)


QuotaOffline = Literal["share", "lease", "unlimited"]


def _listening_address(text: str) -> str:
    host, _, port = text.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not is_plain_address(host) or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError("must be an IP address and a port: 0.0.0.0:7443, [::]:7443")
    return text


class Cluster(SettingsGroup):
    """`cluster`: the fleet that this installation is a node of, or is to become by `proxyfleet cluster init`.

    `listen` is where other nodes reach this one. `quota_offline` is what accounts may use of their quotas at a node
    that is cut off from the database: its share of what is left, what it has leased already, or all they want.
    """

    dsn: SecretStr = SecretStr("")
    listen_dsn: SecretStr = SecretStr("")
    listen: Annotated[str, AfterValidator(_listening_address)] = "0.0.0.0:7443"
    quota_offline: QuotaOffline = "share"


_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_PACKAGE = "opentelemetry.proto"
_OURS = ("content-type", "content-encoding", "content-length", "host", "user-agent", "connection")


def _base_url(text: str) -> str:
    parts = urlsplit(text)
    if not text:
        return text
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or "@" in text:
        raise ValueError(
            "must be empty, or an http or https URL without user, query and fragment, such as http://127.0.0.1:4318; "
            "/v1/metrics and /v1/logs are appended"
        )
    return text.rstrip("/")


def _header(name: str) -> str:
    if not _TOKEN.fullmatch(name) or name.lower() in _OURS:
        raise ValueError(f"must be the name of a header, and none of {', '.join(_OURS)}")
    return name


def _is_installed() -> bool:
    try:
        return importlib.util.find_spec(_PACKAGE) is not None
    except ModuleNotFoundError:
        return False


class Otlp(SettingsGroup):
    """`telemetry.otlp`: the OpenTelemetry collector that gets OTLP over HTTP. Without `endpoint` nothing is pushed."""

    endpoint: Annotated[str, AfterValidator(_base_url)] = ""
    headers: dict[Annotated[str, AfterValidator(_header)], SecretStr] = Field(default_factory=dict, max_length=50)
    interval: int = Field(30, ge=1, le=3600)
    timeout: float = Field(10.0, gt=0, le=60)
    metrics: bool = True
    logs: bool = True

    @model_validator(mode="after")
    def _can_be_done(self) -> Self:
        for name, value in self.headers.items():
            if not re.fullmatch(r"[\x21-\x7e]([\x20-\x7e\t]*[\x21-\x7e])?", value.get_secret_value()):
                raise ValueError(f"headers.{name}: the value must be printable ASCII")
        if self.endpoint and not _is_installed():
            raise ValueError("endpoint: needs what `pip install 'proxyfleet[otlp]'` installs")
        return self

    def params(self) -> dict[str, Any]:
        """As the actor gets it: plain values with the secrets in them."""
        plain = self.model_dump(mode="json", exclude={"headers"})
        return {**plain, "headers": {name: value.get_secret_value() for name, value in self.headers.items()}}


class Telemetry(SettingsGroup):
    """`telemetry`."""

    otlp: Otlp = Otlp()


ProviderName = Literal["google", "github", "microsoft", "custom"]
MappedRole = Literal["administrator", "operator", "user", "auditor"]

DISCOVERY_SUFFIX = "/.well-known/openid-configuration"
SHARED_TENANTS = ("common", "organizations", "consumers")
"""Of Microsoft: not one directory but many, each an issuer of its own."""

_DOMAIN = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*")
_ADDRESS = re.compile(r"[^@\s=]+@[^@\s=]+")
_TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,99}")
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")


def _provider_url(text: str) -> str:
    """An https URL, since the responses authenticate users; http is allowed within this machine."""
    parts = urlsplit(text)
    if not parts.hostname or parts.username is not None or parts.fragment:
        raise ValueError("must be an absolute https URL without user information and fragment")
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.hostname)):
        raise ValueError("must be an https URL; http is allowed to loopback addresses alone")
    return text


def _redirect_uri(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.fragment:
        raise ValueError("must be an absolute http or https URL without a fragment (RFC 6749, section 3.1.2)")
    return text


def _scope(text: str) -> str:
    if not _SCOPE.fullmatch(text):
        raise ValueError("must be one scope, without spaces (RFC 6749, section 3.3)")
    return text


def _domain(text: str) -> str:
    name = text.removeprefix("@").lower()
    if not _DOMAIN.fullmatch(name):
        raise ValueError("must be the domain of e-mail addresses, such as example.com (IDNA form)")
    return name


def _mapping_key(text: str) -> str:
    """A claim's value, an address or a domain."""
    claim, equals, value = text.partition("=")
    if equals:
        if not claim or not value:
            raise ValueError("must be claim=value, with both")
        return text
    return text.lower() if _ADDRESS.fullmatch(text) else _domain(text)


ProviderUrl = Annotated[str, AfterValidator(_provider_url)]
RedirectUri = Annotated[str, AfterValidator(_redirect_uri)]
Scope = Annotated[str, AfterValidator(_scope)]
Domain = Annotated[str, AfterValidator(_domain)]
MappingKey = Annotated[str, AfterValidator(_mapping_key)]


class OAuth2(BaseModel):
    """`auth.oauth2`. Everything but `enabled` may be there while it is off.

    `role_mapping` has the roles of new accounts: keys are `claim=value`, `alice@example.com` or `example.com`; the
    first that fits, in the order written, counts. `allowed_domains` are those whose addresses may sign in; empty: all.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    enabled: bool = False
    provider: ProviderName | None = None
    client_id: str = Field("", max_length=500)
    client_secret: SecretStr = SecretStr("")
    redirect_uri: RedirectUri | None = None
    scopes: tuple[Scope, ...] = ()
    discovery_url: ProviderUrl | None = None
    issuer: ProviderUrl | None = None
    authorize_url: ProviderUrl | None = None
    token_url: ProviderUrl | None = None
    userinfo_url: ProviderUrl | None = None
    jwks_url: ProviderUrl | None = None
    token_auth_method: Literal["client_secret_basic", "client_secret_post"] | None = None
    tenant: str = "common"
    auto_create: bool = True
    allowed_domains: tuple[Domain, ...] = ()
    role_mapping: dict[MappingKey, MappedRole] = Field(default_factory=dict)

    @field_validator("tenant")
    @classmethod
    def _is_tenant(cls, text: str) -> str:
        if not _TENANT.fullmatch(text):
            raise ValueError("must be the id or the domain of a directory, or one of " + ", ".join(SHARED_TENANTS))
        return text

    @model_validator(mode="after")
    def _is_whole(self) -> OAuth2:
        if self.enabled:
            _require(self, "provider", "client_id", "redirect_uri")
            if self.provider != "custom":
                _require(self, "client_secret")
            elif self.discovery_url is None:
                _require_addresses(self)
            if self.speaks_oidc and self.scopes and "openid" not in self.scopes:
                raise ValueError("scopes: must contain openid, without which there is no ID token")
        return self

    @property
    def speaks_oidc(self) -> bool:
        """Whether there is an ID token: with GitHub never, else where it can be checked."""
        return self.provider in ("google", "microsoft") or (
            self.provider == "custom" and (self.discovery_url is not None or self.jwks_url is not None)
        )


def _require(settings: OAuth2, *names: str) -> None:
    for name in names:
        if not getattr(settings, name):
            raise ValueError(f"{name}: is required when sign-in by OAuth is enabled")


def _require_addresses(settings: OAuth2) -> None:
    """Of `custom` without discovery."""
    for name in ("authorize_url", "token_url"):
        if getattr(settings, name) is None:
            raise ValueError(f"{name}: is required with the provider custom when there is no discovery_url")
    if (settings.jwks_url is None) != (settings.issuer is None):
        raise ValueError("jwks_url and issuer: are both needed to check ID tokens, or neither")
    if settings.userinfo_url is None and settings.jwks_url is None:
        raise ValueError("userinfo_url: is required when there is no jwks_url: one of them identifies the user")
