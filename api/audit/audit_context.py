"""Whose request is served, by thread: so that no caller has to be passed to the store."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from api.history.recorder import NO_PURPOSE, Purpose

if TYPE_CHECKING:  # the supervisor, which writes to the trail at a first start, needs nothing of tokens
    from api.security.caller import AccountHolder, Caller
    from api.security.users import User


@dataclass(slots=True)
class Origin:
    """Where changes come from. `kind` is `anonymous`, `system` or `command_line`; `rows` counts the entries written.

    `commit` is the number of the last commit that was made, 0 for none.

    `caller` is the user with the credential that was used, once that is known, `holder` the holder of an account;
    `signed_in` sets a user who signs in.
    """

    kind: str = "system"
    caller: Caller | None = None
    holder: AccountHolder | None = None
    address: str | None = None
    request_id: str | None = None
    operation: str | None = None
    rows: int = 0
    commit: int = 0
    purpose: Purpose = NO_PURPOSE
    """Of the revision that this request makes."""
    changes: dict[str, set[str]] = field(default_factory=dict)
    """By the id of a changed document, the names of its fields that differ."""
    _user: User | None = None
    _method: str | None = None
    _credential_id: str | None = None

    def signed_in(self, user: User, method: str, credential_id: str | None = None) -> None:
        """An anonymous client has authenticated as this user, by `password`, `oauth2` or `cookie`."""
        self._user, self._method, self._credential_id = user, method, credential_id

    def fields(self) -> dict[str, Any]:
        """The fields of an entry."""
        return {
            "actor": self._actor(),
            "credential": self._credential(),
            "address": self.address,
            "request_id": self.request_id,
            "operation": self.operation,
        }

    def author(self, with_name: bool) -> dict[str, Any]:
        """As the data of an event name who caused it; the user's name only `with_name`."""
        actor, credential = self._actor(), self._credential() or {}
        author = {"type": actor["type"], "user_id": actor["user_id"], "method": credential.get("method")}
        if with_name and actor["type"] == "user":
            author["username"] = actor["username"]
        if credential.get("method") == "api_key":  # the id of a session is no concern of a webhook's receiver
            author["key_id"] = credential["id"]
        return author

    def _actor(self) -> dict[str, Any]:
        user = self.caller.user if self.caller else self._user
        if user is None and self.holder is not None:
            holder = self.holder
            return {"type": "account", "user_id": holder.account_id, "username": holder.username, "role": None}
        if user is None:
            name = _system_user() if self.kind == "command_line" else None
            return {"type": self.kind, "user_id": None, "username": name, "role": None}
        return {"type": "user", "user_id": user.id, "username": user.username, "role": user.role}

    def _credential(self) -> dict[str, Any] | None:
        if self.caller is None and self.holder is not None:
            return {"method": "account_token", "id": self.holder.session.id[:16], "name": None}
        if self.caller is None:
            return {"method": self._method, "id": self._credential_id, "name": None} if self._method else None
        key, claims = self.caller.key, self.caller.claims
        identifier = key.id if key else claims.family if claims else None
        return {"method": self.caller.method, "id": identifier, "name": key.name if key else None}


_CURRENT: ContextVar[Origin | None] = ContextVar("origin", default=None)


def origin() -> Origin:
    """The origin of this thread's changes: the request that it serves, else the system itself."""
    return _CURRENT.get() or Origin()


def serving(current: Origin | None) -> None:
    """Set the origin of this thread's changes; None when it serves no request."""
    _CURRENT.set(current)


@contextmanager
def on_behalf_of(kind: str, operation: str) -> Iterator[None]:
    """Changes within the block come from the `command_line` or the `system`."""
    token = _CURRENT.set(Origin(kind, operation=operation))
    try:
        yield
    finally:
        _CURRENT.reset(token)


def _system_user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
