"""Users: who may sign in."""

from __future__ import annotations

from api import users
from api.operations.operation import V1, Operation
from api.resources import users as user_handlers

_USER = f"{V1}/users/{{user_id}}"
_READ_ONLY = users.READ_ONLY_FIELDS | {"username"}

OPERATIONS: tuple[Operation, ...] = (
    Operation("GET", f"{V1}/users", "users.read", "listUsers", "List users", user_handlers.list_users),
    Operation(
        "POST",
        f"{V1}/users",
        "users.write",
        "createUser",
        "Create a user",
        user_handlers.create_user,
        users.UserCreate,
        users.READ_ONLY_FIELDS,
        status=201,
    ),
    Operation("GET", _USER, "users.read", "getUser", "Show a user", user_handlers.get_user, own=True, matches=True),
    Operation(
        "PUT",
        _USER,
        "users.write",
        "replaceUser",
        "Change a user",
        user_handlers.update_user,
        users.UserUpdate,
        _READ_ONLY,
        own=True,
        matches=True,
    ),
    Operation(
        "PATCH",
        _USER,
        "users.write",
        "updateUser",
        "Change a user",
        user_handlers.update_user,
        users.UserUpdate,
        _READ_ONLY,
        own=True,
        matches=True,
    ),
    Operation("DELETE", _USER, "users.delete", "deleteUser", "Delete a user", user_handlers.delete_user, matches=True),
)
