"""Sessions: what one's own are and those of a user, their end, and the ways to begin one. And the roles of users."""

from __future__ import annotations

from typing import Literal

from api.call import Call, Reply
from api.engine.operation import NONE, PERSON, V1, delete, get, resource
from api.engine.responses import Moment, ResponseModel
from api.errors import NotFound
from api.http.request_site import Site
from api.security import users
from api.security.permissions import ADMIN, PERMISSIONS, ROLES
from api.security.users import User
from config.net.names import is_loopback

FORWARDED = ("forwarded", "via", "x-forwarded-for", "x-real-ip")
"""Header fields that proxies add to a request."""


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


def sign_in_methods(call: Call) -> Reply:
    """List the ways to sign in.

    Returns what a page for signing in offers: a password, an identity provider if one is configured, and self-service
    for holders of accounts if it is on. It needs no credentials. Who asks from the machine itself learns where the file
    with the first password is.
    """
    settings = call.services.settings
    oauth2, file = settings.auth.oauth2, call.services.data.initial_password
    first = file.exists()
    return Reply(
        {
            "password": True,
            "identity_provider": oauth2.provider if oauth2.enabled else None,
            "self_service": settings.accounts.self_service,
            "initial_password_file": file.name if first else None,
            "initial_password_path": str(file.absolute()) if first and _is_here(call) else None,
        }
    )


def _is_here(call: Call) -> bool:
    """Whether the request comes from the machine itself, and not by way of a proxy there that isn't known as one."""
    forwarded = any(name in call.headers for name in FORWARDED)
    host = Site.of("http", call.address, call.headers, ()).host
    return not forwarded and is_loopback(call.address) and is_loopback(host)


def list_own(call: Call) -> Reply:
    """List one's own sessions.

    Returns the sign-ins of the caller that are still valid: when and from where each was used last, and by which
    client. Their ids are no credentials.
    """
    return _listed(call, call.caller.user.id)


def end_own(call: Call) -> Reply:
    """End one of one's own sessions.

    Revokes the access tokens and refresh tokens of a sign-in of the caller. They stay revoked after a restart.
    """
    return _ended(call, call.caller.user)


def list_of_user(call: Call) -> Reply:
    """List the sessions of a user.

    Returns the sign-ins of a user that are still valid. Users list their own by `GET /auth/sessions`.
    """
    return _listed(call, _user(call).id)


def end_of_user(call: Call) -> Reply:
    """End a session of a user.

    Revokes the access tokens and refresh tokens of a sign-in of a user. The user can sign in again.
    """
    return _ended(call, _user(call))


def _user(call: Call) -> User:
    user = users.by_id(call.services.store, call.params["user_id"])
    if user is None:
        raise NotFound("The user")
    return user


def _listed(call: Call, user_id: str) -> Reply:
    claims = call.caller.claims
    found = call.services.sessions.of(user_id, claims.family if claims else None)
    return Reply({"sessions": found, "total": len(found)})


def _ended(call: Call, user: User) -> Reply:
    session = call.params["session_id"]
    if not call.services.sessions.lives(user.id, session):
        raise NotFound("The session")
    resource = {"type": "session", "id": session, "name": user.username}
    call.services.audit.append("session.ended", resource, details={"user_id": user.id})
    call.services.sessions.end(session)
    return Reply({"id": session, "ended": True})


ROWS = resource(V1)(
    get("/auth/methods", "getSignInMethods", sign_in_methods, SignInMethods, NONE),
    get("/auth/sessions", "listSessions", list_own, Sessions, PERSON),
    delete("/auth/sessions/{session_id}", "endSession", end_own, EndedSession, PERSON),
)


class Role(ResponseModel):
    """A role and its default permissions; `*` stands for all."""

    name: str
    permissions: list[str]


class Roles(ResponseModel):
    """All roles, and all permissions."""

    roles: list[Role]
    permissions: list[str]


def list_roles(_call: Call) -> Reply:
    """List roles.

    Returns each role with its default permissions, and all permissions that there are. A user may have others than
    those of the role.
    """
    roles = [{"name": name, "permissions": list(granted)} for name, granted in ROLES.items()]
    return Reply({"roles": roles, "permissions": list(PERMISSIONS)})


_ONE = "/{user_id}"

ROLE_ROWS = resource(V1)(
    get("/roles", "listRoles", list_roles, Roles, "users.read"),
) + resource(f"{V1}/users")(
    get(f"{_ONE}/sessions", "listUserSessions", list_of_user, Sessions, ADMIN),
    delete(f"{_ONE}/sessions/{{session_id}}", "endUserSession", end_of_user, EndedSession, ADMIN),
)
