"""Users: their documents, their view in the API, and how they are found."""

from __future__ import annotations

import secrets
import threading
import time
from typing import Annotated, Any, Literal
from weakref import WeakKeyDictionary

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictStr

from api.engine.records import view_of
from api.security.permissions import GRANTABLE, ROLES
from api.store import Document, Store
from api.store.loaded import REMEMBERED, Loaded
from config.model import json_patterns
from config.model.declaration import INTERNAL, MOMENT, SECRET, Instant
from config.model.fields import Body, example, name_key, new_name, user_name
from config.passwords import fingerprint, hash_password
from config.weak_passwords import LONGEST, SHORTEST, weakness

COLLECTION = "users"
ADMINISTRATOR = "admin"
"""The name of the user that the first start creates."""

one_change = threading.Lock()
"""Held while a user is changed or a token is issued for one: so names are unique, an administrator remains, and no
token outlives the password that it was issued for."""
LONGEST_NAME = 64

Role = Literal["administrator", "operator", "user", "auditor"]
Status = Literal["active", "disabled"]


def _new_username(text: str) -> str:
    name = new_name(user_name(text))
    if len(name) > LONGEST_NAME:
        raise ValueError(f"must have at most {LONGEST_NAME} characters")
    return user_name(name)


def _not_common(password: str) -> str:
    if (why := weakness(password)) is not None:
        raise ValueError(why)
    return password


def _email(text: str) -> str:
    from email_validator import EmailNotValidError, validate_email  # 40 ms of a start, and few set an address

    try:
        return validate_email(text, check_deliverability=False, test_environment=True).normalized
    except EmailNotValidError as error:
        raise ValueError(f"is not an e-mail address: {error}") from error


def permission_names(names: list[str]) -> list[str]:
    """`names` without repetitions, if all of them are permissions; else `ValueError`."""
    for name in names:
        if name not in GRANTABLE:
            raise ValueError(f"{name!r} is not a permission; allowed: {', '.join(sorted(GRANTABLE))}")
    return list(dict.fromkeys(names))


Username = Annotated[
    StrictStr,
    Field(min_length=1, max_length=LONGEST_NAME),
    AfterValidator(user_name),
    json_patterns.text(json_patterns.USER_NAME, 1, LONGEST_NAME),
]
"""Of a user who may be there already, by the rules of an earlier release."""
NewUsername = Annotated[
    StrictStr,
    Field(min_length=1, max_length=LONGEST_NAME),
    AfterValidator(_new_username),
    json_patterns.text(json_patterns.PERSON_NAME, 1, LONGEST_NAME),
]
Email = Annotated[
    StrictStr, Field(max_length=254), AfterValidator(_email), json_patterns.text(highest=254, format="email")
]
NewPassword = Annotated[StrictStr, Field(min_length=SHORTEST, max_length=LONGEST), AfterValidator(_not_common)]
Permissions = Annotated[
    list[Annotated[StrictStr, json_patterns.one_of(*sorted(GRANTABLE))]],
    Field(max_length=50),
    AfterValidator(permission_names),
]


class UserCreate(Body):
    """The body of a create. `permissions` replace those of the role."""

    model_config = example(
        {
            "username": "bob",
            "email": "bob@example.com",
            "password": "correct horse battery",
            "role": "operator",
        }
    )

    username: NewUsername
    password: NewPassword = Field(repr=False)
    email: Email | None = None
    role: Role = "user"
    permissions: Permissions | None = None


class UserUpdate(Body):
    """The body of PUT and PATCH: any part.

    `current_password` goes with a new password or e-mail address of one's own.
    """

    model_config = example({"email": "bob@example.com"})

    email: Email | None = None
    password: NewPassword | None = Field(None, repr=False)
    current_password: Annotated[StrictStr, Field(max_length=1024)] | None = Field(None, repr=False)
    role: Role | None = None
    permissions: Permissions | None = None
    status: Status | None = None


class OAuthLink(BaseModel):
    """The identity of a user at an identity provider, for good: `subject` as `issuer` calls it."""

    model_config = ConfigDict(frozen=True)

    provider: str
    issuer: str
    subject: str


class User(BaseModel):
    """A document of the collection `users`. `permissions` None means: those of the role.

    `email_claimed`: the user alone has set the address, so it may be another person's.
    """

    id: str
    username: str
    email: str | None
    password_hash: Annotated[str, SECRET] = Field(repr=False)
    role: Role
    permissions: Annotated[list[str] | None, INTERNAL] = None
    status: Status = "active"
    disabled_at: Annotated[float | None, SECRET] = None
    """When it was disabled last, or came back when it was deleted; also if it is active again."""
    last_login: Annotated[float | None, MOMENT] = None
    """Of documents of earlier releases; `api.security.last_used` has the later ones."""
    oauth: Annotated[OAuthLink | None, INTERNAL] = None
    email_claimed: Annotated[bool, INTERNAL] = False
    created_at: Instant
    updated_at: Instant

    @property
    def sign_in_mark(self) -> str:
        """What sign-ins have with them: another one when the password has changed or the user was disabled."""
        parts = [self.password_hash] if self.disabled_at is None else [self.password_hash, repr(self.disabled_at)]
        return fingerprint(" ".join(parts))

    def granted(self) -> tuple[str, ...]:
        """What this user may do at this moment."""
        return ROLES[self.role] if self.permissions is None else tuple(self.permissions)

    def view(self) -> dict[str, Any]:
        """As the API shows it."""
        provider = None if self.oauth is None else self.oauth.provider
        return {**view_of(self), "permissions": list(self.granted()), "oauth_provider": provider}


def new_user(body: UserCreate, now: float | None = None) -> User:
    """The record of a user that is to be created."""
    moment = time.time() if now is None else now
    return User(
        id="usr_" + secrets.token_hex(8),
        username=body.username,
        email=body.email,
        password_hash=hash_password(body.password),
        role=body.role,
        permissions=body.permissions,
        created_at=moment,
        updated_at=moment,
    )


def apply(user: User, body: UserUpdate, now: float, by_themself: bool = False) -> User:
    """`user` with the changes of `body`. Hashes a new password.

    A new role brings its own permissions, unless some are given.
    """
    changed: dict[str, Any] = body.model_dump(include={"email", "role", "permissions", "status"}, exclude_none=True)
    if body.role is not None:
        changed.setdefault("permissions", None)
    if body.email is not None and not (by_themself and body.email == user.email):
        changed["email_claimed"] = by_themself
    if body.password is not None:
        changed["password_hash"] = hash_password(body.password)
    return noting_end(user, user.model_copy(update={**changed, "updated_at": now}), now)


def noting_end(before: User, after: User, now: float) -> User:
    """`after` with the time of the last disabling, which ends all sign-ins, those of a node that is cut off, too."""
    is_disabled = before.status == "active" and after.status != "active"
    return after.model_copy(update={"disabled_at": now if is_disabled else before.disabled_at})


def load(document: Document) -> User:
    """The user in a document."""
    return User.model_validate(document.body)


_loaded = Loaded(COLLECTION, load)


def by_id(store: Store, identifier: str) -> User | None:
    """The user with this id."""
    return _loaded.get(store, identifier)


def by_name(store: Store, username: str) -> User | None:
    """The user with this name, whatever its case and its form in Unicode."""
    known = _ids.setdefault(store, {})
    user = by_id(store, known.get(username, ""))
    if user is not None and user.username.casefold() == username.casefold():
        return user
    user = _searched(store, username)
    if user is not None:
        if len(known) >= REMEMBERED:
            known.clear()
        known[username] = user.id
    return user


_ids: WeakKeyDictionary[Store, dict[str, str]] = WeakKeyDictionary()
"""The id of each name that was looked up lately; HTTP Basic looks one up for each request."""


def _searched(store: Store, username: str) -> User | None:
    wanted = name_key(username)
    found = store.find(COLLECTION, lambda body: name_key(body["username"]) == wanted)
    found.sort(key=lambda document: document.body["username"].casefold() != username.casefold())
    return load(found[0]) if found else None


class WeakPassword(ValueError):
    """The password that the operator chose is not 8 to 128 characters long, or is guessed at once."""


def new_password() -> str:
    """A random password of 120 bits."""
    return secrets.token_urlsafe(15)


def check_strength(password: str, username: str = ADMINISTRATOR) -> str:
    """`password`, if it may be the one of `username`; else `WeakPassword`."""
    if not SHORTEST <= len(password) <= LONGEST:
        raise WeakPassword(f"the password must have {SHORTEST} to {LONGEST} characters")
    if (why := weakness(password, username)) is not None:
        raise WeakPassword(f"the password {why}")
    return password
