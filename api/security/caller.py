"""Who made a request, and what that allows; an account holder's token opens the operations below `/me` and nothing
else.
"""

from __future__ import annotations

from dataclasses import dataclass

from api.security.account_sessions import AccountSession
from api.security.api_keys import ApiKey, Scope
from api.security.permissions import ROLES, holds
from api.security.tokens import Claims
from api.security.users import User


@dataclass(frozen=True, slots=True)
class Caller:
    """Who made a request, by which credential. `key` or `claims` is set, or neither with HTTP Basic."""

    user: User
    key: ApiKey | None = None
    claims: Claims | None = None

    @property
    def method(self) -> str:
        """`api_key`, `bearer` or `basic`."""
        return "api_key" if self.key else "bearer" if self.claims else "basic"

    @property
    def identity(self) -> str:
        """Whose rate limit this counts for."""
        return self.key.id if self.key else self.user.id

    @property
    def interactive(self) -> bool:
        """Whether an interactive session made the request, whose rates count apart."""
        return self.claims is not None and self.claims.session is not None

    def may(self, permission: str) -> bool:
        """A key never has more than its owner has at this moment."""
        by_key = self.key is None or holds(self.key.permissions, permission)
        return by_key and holds(self.user.granted(), permission)

    def acts_as(self, role: str) -> bool:
        """Whether this is the role in full; a credential that lacks something of a role isn't the role."""
        return self.user.role == role and all(self.may(each) for each in ROLES[role])

    @property
    def scope(self) -> frozenset[str] | None:
        """The proxies that this credential is restricted to; None: all."""
        if self.key is None or self.key.scope is None or self.key.scope.proxies is None:
            return None
        return frozenset(self.key.scope.proxies)

    @property
    def account_scope(self) -> frozenset[str] | None:
        """The accounts whose credentials are all that this credential may manage; None: it is no such key."""
        if self.key is None or self.key.scope is None or self.key.scope.accounts is None:
            return None
        return frozenset(self.key.scope.accounts)

    @property
    def narrowed(self) -> Scope | None:
        """The scope of a key that reaches some proxies or accounts only; None: the caller reaches all."""
        scope = None if self.key is None else self.key.scope
        return None if scope is None or (scope.proxies is None and scope.accounts is None) else scope

    def reaches(self, collection: str, name: str) -> bool:
        """Whether the caller may read and name this object of `pools`, `policies` or `lists`."""
        return self.narrowed is None or name in (self.narrowed.named(collection) or ())

    def permissions(self) -> list[str]:
        """What this credential may do."""
        if self.key is None:
            return list(self.user.granted())
        return [each for each in self.key.permissions if holds(self.user.granted(), each)]


@dataclass(frozen=True, slots=True)
class AccountHolder:
    """The account and the sign-in."""

    account_id: str
    username: str
    session: AccountSession

    @property
    def identity(self) -> str:
        """Whose rate limit this counts for."""
        return self.account_id
