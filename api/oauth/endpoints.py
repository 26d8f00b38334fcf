"""The endpoints of a provider: known ones, a discovery document (OpenID Connect Discovery 1.0), or explicit ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from pydantic import TypeAdapter, ValidationError

from actors.net.egress_guard import OutgoingGuard
from api.errors import IDENTITY_PROVIDER, PeerUnavailable
from api.oauth.transport import get_object
from config.settings.oauth import DISCOVERY_SUFFIX, SHARED_TENANTS, OAuth2, ProviderUrl
from config.text.validation_messages import worded

_GITHUB = "https://github.com/login/oauth"
_GITHUB_USER = "https://api.github.com/user"
_GOOGLE = "https://accounts.google.com"
_MICROSOFT = "https://login.microsoftonline.com"
_TENANT = "{tenantid}"
_URL: TypeAdapter[str] = TypeAdapter(ProviderUrl)


@dataclass(frozen=True, slots=True)
class Endpoints:
    """URLs of a provider. `issuer` names the provider; ID tokens are checked when there is `jwks`.

    The issuer of a shared directory of Microsoft has `{tenantid}` in it, which stands for the claim `tid`.
    """

    authorize: str
    token: str
    userinfo: str | None
    jwks: str | None
    issuer: str
    auth_method: str

    def accepts_issuer(self, claims: dict[str, Any]) -> bool:
        """Whether an ID token with these claims is this provider's."""
        wanted = self.issuer
        if _TENANT in wanted:
            wanted = wanted.replace(_TENANT, str(claims.get("tid", "")))
        return bool(claims.get("iss") == wanted)


def find_endpoints(settings: OAuth2, guard: OutgoingGuard) -> Endpoints:
    """The endpoints for these settings, if need be by a request to the provider. Raises `PeerUnavailable`."""
    if settings.provider == "github":
        return _github(settings)
    url = discovery_url(settings)
    return _explicit(settings) if url is None else _discovered(settings, url, guard)


def discovery_url(settings: OAuth2) -> str | None:
    """Where the discovery document is, if there is one."""
    if settings.discovery_url is not None:
        return settings.discovery_url
    if settings.provider == "google":
        return _GOOGLE + DISCOVERY_SUFFIX
    if settings.provider == "microsoft":
        return f"{_MICROSOFT}/{settings.tenant}/v2.0{DISCOVERY_SUFFIX}"
    return None


def _github(settings: OAuth2) -> Endpoints:
    authorize = settings.authorize_url or f"{_GITHUB}/authorize"
    return Endpoints(
        authorize=authorize,
        token=settings.token_url or f"{_GITHUB}/access_token",
        userinfo=settings.userinfo_url or _GITHUB_USER,
        jwks=None,
        issuer=_origin(authorize),
        auth_method=settings.token_auth_method or "client_secret_post",
    )


def _explicit(settings: OAuth2) -> Endpoints:
    if settings.authorize_url is None or settings.token_url is None:
        raise PeerUnavailable(
            IDENTITY_PROVIDER, "there is neither a discovery_url nor an authorize_url with a token_url"
        )
    return Endpoints(
        authorize=settings.authorize_url,
        token=settings.token_url,
        userinfo=settings.userinfo_url,
        jwks=settings.jwks_url,
        issuer=settings.issuer or _origin(settings.authorize_url),
        auth_method=settings.token_auth_method or "client_secret_basic",
    )


def _discovered(settings: OAuth2, url: str, guard: OutgoingGuard) -> Endpoints:
    document = get_object(url, guard)
    issuer = document.get("issuer")
    if not isinstance(issuer, str) or not _is_issuer_of(settings, url, issuer):
        raise PeerUnavailable(
            IDENTITY_PROVIDER, f"{url}: the issuer {issuer!r} is not the one that this address belongs to"
        )
    return Endpoints(
        authorize=settings.authorize_url or _address(document, "authorization_endpoint"),
        token=settings.token_url or _address(document, "token_endpoint"),
        userinfo=settings.userinfo_url or _optional_address(document, "userinfo_endpoint"),
        jwks=settings.jwks_url or _address(document, "jwks_uri"),
        issuer=issuer,
        auth_method=settings.token_auth_method or _auth_method(document),
    )


def _is_issuer_of(settings: OAuth2, url: str, issuer: str) -> bool:
    """Section 4.3: the document must name the issuer that its own address was made from."""
    if settings.issuer is not None:
        return issuer == settings.issuer
    if settings.provider == "microsoft" and settings.discovery_url is None:
        template = f"{_MICROSOFT}/{_TENANT}/v2.0"
        return issuer == template if settings.tenant in SHARED_TENANTS[:2] else issuer.startswith(f"{_MICROSOFT}/")
    base, suffix, _ = url.partition(DISCOVERY_SUFFIX)
    return not suffix or issuer.rstrip("/") == base.rstrip("/")


def _address(document: dict[str, Any], name: str) -> str:
    try:
        return _URL.validate_python(document.get(name), strict=True)
    except ValidationError as error:
        raise PeerUnavailable(
            IDENTITY_PROVIDER, f"the discovery document's {name} {worded(error.errors()[0])}"
        ) from error


def _optional_address(document: dict[str, Any], name: str) -> str | None:
    return None if document.get(name) is None else _address(document, name)


def _auth_method(document: dict[str, Any]) -> str:
    """Basic is what a document means that doesn't say (Discovery 1.0, section 3)."""
    supported = document.get("token_endpoint_auth_methods_supported")
    if isinstance(supported, list) and "client_secret_basic" not in supported and "client_secret_post" in supported:
        return "client_secret_post"
    return "client_secret_basic"


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
