"""Users of the management API."""

from __future__ import annotations

from api.openapi.schemas.base import Deleted
from api.openapi.schemas.sign_in import EndedSession, Sessions
from api.openapi.schemas.users import OneUser, Roles, Users
from api.operations.operation import V1, create, delete, get, resource, update
from api.resources import sessions
from api.resources import users as handlers
from api.security.permissions import ADMIN
from api.security.users import READ_ONLY_FIELDS, UserCreate, UserUpdate

_ONE = "/{user_id}"
_READ_ONLY = READ_ONLY_FIELDS | {"username"}

TABLE = resource(V1)(
    get("/roles", "listRoles", handlers.list_roles, Roles, "users.read"),
) + resource(f"{V1}/users", read="users.read", write="users.write", delete="users.delete")(
    get("", "listUsers", handlers.list_users, Users),
    create("", "createUser", handlers.create_user, OneUser, body=UserCreate, read_only=READ_ONLY_FIELDS),
    get(_ONE, "getUser", handlers.get_user, OneUser, if_match=True, allows_self=True),
    *update(
        _ONE,
        ("replaceUser", "updateUser"),
        handlers.update_user,
        OneUser,
        body=UserUpdate,
        read_only=_READ_ONLY,
        if_match=True,
        allows_self=True,
    ),
    delete(_ONE, "deleteUser", handlers.delete_user, Deleted, if_match=True),
    get(f"{_ONE}/sessions", "listUserSessions", sessions.list_of_user, Sessions, ADMIN),
    delete(f"{_ONE}/sessions/{{session_id}}", "endUserSession", sessions.end_of_user, EndedSession, ADMIN),
)
