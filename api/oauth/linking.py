"""The account of an identity.

1. The one that it is linked to. The link is issuer and subject, so it outlives a change of the e-mail address.
2. Else the one with the same e-mail address, which the provider has verified; it is linked from now on. Not when two
   accounts have the address, nor when the account is linked to another identity: providers reassign addresses. And
   only when a caller with `users.write` set it: a user could claim another person's address as a trap.
3. Else a new one, if `auto_create` lets it, with a role that `role_mapping` names, else `user`.

Roles are mapped when an account is made, not at later sign-ins: then they are managed here.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from functools import cache
from typing import Any

from api.audit.audit_context import origin
from api.oauth.id_token import Identity, IdentityRefused, domain_of, same_address
from api.security import users
from api.security.users import OAuthLink, User
from api.store import Document, FleetStore, RevisionConflict, Store, repeated
from config.model.fields import new_name
from config.passwords import hash_password
from config.settings.groups import MappedRole, OAuth2

_NO_ADDRESS = "the provider has not verified an e-mail address for you, and no account is linked to you yet"
_NO_ACCOUNT = "there is no account for you"
_NAME_MAX = 64

METHOD = "oauth2"
"""What the audit trail calls this kind of sign-in."""


def admit(store: FleetStore, identity: Identity, settings: OAuth2) -> tuple[User, bool]:
    """The account of `identity`, and whether it is new. Called with `users.one_change` held.

    Raises `IdentityRefused`, `StoreError`.
    """
    return repeated(lambda: _admitted(store, identity, settings))


def _admitted(store: FleetStore, identity: Identity, settings: OAuth2) -> tuple[User, bool]:
    _check_domain(identity, settings)
    seen = linked, same = _related(store, identity)
    if linked:
        return _active(users.load(linked[0])), False
    if identity.email is None:
        raise IdentityRefused(_NO_ADDRESS)
    if same:
        user, expect = _linked(same, identity), same[0].revision
    elif settings.auto_create:
        user, expect = _new_user(store, identity, identity.email, mapped_role(identity, settings.role_mapping)), 0
    else:
        raise IdentityRefused(_NO_ACCOUNT)

    def refuse_overtaken() -> None:
        named = users.by_name(store, user.username)
        if _related(store, identity) != seen or (named is not None and named.id != user.id):
            raise RevisionConflict(users.COLLECTION, user.id, expect, store.revision_of(users.COLLECTION, user.id))

    origin().signed_in(user, METHOD)  # in the audit trail that user is the author
    with store.rechecked(refuse_overtaken):
        store.put(users.COLLECTION, user.model_dump(mode="json"), expect)
    return user, not same


def mapped_role(identity: Identity, mapping: Mapping[str, MappedRole]) -> MappedRole:
    """The role of a new account: that of the first key that fits, else `user`."""
    return next((role for key, role in mapping.items() if _fits(identity, key)), "user")


def _fits(identity: Identity, key: str) -> bool:
    name, equals, value = key.partition("=")
    if equals:
        found = _claim(identity.claims, name)
        return any(_as_text(each) == value for each in (found if isinstance(found, list) else [found]))
    if identity.email is None:
        return False
    return same_address(identity.email, key) if "@" in key else domain_of(identity.email) == key


def _claim(claims: Mapping[str, Any], name: str) -> Any:
    """A claim by its name, or by a path of names: `realm_access.roles`."""
    if name in claims:
        return claims[name]
    found: Any = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _as_text(value: Any) -> str | None:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, (str, int)) else None


def _check_domain(identity: Identity, settings: OAuth2) -> None:
    allowed = settings.allowed_domains
    if allowed and (identity.email is None or domain_of(identity.email) not in allowed):
        raise IdentityRefused("your e-mail address is not of a domain that may sign in")


def _related(store: Store, identity: Identity) -> tuple[list[Document], list[Document]]:
    """The accounts that are linked to an identity, and else those with its e-mail address."""
    wanted, address = _link_of(identity).model_dump(), identity.email
    linked = store.find(users.COLLECTION, lambda body: body.get("oauth") == wanted)
    if linked or address is None:
        return linked, []
    found = store.find(users.COLLECTION, lambda body: same_address(body.get("email") or "", address))
    return [], [each for each in found if not users.load(each).email_claimed]


def _linked(same: list[Document], identity: Identity) -> User:
    known = users.load(same[0])
    if len(same) > 1 or known.oauth is not None:
        raise IdentityRefused("it is not certain that the account with your e-mail address is yours")
    return _active(known).model_copy(update={"oauth": _link_of(identity), "updated_at": time.time()})


def require_active(store: Store, user: User) -> None:
    """Raise `IdentityRefused` if the account was deleted or disabled meanwhile."""
    now = users.by_id(store, user.id)
    if now is None or now.status != "active":
        raise IdentityRefused(_NO_ACCOUNT)


def _active(user: User) -> User:
    if user.status != "active":
        raise IdentityRefused(_NO_ACCOUNT)
    return user


def _link_of(identity: Identity) -> OAuthLink:
    return OAuthLink(provider=identity.provider, issuer=identity.issuer, subject=identity.subject)


def _new_user(store: Store, identity: Identity, email: str, role: MappedRole) -> User:
    """An account without a password. Its hash is like all others, so that a wrong password takes the same time."""
    now = time.time()
    return User(
        id="usr_" + secrets.token_hex(8),
        username=_free_name(store, email),
        email=email,
        password_hash=_hash_of_no_password(),
        role=role,
        oauth=_link_of(identity),
        created_at=now,
        updated_at=now,
    )


@cache
def _hash_of_no_password() -> str:
    """Made once, since `users.one_change` is held; the password was never seen."""
    return hash_password(secrets.token_urlsafe(32))


def _free_name(store: Store, email: str) -> str:
    """The address as a user name; with a random suffix if that is in use, and `user` where it can't be a name."""
    try:
        name = new_name(email[:_NAME_MAX].replace(":", "_"))[:_NAME_MAX]
    except ValueError:
        email = name = "user"
    while users.by_name(store, name) is not None:
        name = f"{email[: _NAME_MAX - 7]}-{secrets.token_hex(3)}".replace(":", "_")
    return name
