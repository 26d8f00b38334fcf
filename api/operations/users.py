"""Users: who may sign in."""

from __future__ import annotations

from api.operations.operation import V1, Operation
from api.resources import users as user_handlers
from api.services import users

_USER = f"{V1}/users/{{user_id}}"
_READ_ONLY = users.READ_ONLY_FIELDS | {"username"}

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "GET",
        f"{V1}/users",
        "users.read",
        "listUsers",
        "List users",
        user_handlers.list_users,
        description=(
            "Returns all users of this API, without their passwords. Users manage the service; clients of a "
            "proxy are its accounts."
        ),
    ),
    Operation(
        "POST",
        f"{V1}/users",
        "users.write",
        "createUser",
        "Create a user",
        user_handlers.create_user,
        users.UserCreate,
        users.READ_ONLY_FIELDS,
        description=(
            "Creates a user with a role, or with permissions of their own. The caller cannot grant a permission "
            "that the caller does not have."
        ),
        status=201,
    ),
    Operation(
        "GET",
        _USER,
        "users.read",
        "getUser",
        "Show a user",
        user_handlers.get_user,
        description=(
            "Returns a user with role, permissions and last sign-in. Users can read their own record without "
            "`users.read`."
        ),
        own=True,
        matches=True,
    ),
    Operation(
        "PUT",
        _USER,
        "users.write",
        "replaceUser",
        "Update a user",
        user_handlers.update_user,
        users.UserUpdate,
        _READ_ONLY,
        description=(
            "Changes the given fields and keeps all others; PUT and PATCH are the same here. A new password or "
            "the status `disabled` ends the user's tokens."
        ),
        own=True,
        matches=True,
    ),
    Operation(
        "PATCH",
        _USER,
        "users.write",
        "updateUser",
        "Update a user",
        user_handlers.update_user,
        users.UserUpdate,
        _READ_ONLY,
        description=(
            "Changes the given fields and keeps all others. A new password or the status `disabled` ends the "
            "user's tokens."
        ),
        own=True,
        matches=True,
    ),
    Operation(
        "DELETE",
        _USER,
        "users.delete",
        "deleteUser",
        "Delete a user",
        user_handlers.delete_user,
        description=(
            "Deletes the user and revokes their tokens and API keys. The last active administrator cannot be deleted."
        ),
        matches=True,
    ),
)
