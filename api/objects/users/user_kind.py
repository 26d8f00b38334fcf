"""Users of the management API: their declaration, what a change of one has to pass, and how they come and go with a
document, where they are known without regard to case.
"""

from __future__ import annotations

import secrets as random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StrictBool, StrictStr

from api.audit.audit_context import origin
from api.engine.commit import Engine, size_of
from api.engine.kind import ObjectKind, Resource, Texts
from api.engine.objects import Hooks, Proposal, Proposals
from api.engine.records import Stored
from api.engine.responses import ResponseModel, all_of, one_of, shows
from api.engine.transfer import PlannedRecord, Planning, Transfer, password
from api.errors import Denied, Invalid, MissingPermission, Unauthenticated
from api.security import api_keys, tokens
from api.security.api_keys import ApiKey
from api.security.caller import Caller
from api.security.last_used import LastUsed
from api.security.permissions import ADMIN, AUDITOR, first_missing, holds
from api.security.users import (
    COLLECTION,
    Email,
    NewPassword,
    OAuthLink,
    Permissions,
    Role,
    Status,
    User,
    UserCreate,
    Username,
    UserUpdate,
    apply,
    by_id,
    by_name,
    load,
    new_user,
    noting_end,
    one_change,
)
from api.store import Write
from config.model.fields import NULLABLE, Body, Input, name_key, new_name
from config.passwords import hash_password, hash_to_store
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
    return PlannedRecord(noting_end(before, before.model_copy(update=changed), planning.now))


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
        return hash_to_store(entry.password, before.password_hash if before is not None else None)
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
    restored=lambda before, after, now: noting_end(
        before, after.model_copy(update={"updated_at": now, "last_login": before.last_login}), now
    ),
    brought_back=lambda after, now: after.model_copy(update={"disabled_at": now}),
)


USERS = ObjectKind(
    name="user",
    collection=COLLECTION,
    model=User,
    transfer=TRANSFER,
    in_document=10_000,
    unique_names=False,
    events=True,
    in_events=("username", "role", "status"),
    create=UserCreate,
    update=UserUpdate,
    read_only=frozenset({"id", "last_login", "created_at", "updated_at"}),
    fixed=frozenset({"username"}),
    new=lambda body, now, _seal: new_user(body, now),
    change=lambda user, body, now, _seal: apply(user, body, now),
    resource=Resource(
        texts=Texts(
            list="Returns all users of this API, without their passwords. Users manage the service; clients of a proxy "
            "are its accounts.",
            create="Creates a user with a role, or with permissions of their own. The caller cannot grant a permission "
            "that the caller does not have.",
            get="Returns a user with role, permissions and last sign-in. Users can read their own record without "
            "`users.read`.",
            update="Changes the given fields and keeps all others. A new password or the status `disabled` ends the "
            "user's tokens. Every caller who changes their own password or e-mail address gives `current_password`.",
            delete="Deletes the user and revokes their tokens and API keys. The last active administrator cannot be "
            "deleted.",
        ),
        one=one_of("user", UserView),
        page=all_of("Users", "users", UserView),
        read="users.read",
        write="users.write",
        delete="users.delete",
        allows_self=True,
    ),
)


# --- changes through the API --------------------------------------------------------------------------------------

Confirm = Callable[[User, str, str], bool]
"""Whether this is the password of a user, for a caller with this address. Raises `TooBusy`."""


def hooks_of_users(
    engine: Engine, publish: Callable[[str, dict[str, Any]], None], confirm: Confirm, last_login: LastUsed
) -> Hooks[User]:
    """A caller can't grant permissions beyond their own, nor change the password, role or permissions of a user with
    more. The last active administrator can't be deleted, disabled or demoted.
    """

    def make(caller: Caller | None, before: User | None, body: Any, _path: str) -> User:
        assert caller is not None
        if before is None:
            _check_strength(body.password, body.username)
            return new_user(body)
        _authorise(caller, before, body)
        if before.id == caller.user.id and (body.password is not None or body.email not in (None, before.email)):
            check_current_password(before, body.current_password)
        if body.password is not None:
            _check_strength(body.password, before.username)
        return apply(before, body, time.time(), by_themself=not caller.may("users.write"))

    def check_current_password(user: User, given: str | None) -> None:
        """Who finds a browser unlocked, or steals a token, must not take the account over, whatever its role."""
        if given is None:
            raise Invalid("current_password", "is required")
        if not confirm(user, given, origin().address or ""):
            raise Invalid("current_password", "is wrong")

    def permit(caller: Caller, proposal: Proposal[User]) -> None:
        before = None if proposal.before is None else proposal.before.record
        after = proposal.after
        if before is None or after is None or (before.role, before.permissions) != (after.role, after.permissions):
            _require_as_much(caller, proposal.record)

    def check(proposals: Proposals[User]) -> None:
        for each in proposals:
            if each.caller is not None:
                now = by_id(engine, each.caller.user.id)
                if now is None or now.status != "active":
                    raise Unauthenticated  # deleted or disabled since the request was authenticated
                permit(replace(each.caller, user=now), each)
            if each.before is not None:
                keep_an_administrator(each.before.record, each.after)
            elif by_name(engine, each.record.username) is not None:
                raise Invalid("username", f"the user name {each.record.username!r} is in use")

    def keep_an_administrator(before: User, after: User | None) -> None:
        if not _administers(before) or (after is not None and _administers(after)):
            return
        others = (load(each) for each in engine.find(COLLECTION) if each.id != before.id)
        if not any(map(_administers, others)):
            field = "status" if after is not None and after.status != "active" else "role"
            raise Invalid(None if after is None else field, "the last active administrator has to stay one")

    def commit(proposals: Proposals[User], writes: Sequence[Write]) -> int:
        changed = [(each.before.record, each.after) for each in proposals if each.before is not None]
        number, revoked = commit_and_revoke(engine, writes, changed)
        for key in revoked:
            publish("api_key.revoked", api_keys.about(key))
        return number

    return Hooks(
        lock=lambda _proposals: one_change,
        make=make,
        permit=permit,
        check=check,
        again=lambda seen, now: seen.password_hash == now.password_hash,
        commit=commit,
        complete=lambda stored: Stored(with_login(stored.record, last_login), stored.revision),
        views=lambda _caller, stored, _whole: [each.record.view() for each in stored],
    )


def with_login(user: User, last_login: LastUsed) -> User:
    """`user` with the time of the last sign-in, which is not in the document."""
    return user.model_copy(update={"last_login": last_login.of(user.id) or user.last_login})


def commit_and_revoke(
    engine: Engine, writes: Sequence[Write], changed: Sequence[tuple[User, User | None]]
) -> tuple[int, list[ApiKey]]:
    """Commit `writes`, delete the sign-ins that end when these users become those, and all keys of users that are gone.

    With two commits, a crash between them would leave a new password, and tokens that were issued for the old one.
    Returns the number of the commit, and the keys that were revoked. The caller holds `users.one_change`, so that no
    sign-in or key is added meanwhile. Raises as `Store.commit`.
    """
    ended_users = [before.id for before, after in changed if _ends_sign_ins(before, after)]
    without_keys = [before.id for before, after in changed if after is None]
    with engine.exclusive(size_of(writes)):
        families = [each for user in ended_users for each in engine.find(tokens.COLLECTION, user_id=user)]
        keys = [each for user in without_keys for each in engine.find(api_keys.COLLECTION, user_id=user)]
        ended = [Write(tokens.COLLECTION, family.id, None, family.revision) for family in families]
        ended += [Write(api_keys.COLLECTION, key.id, None, key.revision) for key in keys]
        return engine.commit([*writes, *ended]), [api_keys.load(key) for key in keys]


def _ends_sign_ins(before: User, after: User | None) -> bool:
    return after is None or after.status != "active" or after.password_hash != before.password_hash


def _authorise(caller: Caller, user: User, body: UserUpdate) -> None:
    """Raises `Denied`, `MissingPermission`. A key acts for its owner, but its bearer must not sign in as them."""
    if caller.key is not None and user.id == caller.user.id and (body.password or body.email):
        raise Denied("an API key can't change the password or the e-mail address of its owner")
    if not caller.may("users.write"):  # so it is the caller's own account
        if body.role or body.status or body.permissions is not None:
            raise MissingPermission("users.write", by_key=False)
    elif body.password or body.email or body.role or body.status or body.permissions is not None:
        _require_as_much(caller, user)


def _require_as_much(caller: Caller, user: User) -> None:
    """Raises `MissingPermission` unless the caller has every permission of `user`, and their access to the audit trail.

    Only an administrator can give the role of one, even with narrower permissions.
    """
    missing = first_missing(caller.permissions(), user.granted())
    if missing is not None:
        raise MissingPermission(missing, by_key=False)
    if user.role == "administrator" and not caller.may(ADMIN):
        raise MissingPermission(ADMIN, by_key=False)
    if Caller(user).acts_as(AUDITOR) and not (caller.may(ADMIN) or caller.acts_as(AUDITOR)):
        raise MissingPermission(ADMIN, by_key=False)


def _check_strength(password: str, username: str) -> None:
    why = weakness(password, username)
    if why is not None:
        raise Invalid("password", why)


def _administers(user: User) -> bool:
    return user.status == "active" and holds(user.granted(), ADMIN)
