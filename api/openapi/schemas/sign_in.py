"""Views of signing in: tokens, sessions, and who the caller is."""

from __future__ import annotations

from typing import Literal

from api.openapi.schemas.base import Moment, ResponseModel
from api.openapi.schemas.users import UserView


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


class Authorization(ResponseModel):
    """The address of the sign-in for a browser, and the state that comes back from there."""

    authorization_url: str
    state: str


class Redirected(ResponseModel):
    """The path of a page of this API."""

    location: str


class SignInMethods(ResponseModel):
    """The ways to sign in. `identity_provider` is null where there is none; `self_service` is that of account holders.

    `initial_password_file` is the file in the data directory with the first password of `admin`, until it is changed;
    `initial_password_path` is where it is, for requests from the machine itself.
    """

    password: Literal[True]
    identity_provider: Literal["google", "github", "microsoft", "custom"] | None
    self_service: bool
    initial_password_file: str | None
    initial_password_path: str | None


class SessionView(ResponseModel):
    """A sign-in that lives. `address` and `user_agent` are of its last use; a `program` is one that named no kind."""

    id: str
    user_id: str
    kind: Literal["cookie", "interactive", "program"]
    created_at: Moment
    last_used: Moment
    expires_at: Moment
    address: str | None
    user_agent: str | None
    current: bool


class Sessions(ResponseModel):
    """Sessions, those used last first."""

    sessions: list[SessionView]
    total: int


class EndedSession(ResponseModel):
    """A session that has ended."""

    id: str
    ended: Literal[True]


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
