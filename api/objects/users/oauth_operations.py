"""Sign-in at an identity provider: the redirect to it, and its callback."""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from typing import Annotated

from pydantic import Field, StrictStr

from api.audit.audit_context import origin
from api.call import Call, Reply
from api.engine.operation import NONE, V1, get, post, resource
from api.engine.responses import ResponseModel
from api.errors import Invalid, PeerUnavailable, TooBusy, Unauthenticated
from api.http import session_cookie
from api.http.query import Query, choice, text
from api.oauth.id_token import Identity, IdentityRefused
from api.oauth.linking import METHOD, admit, require_active
from api.oauth.sign_in import LIFETIME, SignIns, cookie_name
from api.objects.users.sign_in_operations import (
    NOT_CACHED,
    Session,
    SignedIn,
    account,
    check_page,
    client,
    note_login,
    signed_in,
)
from api.objects.users.user_kind import USERS
from api.security import users
from api.security.tokens import COOKIE
from config.model.fields import Body, example
from config.settings.groups import OAuth2

log = logging.getLogger(__name__)

PAGES = "/ui/"
"""The paths of the pages to which a sign-in returns."""
SIGN_IN_PAGE = "/ui/sign-in"

_PATH = "/api/v1/auth/oauth2"
_SEGMENT = r"[A-Za-z0-9_~-][A-Za-z0-9._~-]*"
_PAGE_PATH = rf"^{PAGES}(?:{_SEGMENT}(?:/{_SEGMENT})*/?)?(?:\?[A-Za-z0-9._~!$&'()*+,;=:@/?%-]*)?$"
"""Without empty and dotted segments and escapes, so it leads to no other place, however a browser resolves it."""


def page_path(path: str) -> str:
    """`path` if it is one of a page of this API; else `ValueError`."""
    if not re.fullmatch(_PAGE_PATH, path, re.ASCII):
        raise ValueError(f"must be the path of a page of this API, below {PAGES}")
    return path


class OAuthCallback(Body):
    """The body of a callback: the parameters that the provider added to `redirect_uri`. `iss` is that of RFC 9207.

    `session` is as in a login.
    """

    model_config = example({"code": "SplxlOBeZQQYbYS6WxSbIA", "state": "Sxd6Gf0-xJ6Yb2wzkC9b0i_qGdY0eY2c7mWlL1pVv2s"})

    code: Annotated[StrictStr, Field(min_length=1, max_length=4096)] = Field(repr=False)
    state: Annotated[StrictStr, Field(min_length=1, max_length=512)] = Field(repr=False)
    iss: Annotated[StrictStr, Field(min_length=1, max_length=2048)] | None = None
    session: Session = None


class AuthorizationRequest(Query, ignore_others=True):
    """The identity provider."""

    provider: str | None = choice(
        "The identity provider; only the configured one, which is the default",
        ("google", "github", "microsoft", "custom"),
    )
    session: str | None = choice(
        "Keep the session in a cookie; `redirect_uri` has to be `/api/v1/auth/oauth2/callback` of this API", (COOKIE,)
    )
    return_to: str | None = text(
        "With `session=cookie`: the page of this API, below /ui/, to which the browser returns",
        "/ui/proxies?state=failed",
        2000,
        pattern=_PAGE_PATH,
        read=page_path,
    )


class Returned(Query, ignore_others=True):
    """What the identity provider has added to `redirect_uri` (RFC 6749, sections 4.1.2 and 4.1.2.1; RFC 9207)."""

    code: str | None = text("The code", "SplxlOBeZQQYbYS6WxSbIA", 4096)
    state: str | None = text("The state", "Sxd6Gf0-xJ6Yb2wzkC9b0i_qGdY0eY2c7mWlL1pVv2s", 512)
    iss: str | None = text("The issuer", "https://accounts.example.com", 2048)
    error: str | None = text("Why there is no code", "access_denied", 500)


class Authorization(ResponseModel):
    """The address of the sign-in for a browser, and the state that comes back from there."""

    authorization_url: str
    state: str


class Redirected(ResponseModel):
    """The path of a page of this API."""

    location: str


def authorize(call: Call) -> Reply:
    """Start a sign-in at an identity provider.

    Redirects to the identity provider with state, nonce and PKCE challenge. With `Accept: application/json` it returns
    the address instead of redirecting. With `session=cookie` the sign-in ends in the cookie of a session and at a page
    of this API.
    """
    sign_ins = _enabled(call, "provider")
    settings = sign_ins.settings
    if call.query.provider not in (None, settings.provider):
        raise Invalid("provider", f"is not configured; this service signs in at {settings.provider}")
    url, started = sign_ins.begin(call.address, _return_path(call))
    headers = {**NOT_CACHED, "Referrer-Policy": "no-referrer", "Vary": "Accept"}
    data = {"authorization_url": url, "state": started.state}
    cookie = _cookie(settings, started.state, started.cookie, LIFETIME)
    if wants_json(call.headers.get("accept", "")):
        return Reply(data, headers=headers, cookies=(cookie,))
    return Reply(data, 302, headers={**headers, "Location": url}, cookies=(cookie,))


def callback(call: Call) -> Reply:
    """Finish a sign-in at an identity provider.

    Exchanges the code and the state from the identity provider for tokens of this API. A first sign-in creates a user
    of role `user`, unless `auth.oauth2.auto_create` is off.
    """
    sign_ins = _enabled(call, "state")
    body: OAuthCallback = call.body
    check_page(call, body.session)
    cookies = _browser_cookies(call, sign_ins.settings)
    try:
        identity, _ = sign_ins.finish(body.code, body.state, body.iss, cookies, call.address)
        reply = _sign_in(call, identity, sign_ins.settings, body.session)
    except IdentityRefused as error:
        raise _rejected(call, error) from error
    return replace(reply, cookies=(_cookie(sign_ins.settings, body.state, "", 0), *reply.cookies))


def browser_callback(call: Call) -> Reply:
    """Return from the identity provider.

    Finishes a sign-in that began with `session=cookie`, and redirects to its page of this API, with the cookie of the
    session. If it is refused, the page is the one for signing in, with `error` in its address: `cancelled`, `expired`,
    `refused`, `busy` or `unavailable`.
    """
    try:
        return _finished_in_browser(call)
    except tuple(_ERRORS) as error:
        if wants_json(call.headers.get("accept", "")):
            raise
        reason = next(name for kind, name in _ERRORS.items() if isinstance(error, kind))
        if isinstance(error, Invalid) and error.field == "state":
            reason = "expired"
        log.warning("request %s: the sign-in by OAuth ended: %s: %s", call.request_id, reason, error)
        return _redirect(call, f"{SIGN_IN_PAGE}?error={reason}")


def _finished_in_browser(call: Call) -> Reply:
    """Raises the errors of `_ERRORS`."""
    sign_ins, query = _enabled(call, "provider"), call.query
    if query.error is not None or query.code is None or query.state is None:
        raise _Cancelled("The identity provider has sent no code")
    cookies = _own_cookies(call, sign_ins.settings)
    try:
        identity, path = sign_ins.finish(query.code, query.state, query.iss, cookies, call.address)
        if path is None:
            raise Invalid("state", "belongs to a sign-in that the front end finishes, by POST")
        reply = _sign_in(call, identity, sign_ins.settings, "cookie")
    except IdentityRefused as error:
        raise _rejected(call, error) from error
    return _redirect(call, path, _cookie(sign_ins.settings, query.state, "", 0), *reply.cookies)


class _Cancelled(Unauthenticated):
    """The person or the provider has ended the sign-in."""


_ERRORS: dict[type[Exception], str] = {
    _Cancelled: "cancelled",
    Unauthenticated: "refused",
    Invalid: "refused",
    TooBusy: "busy",
    PeerUnavailable: "unavailable",
}
"""What the page for signing in gets to know of an error."""


def _redirect(call: Call, path: str, *cookies: str) -> Reply:
    """To a page of this API; a client that accepts JSON by name gets the path instead."""
    headers = {**NOT_CACHED, "Referrer-Policy": "no-referrer", "Vary": "Accept"}
    if wants_json(call.headers.get("accept", "")):
        return Reply({"location": path}, headers=headers, cookies=cookies)
    return Reply({"location": path}, 302, headers={**headers, "Location": path}, cookies=cookies)


def _return_path(call: Call) -> str | None:
    """Where a sign-in returns to whose session is kept in a cookie; else None."""
    session, path = call.query.session, call.query.return_to
    if session is None and path is not None:
        raise Invalid("return_to", "is only possible with session=cookie")
    page = call.services.sign_ins.settings.redirect_uri
    if session is not None and not session_cookie.has_place(call.site, page):
        raise Invalid("session", "a cookie would be sent in clear: use https, or the API's loopback address")
    return None if session is None else path or PAGES


def wants_json(accept: str) -> bool:
    """Whether the client accepts JSON by name, and no HTML."""
    kinds = {part.partition(";")[0].strip().lower() for part in accept.split(",")}
    return "application/json" in kinds and "text/html" not in kinds


def _enabled(call: Call, field: str) -> SignIns:
    """The sign-ins with the current settings. To be called once per request: they may change."""
    sign_ins = call.services.sign_ins
    if not sign_ins.settings.enabled:
        raise Invalid(field, "sign-in by OAuth is not enabled")
    return sign_ins


def _sign_in(call: Call, identity: Identity, settings: OAuth2, session: Session) -> Reply:
    services = call.services
    with users.one_change:
        user, new = admit(services.store, identity, settings)
        origin().signed_in(user, METHOD)
        services.audit.append("auth.login", account(user))
        with services.store.rechecked(lambda: require_active(services.store, user)):
            pair = services.tokens.issue(user, session, client(call))
        user = note_login(call, user)
    if new:
        services.publish("user.created", USERS.about(user))
    return signed_in(call, pair, user, session)


def _rejected(call: Call, error: IdentityRefused) -> Unauthenticated:
    log.warning("request %s: sign-in by OAuth refused: %s", call.request_id, error)
    call.services.sign_in_refused(str(error), call.address)
    return Unauthenticated(f"The sign-in is refused: {error}")


# --- the cookie that binds a sign-in to a browser ---


def _browser_cookies(call: Call, settings: OAuth2) -> dict[str, str] | None:
    """The cookies by their plain names, if the headers are those of a browser; else None."""
    return _own_cookies(call, settings) if {"origin", "sec-fetch-site"} & call.headers.keys() else None


def _own_cookies(call: Call, settings: OAuth2) -> dict[str, str]:
    parts = (part.strip().partition("=") for part in call.headers.get("cookie", "").split(";"))
    prefix = _prefix(settings)
    return {name.removeprefix(prefix): value for name, _, value in parts if name.startswith(prefix)}


def _cookie(settings: OAuth2, state: str, value: str, age: int) -> str:
    """`__Host-` keeps other hosts of the domain from setting one; it requires https and the path /."""
    prefix = _prefix(settings)
    scope = "Path=/; Secure" if prefix else f"Path={_PATH}"
    return f"{prefix}{cookie_name(state)}={value}; Max-Age={age}; {scope}; HttpOnly; SameSite=Lax"


def _prefix(settings: OAuth2) -> str:
    """`redirect_uri` has the scheme of the API as the browser sees it, or the cookies would not be sent back."""
    return "__Host-" if str(settings.redirect_uri).startswith("https:") else ""


ROWS = resource(f"{V1}/auth")(
    get(
        "/oauth2/authorize",
        "authorizeOAuth2",
        authorize,
        Authorization,
        NONE,
        query=AuthorizationRequest,
        redirects=True,
        session_cookie=True,
        errors=(502,),
    ),
    post(
        "/oauth2/callback",
        "finishOAuth2",
        callback,
        SignedIn,
        NONE,
        body=OAuthCallback,
        session_cookie=True,
        errors=(502,),
    ),
    get(
        "/oauth2/callback",
        "returnFromOAuth2",
        browser_callback,
        Redirected,
        NONE,
        query=Returned,
        redirects=True,
        session_cookie=True,
        errors=(401, 502),
    ),
)
