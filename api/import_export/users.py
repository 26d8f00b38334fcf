"""Planning of users. The caller stays an active administrator, so there always is one."""

from __future__ import annotations

import secrets as random
from typing import Any

from api.import_export.document import UserEntry
from api.import_export.entries import user_entry
from api.import_export.plan import ImportRequest, PlanContext, Problems, Step
from api.import_export.state import State, StoredRecord
from api.security.permissions import ADMIN, holds
from api.security.users import COLLECTION, OAuthLink, User
from config.model.user_names import name_key, new_name
from config.passwords import check_password, hash_password
from config.weak_passwords import weakness


def plan_users(state: State, request: ImportRequest, context: PlanContext, problems: Problems) -> list[Step[User]]:
    """A step for each entry, in their order; then, to prune, one for each user who has none."""
    entries = request.document.users
    if entries is None:
        return []
    steps, named = [], dict[str, int]()
    for index, entry in enumerate(entries):
        path, key = f"users[{index}]", name_key(entry.username)
        if key in named:
            problems.add(f"{path}.username", f"is the name of users[{named[key]}], too")
            continue
        named[key] = index
        step = _plan_one(state.users.get(key), entry, path, request, context, problems)
        if step is not None:
            steps.append(step)
    if request.prune:
        steps += [_step("users", each, None) for key, each in sorted(state.users.items()) if key not in named]
    keep_the_caller(steps, request.caller_id, problems)
    return steps


def _step(path: str, stored: StoredRecord[User] | None, after: User | None) -> Step[User]:
    return Step("user", COLLECTION, path, stored, after, user_entry)


def _plan_one(
    stored: StoredRecord[User] | None,
    entry: UserEntry,
    path: str,
    request: ImportRequest,
    context: PlanContext,
    problems: Problems,
) -> Step[User] | None:
    before = None if stored is None else stored.record
    if before is not None and before.username != entry.username:
        problems.add(f"{path}.username", f"is {before.username!r} here; names may not differ in case alone")
        return None
    _check_new(before, entry, path, problems)
    hashed = _hash(before, entry, request.secrets.users.get(entry.username))
    if hashed is None:
        problems.add(f"{path}.password", "is required for a new user: in the clear, or in secrets")
        return None
    if before is None:
        return _step(path, None, _new(entry, hashed, context.now))
    changed = _changed(before, entry)
    return _step(
        path, stored, before.model_copy(update={**changed, "password_hash": hashed, "updated_at": context.now})
    )


def _check_new(before: User | None, entry: UserEntry, path: str, problems: Problems) -> None:
    """Check the name of a new user and a new password by the rules of the API."""
    weak = None if entry.password is None else weakness(entry.password, entry.username)
    if weak is not None:
        problems.add(f"{path}.password", weak)
    if before is not None:
        return
    try:
        name = new_name(entry.username)
    except ValueError as error:
        problems.add(f"{path}.username", str(error))
    else:
        if name != entry.username:
            problems.add(f"{path}.username", f"must be in the normal form of Unicode: {name!r}")


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


def keep_the_caller(steps: list[Step[User]], caller_id: str, problems: Problems) -> None:
    """Refuse an import after which the caller, maybe the only administrator, could not sign in."""
    for step in steps:
        if step.before is None or step.before.id != caller_id:
            continue
        if step.after is None:
            problems.add("users", f"your own account {step.name!r} is missing: pruning would delete it")
        elif step.after.status != "active":
            problems.add(f"{step.path}.status", "you can't disable your own account")
        elif not holds(step.after.granted(), ADMIN):
            field = "role" if step.after.permissions is None else "permissions"
            problems.add(f"{step.path}.{field}", "you can't take administration from your own account")
