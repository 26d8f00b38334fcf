"""Sign-in, sign-out, and the identity of the caller."""

from __future__ import annotations

import time
from typing import Annotated, Any, Literal

from pydantic import Field, StrictBool, StrictStr

from api.audit.audit_context import origin
from api.call import Call, Reply
from api.engine.operation import ANY, BEARER, NONE, V1, get, post, resource
from api.engine.responses import Message, Moment, ResponseModel
from api.errors import Denied, Unauthenticated
from api.http import session_cookie
from api.objects.users.user_kind import UserView, with_login
from api.security import users
from api.security.authentication import expired
from api.security.caller import Caller
from api.security.permissions import ADMIN
from api.security.sessions import client_of
from api.security.tokens import COOKIE, BadToken, Claims, Client, ExpiredToken, IssuedTokens, ReusedToken
from api.security.users import User
from config.model.fields import Body, Input, example
from config.text.formatting import timestamp_text

Session = Literal["interactive", "cookie"] | None


class Login(Body):
    """The body of a login. `session` asks for a session that people use, which has rate limits of its own.

    With `cookie` the refresh token is in a cookie, and not in the response.
    """

    model_config = example({"username": "admin", "password": "correct horse battery"})

    username: Annotated[StrictStr, Field(min_length=1, max_length=256)]
    password: Annotated[StrictStr, Field(min_length=1, max_length=1024)] = Field(repr=False)
    session: Session = None


class Refresh(Input):
    """The body of a refresh. Without `refresh_token` the cookie of a session is used."""

    model_config = example({"refresh_token": "rt_0123456789abcdef"})

    refresh_token: Annotated[StrictStr, Field(min_length=1, max_length=1024)] | None = Field(None, repr=False)


class RotateKey(Input):
    """The optional body of a rotation. `revoke_previous` revokes all access tokens of the previous key at once."""

    model_config = example({"revoke_previous": False})

    revoke_previous: StrictBool = False


class TokenPair(ResponseModel):
    """An access token with the refresh token that follows it, which is in a cookie with `session_kept` in its place.

    `session_kept` is false where the cookie would be sent in clear, so that there is none.
    """

    access_token: str
    refresh_token: str | None = None
    session_kept: bool | None = None
    expires_in: int
    token_type: Literal["Bearer"]


class SignedIn(TokenPair):
    """A token pair, and its user."""

    user: UserView


class ValidToken(ResponseModel):
    """The owner and the permissions of a bearer token."""

    valid: Literal[True]
    user_id: str
    username: str
    role: str
    permissions: list[str]
    expires_at: Moment


class WhoAmI(ResponseModel):
    """The owner of the credential; for an API key only `key_id`.

    `first_password`: the caller has the password that the first start made up, and has not chosen in this session to
    keep it.
    """

    authenticated: Literal[True]
    permissions: list[str]
    key_id: str | None = None
    user_id: str | None = None
    username: str | None = None
    role: str | None = None
    auth_method: Literal["bearer", "basic"] | None = None
    first_password: bool | None = None


class RotatedKey(ResponseModel):
    """The new signing key of access tokens, and until when tokens of the previous one are accepted."""

    key_id: str
    previous_accepted_until: Moment


def login(call: Call) -> Reply:
    """Sign in.

    Exchanges a user name and a password for an access token and a refresh token. After too many failures for one user
    from one address, sign-ins are refused with 429 for 15 minutes. With `"session": "cookie"` the refresh token is in a
    cookie that only pages of this API can use, and only to refresh and to sign out.
    """
    check_page(call, call.body.session)
    user = call.services.authenticator.sign_in(call.body.username, call.body.password, call.address)

    def present() -> User:
        now = users.by_id(call.services.store, user.id)
        if now is None or now.password_hash != user.password_hash or now.status != "active":
            raise Unauthenticated("The user name or the password is wrong")  # it was right when it was checked
        return now

    with users.one_change, call.services.store.rechecked(present):
        now = present()
        origin().signed_in(now, "password")
        call.services.audit.append("auth.login", account(now))
        pair = call.services.tokens.issue(now, call.body.session, client(call))
        now = note_login(call, now)
    return signed_in(call, pair, now, call.body.session)


def refresh(call: Call) -> Reply:
    """Get new tokens.

    Exchanges a refresh token for a new access token and a new refresh token. A refresh token is valid once; using an
    old one again revokes all tokens of that sign-in. Without a body, the one in the cookie of a session is used, and so
    is the new one; a replaced one stays valid for ten seconds, for other tabs of the browser.
    """
    given: str | None = call.body.refresh_token
    token = call.session_token if given is None else given
    if token is None:
        raise Unauthenticated("There is no session here: sign in, or send a refresh_token")
    try:
        user_id, pair = call.services.tokens.refresh(token, given is None, client(call))
    except ExpiredToken as error:
        raise expired(error) from error
    except ReusedToken as error:
        _record_reuse(call, error)
        raise Unauthenticated("The refresh token is not valid") from error
    except BadToken as error:
        raise Unauthenticated("The refresh token is not valid") from error
    user = users.by_id(call.services.store, user_id)
    if user is None or user.status != "active":
        call.services.tokens.revoke_all(user_id)
        raise Unauthenticated("The refresh token is not valid")
    return _reply(call, pair, {}, by_cookie=given is None)


def validate(call: Call) -> Reply:
    """Validate an access token.

    Checks the signature and the expiry of the access token in `Authorization` and returns its owner and permissions.
    The response to an expired token is 401 `TOKEN_EXPIRED`.
    """
    claims = _claims(call.caller)
    return Reply({"valid": True, **_who(call.caller), "expires_at": timestamp_text(claims.expires_at)})


def logout(call: Call) -> Reply:
    """Sign out.

    Revokes the access token in `Authorization` and its refresh tokens. Both stay revoked after a restart. The cookie of
    a session ends that session, too, and is deleted; a page needs no access token then.
    """
    tokens, caller = call.services.tokens, call.identified
    cookie = None if caller is not None and call.is_cross_origin else call.session_token
    if caller is None and cookie is None:
        raise Unauthenticated
    if caller is not None:
        call.services.audit.append("auth.logout", account(caller.user))
        tokens.revoke(_claims(caller).family)
    if cookie is not None:
        _end_session(call, cookie)
    is_page = cookie is not None or (caller is not None and _claims(caller).session == COOKIE)
    cookies = (session_cookie.clear_cookie(call.site),) if is_page else ()
    return Reply({"message": "Signed out"}, headers=NOT_CACHED, cookies=cookies)


def rotate_signing_key(call: Call) -> Reply:
    """Rotate the signing key of access tokens.

    Signs new access tokens with a new key. Tokens signed with the previous key stay valid until they expire, unless
    `revoke_previous` is true.
    """
    revoke = call.body.revoke_previous
    resource = {"type": "signing_key", "id": None, "name": None}
    with call.services.store.recorded("signing_key.rotated", resource, {"revoke_previous": revoke}):
        key_id, until = call.services.tokens.rotate_key(revoke)
    return Reply({"key_id": key_id, "previous_accepted_until": timestamp_text(until)})


def who_am_i(call: Call) -> Reply:
    """Show who the caller is.

    Returns the identity behind the credentials of this request: a key with its permissions, or a user. It changes
    nothing, so a client can use it to check its credentials.
    """
    caller = call.caller
    if caller.key is not None:
        return Reply({"authenticated": True, "key_id": caller.key.id, "permissions": caller.permissions()})
    first = _has_first_password(call) and not call.services.sessions.keeps_first_password(caller.claims)
    return Reply({"authenticated": True, **_who(caller), "auth_method": caller.method, "first_password": first})


def keep_first_password(call: Call) -> Reply:
    """Keep the first password.

    Notes in the audit trail that the administrator keeps the password that the first start made up. Pages ask no more
    in this session for another one.
    """
    if _has_first_password(call):
        call.services.audit.append("auth.first_password_kept", account(call.caller.user))
        call.services.sessions.keep_first_password(_claims(call.caller))
    return Reply({"message": "The first password is kept"})


def _has_first_password(call: Call) -> bool:
    return call.caller.user.username == users.ADMINISTRATOR and call.services.data.initial_password.exists()


NOT_CACHED = {"Cache-Control": "no-store"}


def check_page(call: Call, session: Session) -> None:
    """No page of another origin may sign a browser in. Raises `Denied`."""
    from_browser = {"sec-fetch-site", "origin"} & call.headers.keys()
    if session == COOKIE and from_browser and call.is_cross_origin:
        raise Denied(session_cookie.CROSS_ORIGIN)


def client(call: Call) -> Client:
    """The client, for the list of sessions."""
    return client_of(call.address, call.headers.get("user-agent"))


def signed_in(call: Call, pair: IssuedTokens, user: User, session: Session) -> Reply:
    """The response to every kind of sign-in. One that sets the cookie ends the session of the cookie before."""
    if session == COOKIE and not call.is_cross_origin and (previous := call.session_token) is not None:
        _end_session(call, previous)
    return _reply(call, pair, {"user": user.view()}, by_cookie=session == COOKIE)


def _reply(call: Call, pair: IssuedTokens, more: dict[str, Any], by_cookie: bool) -> Reply:
    data = {"access_token": pair.access_token, "expires_in": pair.expires_in, "token_type": "Bearer", **more}
    if not by_cookie:
        return Reply({**data, "refresh_token": pair.refresh_token}, headers=NOT_CACHED)
    kept = session_cookie.has_place(call.site, call.headers.get("origin"))
    cookie = session_cookie.set_cookie(call.site, pair.refresh_token, pair.refresh_expires_in)
    return Reply({**data, "session_kept": kept}, headers=NOT_CACHED, cookies=(cookie,) if kept else ())


def _end_session(call: Call, token: str) -> None:
    """End the session of a cookie; a token that was never issued ends nothing."""
    services = call.services
    try:
        family, user_id = services.tokens.owner(token)
    except BadToken:
        return  # it has ended already
    user = users.by_id(services.store, user_id)
    if user is None:
        return
    if call.identified is None:
        origin().signed_in(user, COOKIE, family)
    services.audit.append("auth.logout", account(user), details={"session": family})
    services.tokens.revoke(family)


def _claims(caller: Caller) -> Claims:
    if caller.claims is None:
        raise Unauthenticated("A bearer token is required")
    return caller.claims


def account(user: User) -> dict[str, Any]:
    """A user as the audit trail names a resource."""
    return {"type": "user", "id": user.id, "name": user.username}


def _record_reuse(call: Call, error: ReusedToken) -> None:
    user = users.by_id(call.services.store, error.user_id)
    resource = {"type": "user", "id": error.user_id, "name": user.username if user else None}
    details = {"reason": "a refresh token was used twice; the sign-in is ended", "family": error.family}
    call.services.audit.append("auth.refresh_reused", resource, outcome="failed", details=details)


def _who(caller: Caller) -> dict[str, Any]:
    user = caller.user
    return {"user_id": user.id, "username": user.username, "role": user.role, "permissions": caller.permissions()}


def note_login(call: Call, user: User) -> User:
    """`user` with the time of this sign-in, which is noted."""
    call.services.last_login.touch(user.id, time.time())
    return with_login(user, call.services.last_login)


ROWS = resource(f"{V1}/auth")(
    post("/login", "login", login, SignedIn, NONE, body=Login, session_cookie=True),
    post(
        "/refresh",
        "refreshToken",
        refresh,
        TokenPair,
        NONE,
        body=Refresh,
        optional_body=True,
        session_cookie=True,
        audit=False,
    ),
    post("/validate", "validateToken", validate, ValidToken, BEARER, audit=False),
    post("/logout", "logout", logout, Message, BEARER, session_cookie=True),
    post("/first-password/keep", "keepFirstPassword", keep_first_password, Message, BEARER),
    post(
        "/signing-key/rotate",
        "rotateSigningKey",
        rotate_signing_key,
        RotatedKey,
        ADMIN,
        body=RotateKey,
        optional_body=True,
    ),
    get("/test", "testAuth", who_am_i, WhoAmI, ANY, scoped=True),
)
