"""`auth.oauth2`: signing in at an identity provider, by OAuth 2.0 and OpenID Connect.

One provider is configured at a time. `google` and `microsoft` are OpenID Connect providers whose addresses are known,
`github` is plain OAuth 2.0 with an API of its own, `custom` is any other: found by its discovery document, or by
explicit addresses. An explicit address replaces the known one (an own GitHub Enterprise, say).
"""

from __future__ import annotations

import re
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from config.net.names import is_loopback

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
