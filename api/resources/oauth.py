"""Sign-in at an identity provider: the redirect to it, and its callback."""

from __future__ import annotations

import logging
from typing import Annotated

from pydantic import Field, StrictStr

from api.audit import origin
from api.call import Call, Reply
from api.container import Services
from api.errors import Invalid, Unauthenticated
from api.http.query import Query, choice
from api.oauth.identity import Identity, IdentityRefused
from api.oauth.linking import METHOD, admit
from api.oauth.pending import LIFETIME, cookie_name
from api.oauth.sign_in import SignIns
from api.resources.auth import NOT_CACHED, Session, account, note_login, signed_in
from api.security import users
from config.model.fields import Body, example
from config.settings.oauth import OAuth2

log = logging.getLogger(__name__)

_PATH = "/api/v1/auth/oauth2"


class OAuthCallback(Body):
    """The body of a callback: the parameters that the provider added to `redirect_uri`. `iss` is that of RFC 9207.

    `session` is as in a login.
    """

    model_config = example({"code": "SplxlOBeZQQYbYS6WxSbIA", "state": "Sxd6Gf0-xJ6Yb2wzkC9b0i_qGdY0eY2c7mWlL1pVv2s"})

    code: Annotated[StrictStr, Field(min_length=1, max_length=4096)] = Field(repr=False)
    state: Annotated[StrictStr, Field(min_length=1, max_length=512)] = Field(repr=False)
    iss: Annotated[StrictStr, Field(min_length=1, max_length=2048)] | None = None
    session: Session = None


class Authorize(Query, ignore_others=True):
    """The identity provider."""

    provider: str | None = choice(
        "The identity provider; only the configured one, which is the default",
        ("google", "github", "microsoft", "custom"),
    )


def authorize(call: Call) -> Reply:
    """Start a sign-in at an identity provider.

    Redirects to the identity provider with state, nonce and PKCE challenge. With `Accept: application/json` it returns
    the address instead of redirecting.
    """
    sign_ins = _enabled(call, "provider")
    settings = sign_ins.settings
    if call.query.provider not in (None, settings.provider):
        raise Invalid("provider", f"is not configured; this service signs in at {settings.provider}")
    url, started = sign_ins.begin(call.address)
    headers = {**NOT_CACHED, "Referrer-Policy": "no-referrer", "Vary": "Accept"}
    data = {"authorization_url": url, "state": started.state}
    cookie = _cookie(settings, started.state, started.cookie, LIFETIME)
    if wants_json(call.headers.get("accept", "")):
        return Reply(data, headers=headers, cookie=cookie)
    return Reply(data, 302, headers={**headers, "Location": url}, cookie=cookie)


def callback(call: Call) -> Reply:
    """Finish a sign-in at an identity provider.

    Exchanges the code and the state from the identity provider for tokens of this API. A first sign-in creates a user
    of role `user`, unless `auth.oauth2.auto_create` is off.
    """
    sign_ins = _enabled(call, "state")
    body: OAuthCallback = call.body
    try:
        identity = sign_ins.finish(
            body.code, body.state, body.iss, _browser_cookies(call, sign_ins.settings), call.address
        )
        data = _sign_in(call.services, identity, sign_ins.settings, body.session)
    except IdentityRefused as error:
        raise _rejected(call, error) from error
    return Reply(data, headers=NOT_CACHED, cookie=_cookie(sign_ins.settings, body.state, "", 0))


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


def _sign_in(services: Services, identity: Identity, settings: OAuth2, session: Session) -> dict[str, object]:
    with users.one_change:
        user, new = admit(services.store, identity, settings)
        origin().signed_in(user, METHOD)
        services.audit.append("auth.login", account(user))
        pair = services.tokens.issue(user.id, session)
        user = note_login(services.store, user)
    if new:
        services.publish("user.created", users.about(user))
    return signed_in(pair, user)


def _rejected(call: Call, error: IdentityRefused) -> Unauthenticated:
    log.warning("request %s: sign-in by OAuth refused: %s", call.request_id, error)
    call.services.sign_in_refused(str(error), call.address)
    return Unauthenticated(f"The sign-in is refused: {error}")


# --- the cookie that binds a sign-in to a browser ---


def _browser_cookies(call: Call, settings: OAuth2) -> dict[str, str] | None:
    """The cookies by their plain names, if the headers are those of a browser; else None."""
    if not {"origin", "sec-fetch-site"} & call.headers.keys():
        return None
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
