"""Users of the management API.

A caller can't grant permissions beyond their own, nor change the password, role or permissions of a user with more.
The last active administrator can't be deleted, disabled or demoted.
"""

from __future__ import annotations

import time

from api.call import Call, Reply
from api.engine.operation import V1, create, delete, get, resource, update
from api.errors import Denied, Invalid, MissingPermission, NotFound, StaleRevision, TooBusy
from api.objects.users import OneUser, Users
from api.openapi.schemas.base import Deleted, ResponseModel
from api.resources import sessions
from api.resources.sessions import EndedSession, Sessions
from api.security import api_keys, users
from api.security.caller import Caller
from api.security.permissions import ADMIN, AUDITOR, PERMISSIONS, ROLES, first_not_held, holds
from api.security.users import READ_ONLY_FIELDS, User, UserCreate, UserUpdate
from api.services.password_reset import commit_and_revoke
from api.store import Document, Store, Write
from api.store.records import is_same
from config.passwords import check_password, hash_password
from config.weak_passwords import weakness


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


def list_users(call: Call) -> Reply:
    """List users.

    Returns all users of this API, without their passwords. Users manage the service; clients of a proxy are its
    accounts.
    """
    found = [users.load(document) for document in call.services.store.find(users.COLLECTION)]
    found.sort(key=lambda user: (user.created_at, user.id))
    return Reply({"users": [user.view() for user in found], "total": len(found)})


def create_user(call: Call) -> Reply:
    """Create a user.

    Creates a user with a role, or with permissions of their own. The caller cannot grant a permission that the caller
    does not have.
    """
    _check_strength(call.body.password, call.body.username)
    user = users.new_user(call.body)
    _require_as_much_as(call, user)
    store = call.services.store
    with users.one_change:
        if users.by_name(store, user.username) is not None:
            raise Invalid("username", f"the user name {user.username!r} is in use")
        document = store.put(users.COLLECTION, user.model_dump(mode="json"), expect=0)
    call.services.publish("user.created", users.about(user))
    return Reply({"user": user.view()}, 201, document.revision)


def get_user(call: Call) -> Reply:
    """Show a user.

    Returns a user with role, permissions and last sign-in. Users can read their own record without `users.read`.
    """
    document = _document(call)
    return Reply({"user": users.load(document).view()}, revision=document.revision)


def update_user(call: Call) -> Reply:
    """Update a user.

    Changes the given fields and keeps all others. A new password or the status `disabled` ends the user's tokens. Every
    caller who changes their own password or e-mail address gives `current_password`.
    """
    body: UserUpdate = call.body
    seen = users.load(_matching(call))
    _authorise_update(call, seen, body)
    hashed = _checked_and_hashed(call, seen, body)
    with users.one_change:
        before = _matching(call)
        user = users.load(before)
        if user.password_hash != seen.password_hash:
            raise StaleRevision(before.revision)  # it was changed while the passwords of this request were being hashed
        _authorise_update(call, user, body)
        changed = users.apply(user, body, time.time(), hashed, by_themself=not call.caller.may("users.write"))
        if body.role or body.permissions is not None:
            _require_as_much_as(call, changed)
        if is_same(user, changed):
            return Reply({"user": user.view()}, revision=before.revision)
        _keep_an_administrator(call.services.store, user, changed)
        write = Write(users.COLLECTION, user.id, changed.model_dump(mode="json"), before.revision)
        ends = body.password is not None or changed.status != "active"
        revision, _ = commit_and_revoke(call.services.store, [write], [user.id] if ends else [])
    call.services.publish("user.updated", users.about(changed))
    return Reply({"user": changed.view()}, revision=revision)


def delete_user(call: Call) -> Reply:
    """Delete a user.

    Deletes the user and revokes their tokens and API keys. The last active administrator cannot be deleted.
    """
    store = call.services.store
    with users.one_change:
        before = _matching(call)
        user = users.load(before)
        _require_as_much_as(call, user)
        _keep_an_administrator(store, user, None)
        write = Write(users.COLLECTION, user.id, None, before.revision)
        _, revoked = commit_and_revoke(store, [write], [], gone=[user.id])
    for key in revoked:
        call.services.publish("api_key.revoked", api_keys.about(key))
    call.services.publish("user.deleted", users.about(user))
    return Reply({"id": user.id, "deleted": True})


# --- authorization ---


def _authorise_update(call: Call, user: User, body: UserUpdate) -> None:
    """Raises `Denied`, `MissingPermission`. A key acts for its owner, but its bearer must not sign in as them."""
    if call.caller.key is not None and user.id == call.caller.user.id and (body.password or body.email):
        raise Denied("an API key can't change the password or the e-mail address of its owner")
    if not call.caller.may("users.write"):  # so it is the caller's own account
        if body.role or body.status or body.permissions is not None:
            raise MissingPermission("users.write", by_key=False)
    elif body.password or body.email or body.role or body.status or body.permissions is not None:
        _require_as_much_as(call, user)


def _checked_and_hashed(call: Call, user: User, body: UserUpdate) -> str | None:
    """The hash of a new password. bcrypt is slow, so no lock is held. Raises `Invalid`, `TooBusy`.

    Who finds a browser unlocked, or steals a token, must not take the account over, whatever its role.
    """
    if user.id == call.caller.user.id and (body.password is not None or body.email not in (None, user.email)):
        _check_current_password(call, user, body.current_password)
    if body.password is None:
        return None
    _check_strength(body.password, user.username)
    return hash_password(body.password)


def _check_strength(password: str, username: str) -> None:
    why = weakness(password, username)
    if why is not None:
        raise Invalid("password", why)


def _require_as_much_as(call: Call, user: User) -> None:
    """Raises `MissingPermission` unless the caller has every permission of `user`, and their access to the audit trail.

    Only an administrator can give the role of one, even with narrower permissions.
    """
    missing = first_not_held(call.caller.permissions(), user.granted())
    if missing is not None:
        raise MissingPermission(missing, by_key=False)
    if user.role == "administrator" and not call.caller.may(ADMIN):
        raise MissingPermission(ADMIN, by_key=False)
    if Caller(user).acts_as(AUDITOR) and not (call.caller.may(ADMIN) or call.caller.acts_as(AUDITOR)):
        raise MissingPermission(ADMIN, by_key=False)


def _check_current_password(call: Call, user: User, given: str | None) -> None:
    if given is None:
        raise Invalid("current_password", "is required")
    attempts = call.services.login_throttle
    locked = attempts.locked_for(user.username, call.address)
    if locked:
        raise TooBusy(locked, "Too many failed sign-ins")
    if not check_password(given, user.password_hash):
        call.services.authenticator.refused(user, user.username, call.address)
        raise Invalid("current_password", "is wrong")


def _keep_an_administrator(store: Store, before: User, after: User | None) -> None:
    if not _administers(before) or (after is not None and _administers(after)):
        return
    others = (users.load(document) for document in store.find(users.COLLECTION) if document.id != before.id)
    if not any(_administers(other) for other in others):
        field = "status" if after is not None and after.status != "active" else "role"
        raise Invalid(None if after is None else field, "the last active administrator has to stay one")


def _administers(user: User) -> bool:
    return user.status == "active" and holds(user.granted(), ADMIN)


# --- the store ----------------------------------------------------------------------------------------------------


def _document(call: Call) -> Document:
    document = call.services.store.get(users.COLLECTION, call.params["user_id"])
    if document is None:
        raise NotFound("The user")
    return document


def _matching(call: Call) -> Document:
    document = _document(call)
    if call.if_match not in (None, document.revision):
        raise StaleRevision(document.revision)
    return document


_ONE = "/{user_id}"
_READ_ONLY = READ_ONLY_FIELDS | {"username"}

ROWS = resource(V1)(
    get("/roles", "listRoles", list_roles, Roles, "users.read"),
) + resource(f"{V1}/users", read="users.read", write="users.write", delete="users.delete")(
    get("", "listUsers", list_users, Users),
    create("", "createUser", create_user, OneUser, body=UserCreate, read_only=READ_ONLY_FIELDS),
    get(_ONE, "getUser", get_user, OneUser, if_match=True, allows_self=True),
    *update(
        _ONE,
        ("replaceUser", "updateUser"),
        update_user,
        OneUser,
        body=UserUpdate,
        read_only=_READ_ONLY,
        if_match=True,
        allows_self=True,
    ),
    delete(_ONE, "deleteUser", delete_user, Deleted, if_match=True),
    get(f"{_ONE}/sessions", "listUserSessions", sessions.list_of_user, Sessions, ADMIN),
    delete(f"{_ONE}/sessions/{{session_id}}", "endUserSession", sessions.end_of_user, EndedSession, ADMIN),
)
