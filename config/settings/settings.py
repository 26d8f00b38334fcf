"""The operator's configuration: defaults < TOML file < credentials of systemd < environment < command line.

Every key has its type, its default and its limits here. Unknown keys and bad values are refused with the key, the
value and what is allowed; all of them at once. Environment variables are `PROXYFLEET_` plus the key in capitals,
levels joined by two underscores (`PROXYFLEET_SERVER__PORT`); lists are JSON.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_origin

from pydantic import BaseModel, Field, SecretStr, ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)
from pydantic_settings.exceptions import SettingsError

from config.files.credentials import CredentialError, as_settings
from config.model.fields import Host, field_path
from config.net.tcp_address import TCP_ADDRESS
from config.settings.env import ENV_PREFIX, OPTION_VARIABLES
from config.settings.groups import Alerts, Group, History, Live, Logging, Webhooks
from config.settings.oauth import OAuth2
from config.settings.telemetry import Telemetry
from config.settings.toml_positions import line_of, lines_of
from config.settings.types import (
    CurveKey,
    EgressException,
    ListenHost,
    Network,
    Port,
    PublishAddress,
    Seconds,
    WebUrl,
)
from config.text.validation_messages import TOML, worded

LONGEST_SESSION = 366 * 24 * 3600
"""Seconds of `auth.session_timeout` that the API sets at the most."""
_EXAMPLES: dict[type, str] = {list: "list such as '[\"127.0.0.0/8\"]'", dict: 'object such as \'{"name": "value"}\''}


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
    egress_guard: Literal["public_only", "off"] = "public_only"
    egress_allow: tuple[EgressException, ...] = ()
    upstreams_allow: tuple[EgressException, ...] | None = None
    """Loopback and private upstreams that may be used besides own proxies. None means: as `egress_allow`."""
    test_url: WebUrl = "https://api.ipify.org?format=json"


class Accounts(Group):
    """`accounts`: accounts that several proxies use. `self_service`: whether their holders may sign in at `/me`."""

    self_service: bool = False


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
        """The order of precedence: command line (init), environment, credentials. `load` puts the file below them."""
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


def load(file: Path | None = None, overrides: Mapping[str, Any] | None = None) -> Settings:
    """The settings from all sources. `overrides` are those of the command line, without what was not given.

    Raises `ConfigError`.
    """
    unreadable = _unreadable(file)
    if unreadable:
        raise ConfigError(unreadable)
    problems = _unknown_environment()
    try:
        settings = _reading(file)(**dict(overrides or {}))
    except ValidationError as error:
        places = Places(file, overrides or {})
        found = sorted(error.errors(), key=lambda each: places.line_of(each["loc"]))
        raise ConfigError(problems + [_sentence(each, places) for each in found]) from error
    except SettingsError as error:
        raise ConfigError(problems or [str(error)]) from error  # malformed JSON, which `problems` reports better
    except CredentialError as error:
        raise ConfigError([*problems, str(error)]) from error
    if problems:
        raise ConfigError(problems)
    return settings


class Places:
    """The source of each key's value: the line of the file, or the variable. Keys may be written in any case."""

    def __init__(self, file: Path | None, overrides: Mapping[str, Any]) -> None:
        self._file = file
        found = lines_of(file.read_text(encoding="utf-8")) if file else {}
        self._lines = {tuple(part.lower() for part in path): line for path, line in found.items()}
        self._overrides = overrides

    def of(self, path: tuple[Any, ...]) -> str:
        """`FILE:LINE: ` or `VARIABLE: `; empty for an option of the command line."""
        if _reaches(self._overrides, path):
            return ""
        for length in range(len(path), 0, -1):
            variable = ENV_PREFIX + "__".join(str(part).upper() for part in path[:length])
            if variable in os.environ:
                return f"{variable}: "
        line = self.line_of(path)
        return f"{self._file}:{line}: " if line else ""

    def line_of(self, path: tuple[Any, ...]) -> int:
        """In the file; 0 for what isn't there."""
        return line_of(self._lines, [str(part).lower() for part in path]) or 0


def _reaches(given: Any, path: tuple[Any, ...]) -> bool:
    for part in path:
        if not isinstance(given, Mapping) or part not in given:
            return False
        given = given[part]
    return True


def _reading(file: Path | None) -> type[Settings]:
    """`Settings` with `file` as the lowest of its sources."""
    if file is None:
        return Settings

    class SettingsOfFile(Settings):
        @classmethod
        def settings_customise_sources(
            cls, settings_cls: type[BaseSettings], *given: Any, **sources: Any
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            above = super().settings_customise_sources(settings_cls, *given, **sources)
            return (*above, TomlConfigSettingsSource(settings_cls, file))

    return SettingsOfFile


def _unreadable(file: Path | None) -> list[str]:
    if file is None:
        return []
    try:
        tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        return [f"{file}: {error.strerror or error}"]
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        line = re.search(r"at line (\d+)", str(error))
        unquoted = "Invalid value" in str(error) or "after a statement" in str(error)
        text = f"not TOML: {error}{'; texts need quotes' if unquoted else ''}"
        return [f"{file}:{line[1]}: {text}" if line else f"{file}: {text}"]
    return []


def _unknown_environment() -> list[str]:
    """Errors about variables of our prefix that name no key, which pydantic-settings ignores."""
    known = {name.upper() for name in Settings.model_fields} | OPTION_VARIABLES
    problems = []
    structured = _structured(Settings)
    for variable, value in os.environ.items():
        if variable.startswith(ENV_PREFIX):
            first = variable.removeprefix(ENV_PREFIX).partition("__")[0]
            if first.upper() not in known:
                problems.append(f"{variable}: unknown key; allowed: {', '.join(sorted(Settings.model_fields))}")
            elif variable in structured and not _is_json(value, structured[variable]):
                problems.append(f"{variable}: must be a JSON {_EXAMPLES[structured[variable]]}")  # it may be a secret
    return problems


def _structured(group: type[BaseModel], prefix: str = ENV_PREFIX) -> dict[str, type]:
    """The variables of a group that hold JSON: each with `list`, or `dict` for a table or a whole group."""
    found: dict[str, type] = {}
    for name, field in group.model_fields.items():
        variable = f"{prefix}{name.upper()}"
        kind = get_origin(field.annotation) or field.annotation
        if kind in (tuple, list):
            found[variable] = list
        elif kind is dict:
            found[variable] = dict
        elif isinstance(kind, type) and issubclass(kind, BaseModel):
            found |= {variable: dict, **_structured(kind, f"{variable}__")}
    return found


def _is_json(text: str, kind: type) -> bool:
    try:
        return isinstance(json.loads(text), kind)
    except ValueError:
        return False


_OF_THE_API = (("proxies",), ("users",), ("keys",), ("api_keys",), ("upstreams",), ("accounts",))
"""Sections that belong to the API, for a hint when the configuration has them."""


def _sentence(error: Any, places: Places) -> str:
    key = field_path(error["loc"])
    place = f"{places.of(error['loc'])}{key}"
    if error["type"] == "extra_forbidden":
        allowed = _siblings(error["loc"])
        near = get_close_matches(str(error["loc"][-1]), allowed, n=1)
        meant = f"; did you mean {near[0]}?" if near else ""
        if error["loc"] in _OF_THE_API:
            meant = "; it is made through the API, from a file by `proxyfleet apply -f FILE`"
        return f"{place}: unknown key; allowed here: {', '.join(allowed)}{meant}"
    given = "" if _may_hold_secret(key, error["input"]) else f" (got {error['input']!r})"
    return f"{place}: {worded(error, TOML)}{given}"


def _may_hold_secret(key: str, given: Any) -> bool:
    in_url = isinstance(given, str) and "://" in given and "@" in given
    return (
        "password" in key
        or "secret" in key
        or "headers" in key
        or key.endswith("_token")
        or in_url
        or isinstance(given, (dict, BaseModel))
    )


def _siblings(location: tuple[Any, ...]) -> list[str]:
    model: Any = Settings
    for part in location[:-1]:
        model = model.model_fields[part].annotation
    return sorted(model.model_fields)
