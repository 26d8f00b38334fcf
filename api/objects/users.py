"""Users of the management API: how they come and go with a document, where they are known without regard to case."""

from __future__ import annotations

import secrets as random
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StrictBool, StrictStr

from api.engine.kind import Kind
from api.engine.records import Stored
from api.engine.responses import shows
from api.engine.transfer import PlannedRecord, Planning, Transfer, password
from api.openapi.schemas.base import ResponseModel
from api.security.users import COLLECTION, Email, NewPassword, OAuthLink, Permissions, Role, Status, User, Username
from config.model.fields import NULLABLE, Body, Input
from config.model.user_names import name_key, new_name
from config.passwords import check_password, hash_password
from config.weak_passwords import weakness

_Text = Annotated[StrictStr, Field(min_length=1, max_length=1024)]


class OAuthEntry(Input):
    """Who a user is at an identity provider."""

    provider: _Text
    issuer: _Text
    subject: _Text


OF_ROLE = "role"
"""For formats without null: `permissions` that are those of the role. There, `email` and `oauth` are empty texts."""

SparsePermissions = Annotated[
    Permissions | None,
    BeforeValidator(
        lambda given: None if given == OF_ROLE else given,
        json_schema_input_type=Permissions | Literal["role"] | None,
    ),
]
SparseEmail = Annotated[
    Email | None,
    BeforeValidator(lambda given: None if given == "" else given, json_schema_input_type=Email | Literal[""] | None),
]
SparseLink = Annotated[
    OAuthEntry | None,
    BeforeValidator(
        lambda given: None if given == "" else given, json_schema_input_type=OAuthEntry | Literal[""] | None
    ),
]


class UserEntry(Body):
    """A user, known by `username`. `permissions` null are those of the role; `email` and `oauth` null are none.

    Formats that have no null say `"role"` and an empty text.
    """

    username: Username
    email: Annotated[SparseEmail, NULLABLE] = None
    role: Role | None = None
    permissions: Annotated[SparsePermissions, NULLABLE] = None
    status: Status | None = None
    password: Annotated[NewPassword | None, NULLABLE] = Field(None, repr=False)
    email_claimed: StrictBool | None = None
    oauth: Annotated[SparseLink, NULLABLE] = None


class ExportedLink(ResponseModel):
    """The identity of a user at an identity provider."""

    provider: str
    issuer: str
    subject: str


class ExportedUser(ResponseModel):
    """A user. `permissions` null means those of the role, `oauth` null no identity at a provider."""

    username: str
    email: str | None
    role: Literal["administrator", "operator", "user", "auditor"]
    permissions: list[str] | None
    status: Literal["active", "disabled"]
    password: None
    email_claimed: bool
    oauth: ExportedLink | None


@shows(User)
class UserView(ResponseModel):
    """A user of the management API."""

    role: str
    permissions: list[str]
    oauth_provider: str | None


class OneUser(ResponseModel):
    """A user."""

    user: UserView


class Users(ResponseModel):
    """Users, oldest first."""

    users: list[UserView]
    total: int


def _entry(user: User) -> dict[str, Any]:
    """With every field: an import keeps what an entry leaves out."""
    return {
        "username": user.username,
        "email": user.email,
        "role": user.role,
        "permissions": user.permissions,
        "status": user.status,
        **password(user.password_hash),
        "email_claimed": user.email_claimed,
        "oauth": None if user.oauth is None else user.oauth.model_dump(),
    }


def _wanted(stored: Stored[User] | None, entry: Any, planning: Planning) -> PlannedRecord | None:
    before = None if stored is None else stored.record
    if before is not None and before.username != entry.username:
        planning.refuse("username", f"is {before.username!r} here; names may not differ in case alone")
        return None
    _check_new(before, entry, planning)
    hashed = _hash(before, entry, planning.sealed.users.get(entry.username))
    if hashed is None:
        planning.refuse("password", "is required for a new user: in the clear, or in secrets")
        return None
    if before is None:
        return PlannedRecord(_new(entry, hashed, planning.now))
    changed = {**_changed(before, entry), "password_hash": hashed, "updated_at": planning.now}
    return PlannedRecord(before.model_copy(update=changed))


def _check_new(before: User | None, entry: UserEntry, planning: Planning) -> None:
    """Check the name of a new user and a new password by the rules of the API."""
    weak = None if entry.password is None else weakness(entry.password, entry.username)
    if weak is not None:
        planning.refuse("password", weak)
    if before is not None:
        return
    try:
        name = new_name(entry.username)
    except ValueError as error:
        planning.refuse("username", str(error))
    else:
        if name != entry.username:
            planning.refuse("username", f"must be in the normal form of Unicode: {name!r}")


def _hash(before: User | None, entry: UserEntry, sealed: str | None) -> str | None:
    """The hash to store; None when there is no password at all. The password that the user has already is no change."""
    if entry.password is not None:
        same = before is not None and check_password(entry.password, before.password_hash)
        return before.password_hash if before is not None and same else hash_password(entry.password)
    if sealed is not None:
        return sealed
    if before is not None:
        return before.password_hash
    return None if entry.oauth is None else hash_password(random.token_urlsafe(32))  # no password matches it


def _new(entry: UserEntry, hashed: str, now: float) -> User:
    return User(
        id="usr_" + random.token_hex(8),
        username=entry.username,
        email=entry.email,
        password_hash=hashed,
        role=entry.role or "user",
        permissions=entry.permissions,
        status=entry.status or "active",
        oauth=_link(entry),
        email_claimed=entry.email_claimed or False,
        created_at=now,
        updated_at=now,
    )


def _changed(before: User, entry: UserEntry) -> dict[str, Any]:
    """The given fields. A new role brings its own permissions; a new address counts as verified by the caller."""
    given = entry.model_fields_set
    changed: dict[str, Any] = {name: getattr(entry, name) for name in ("role", "status") if name in given}
    if "permissions" in given or changed.get("role", before.role) != before.role:
        changed["permissions"] = entry.permissions
    if "email" in given:
        changed["email"] = entry.email
    if entry.email_claimed is not None or changed.get("email", before.email) != before.email:
        changed["email_claimed"] = entry.email_claimed or False
    if "oauth" in given:
        changed["oauth"] = _link(entry)
    return changed


def _link(entry: UserEntry) -> OAuthLink | None:
    return None if entry.oauth is None else OAuthLink(**entry.oauth.model_dump())


TRANSFER = Transfer(
    model=UserEntry,
    exported=ExportedUser,
    entry=_entry,
    key=lambda each: name_key(each.username),
    identity="username",
    wanted=_wanted,
    blank={
        "email": None,
        "role": "user",
        "permissions": None,
        "status": "active",
        "password": None,
        "email_claimed": False,
        "oauth": None,
    },
    restored=lambda before, after, now: after.model_copy(update={"updated_at": now, "last_login": before.last_login}),
)


USERS = Kind(name="user", collection=COLLECTION, model=User, transfer=TRANSFER, in_document=10_000)
