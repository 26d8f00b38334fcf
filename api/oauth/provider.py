"""One identity provider: its endpoints, where to send the browser, and who a code stands for.

Endpoints are known ones, of a discovery document (OpenID Connect Discovery 1.0), or explicit ones.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

from pydantic import TypeAdapter, ValidationError

from actors.net.egress_guard import OutgoingGuard
from api.errors import IDENTITY_PROVIDER, Invalid, PeerUnavailable
from api.oauth.id_token import Identity, IdentityRefused, KeySet, address_of, claims_of, subject_of, verified_address
from api.oauth.transport import TokenRequests, get_json, get_object
from config.settings.groups import DISCOVERY_SUFFIX, SHARED_TENANTS, OAuth2, ProviderUrl
from config.text.formatting import worded

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


ENDPOINTS_TTL = 3600.0
FAILURE_TTL = 5.0
"""Seconds that a discovery document is kept, and that a provider is left alone after it could not be had."""

_OIDC_SCOPES = ("openid", "email", "profile")
_GITHUB_SCOPES = ("read:user", "user:email")
_LONGEST_ERROR = 500
_BAD_CODE = ("invalid_grant", "bad_verification_code")
"""What RFC 6749 section 5.2 calls it, and what GitHub does."""


class Provider:
    """Thread-safe. Methods raise `Invalid`, `IdentityRefused`, `PeerUnavailable`."""

    def __init__(
        self, settings: OAuth2, guard: Callable[[], OutgoingGuard], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`guard` gives what judges the addresses that are connected to."""
        self._guard = guard
        self._settings = settings
        self._clock = clock
        self._lock = threading.Lock()
        self._found: Endpoints | None = None
        self._keys: KeySet | None = None
        self._until = float("-inf")
        self._failure: PeerUnavailable | None = None

    def authorization_url(self, state: str, nonce: str, verifier: str) -> str:
        """Where the browser goes (RFC 6749 section 4.1.1, RFC 7636 section 4.3)."""
        endpoints = self._endpoints()
        more = {"nonce": nonce} if endpoints.jwks else {}
        url: str = self._client(endpoints).create_authorization_url(endpoints.authorize, state, verifier, **more)[0]
        return url

    def identity(self, code: str, nonce: str, verifier: str) -> Identity:
        """Who has signed in. Raises `Invalid`, `IdentityRefused`, `PeerUnavailable`."""
        endpoints = self._endpoints()
        tokens = self._exchange(endpoints, code, verifier)
        if self._settings.provider == "github":
            return self._of_github(endpoints, tokens)
        if endpoints.jwks is None:
            return self._of_userinfo(endpoints, tokens)
        return self._of_id_token(endpoints, tokens, nonce)

    def check_issuer(self, issuer: str | None) -> None:
        """Refuse a response of another provider (RFC 9207), where the response names its issuer."""
        if issuer is None or not self._settings.speaks_oidc:
            return
        known = self._endpoints().issuer
        if issuer != known and "{" not in known:
            raise IdentityRefused("the response came from another provider")

    # --- the provider's addresses and keys ---

    def _endpoints(self) -> Endpoints:
        with self._lock:
            if self._clock() < self._until:
                if self._failure is not None:
                    raise PeerUnavailable(IDENTITY_PROVIDER, self._failure.detail)
            else:
                self._find()
            assert self._found is not None
            return self._found

    def _find(self) -> None:
        try:
            found = find_endpoints(self._settings, self._guard())
        except PeerUnavailable as error:
            self._failure, self._until = error, self._clock() + FAILURE_TTL
            raise
        if self._found is None or found.jwks != self._found.jwks:
            self._keys = None
        self._found, self._failure, self._until = found, None, self._clock() + ENDPOINTS_TTL

    def _key_set(self, url: str) -> KeySet:
        with self._lock:
            if self._keys is None:
                self._keys = KeySet(lambda: get_object(url, self._guard()))
            return self._keys

    # --- code to tokens ---

    def _client(self, endpoints: Endpoints, for_header: bool = False) -> Any:
        """Authlib's client, bounded. In a Basic header id and secret are form-encoded (RFC 6749 section 2.3.1)."""
        from authlib.integrations.base_client import OAuthError  # loaded at the first sign-in of this kind
        from authlib.oauth2.client import OAuth2Client

        class Client(OAuth2Client):  # type: ignore[misc]  # it has no types
            oauth_error_class = OAuthError  # the other one refuses descriptions that aren't ASCII

        settings = self._settings
        secret = settings.client_secret.get_secret_value()
        method = endpoints.auth_method if secret else "none"
        encode = _form_encoded if for_header and method == "client_secret_basic" else str
        return Client(
            TokenRequests(self._guard()),
            encode(settings.client_id),
            encode(secret),
            token_endpoint_auth_method=method,
            scope=" ".join(settings.scopes or self._default_scopes(endpoints)) or None,
            redirect_uri=settings.redirect_uri,
            code_challenge_method="S256",
        )

    def _default_scopes(self, endpoints: Endpoints) -> tuple[str, ...]:
        if self._settings.provider == "github":
            return _GITHUB_SCOPES
        return _OIDC_SCOPES if endpoints.jwks else ()

    def _exchange(self, endpoints: Endpoints, code: str, verifier: str) -> Mapping[str, Any]:
        from authlib.integrations.base_client import OAuthError  # as above

        try:
            client = self._client(endpoints, for_header=True)
            tokens: Mapping[str, Any] = client.fetch_token(endpoints.token, code=code, code_verifier=verifier)
        except OAuthError as error:
            if error.error in _BAD_CODE:
                raise Invalid("code", "was refused by the provider: wrong, used already or too old") from error
            text = f"{error.error}: {error.description}"  # repr, since it may hold anything
            raise PeerUnavailable(IDENTITY_PROVIDER, f"{endpoints.token}: {text[:_LONGEST_ERROR]!r}") from error
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            raise PeerUnavailable(IDENTITY_PROVIDER, f"{endpoints.token}: {error}") from error
        if not isinstance(tokens.get("access_token"), str):
            raise PeerUnavailable(IDENTITY_PROVIDER, f"{endpoints.token}: the response has no access token")
        return tokens

    # --- tokens to a person ---

    def _of_id_token(self, endpoints: Endpoints, tokens: Mapping[str, Any], nonce: str) -> Identity:
        token = tokens.get("id_token")
        if not isinstance(token, str):
            raise PeerUnavailable(IDENTITY_PROVIDER, f"{endpoints.token}: the response has no ID token")
        keys = self._key_set(str(endpoints.jwks))
        claims = claims_of(token, keys, self._settings.client_id, nonce, endpoints.accepts_issuer)
        subject = subject_of(claims["sub"])
        if subject is None:
            raise IdentityRefused("the ID token's subject is not usable")
        more = self._userinfo(endpoints, tokens, claims)
        email = verified_address(claims if "email" in claims else more)
        return Identity(self._name(), claims["iss"], subject, email, {**more, **claims})

    def _userinfo(self, endpoints: Endpoints, tokens: Mapping[str, Any], claims: Mapping[str, Any]) -> dict[str, Any]:
        """The claims of the userinfo endpoint, when the ID token lacks some (OpenID Connect Core, section 5.3)."""
        wanted = {"email"} | {
            key.partition("=")[0].partition(".")[0] for key in self._settings.role_mapping if "=" in key
        }
        if endpoints.userinfo is None or wanted <= claims.keys():
            return {}
        more = get_object(endpoints.userinfo, self._guard(), tokens["access_token"])
        if more.get("sub") != claims["sub"]:
            raise IdentityRefused("the provider's responses are about two different people")
        return more

    def _of_userinfo(self, endpoints: Endpoints, tokens: Mapping[str, Any]) -> Identity:
        """Plain OAuth 2.0: the provider's response to our own request over TLS is the only proof."""
        claims = get_object(str(endpoints.userinfo), self._guard(), tokens["access_token"])
        subject = subject_of(claims.get("sub", claims.get("id")))
        if subject is None:
            raise PeerUnavailable(IDENTITY_PROVIDER, f"{endpoints.userinfo}: there is neither a sub nor an id")
        return Identity(self._name(), endpoints.issuer, subject, verified_address(claims), claims)

    def _of_github(self, endpoints: Endpoints, tokens: Mapping[str, Any]) -> Identity:
        claims = get_object(str(endpoints.userinfo), self._guard(), tokens["access_token"])
        subject = subject_of(claims.get("id"))
        if subject is None:
            raise PeerUnavailable(IDENTITY_PROVIDER, f"{endpoints.userinfo}: there is no id")
        addresses = get_json(f"{endpoints.userinfo}/emails?per_page=100", self._guard(), tokens["access_token"])
        return Identity(self._name(), endpoints.issuer, subject, _primary(addresses), claims)

    def _name(self) -> str:
        return str(self._settings.provider)


def _primary(addresses: Any) -> str | None:
    """The verified primary address in GitHub's list."""
    for each in addresses if isinstance(addresses, list) else ():
        if isinstance(each, dict) and each.get("primary") is True and each.get("verified") is True:
            return address_of(each.get("email"))
    return None


def _form_encoded(text: str) -> str:
    return quote(text, safe="-._~")
