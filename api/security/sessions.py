"""Sessions: the sign-ins of users that live, as people list and end them.

A session is a family of tokens (`api.security.tokens`), and its id that of the family, which opens nothing. When and
where it was used last is in memory; the last refresh, which is stored, is what is left of that after a restart.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from api.security.tokens import COLLECTION, Claims, Client, Tokens
from api.store import Document, Store
from config.text.formatting import timestamp_text

LONGEST_USER_AGENT = 256
PROGRAM = "program"
"""The kind of a session whose sign-in named none."""
_REMEMBERED = 20_000


class UserSessions:
    """The sessions of all users. Thread-safe."""

    def __init__(self, store: Store, tokens: Tokens, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._tokens = tokens
        self._clock = clock
        self._used: dict[str, tuple[float, str]] = {}
        self._keeps_first_password: set[str] = set()

    def used(self, family: str, address: str) -> None:
        """An access token of this family has come from `address`."""
        if len(self._used) >= _REMEMBERED:
            self._used.clear()
        self._used[family] = (self._clock(), address)

    def keep_first_password(self, claims: Claims) -> None:
        """The user of this session is not asked again for another password than the first one."""
        self._keeps_first_password.add(claims.family)

    def keeps_first_password(self, claims: Claims | None) -> bool:
        """Whether the user has chosen so in this session."""
        return claims is not None and claims.family in self._keeps_first_password

    def of(self, user_id: str, current: str | None = None) -> list[dict[str, Any]]:
        """The views of the sessions of a user, those used last first. `current` is the one that asks."""
        living = self._store.find(COLLECTION, self._is_good, user_id=user_id)
        views = [self._view(document, current) for document in living]
        return sorted(views, key=lambda view: (view["last_used"], view["id"]), reverse=True)

    def lives(self, user_id: str, session_id: str) -> bool:
        """Whether this user has this session."""
        document = self._store.get(COLLECTION, session_id)
        return document is not None and document.body["user_id"] == user_id and self._is_good(document.body)

    def end(self, session_id: str) -> None:
        """End a session, with its tokens. Raises `StoreWriteError`."""
        self._tokens.revoke(session_id)
        self._used.pop(session_id, None)
        self._keeps_first_password.discard(session_id)

    def _is_good(self, body: Mapping[str, Any]) -> bool:
        return body["keep_until"] > self._clock() and self._tokens.fits_user(body)

    def _view(self, document: Document, current: str | None) -> dict[str, Any]:
        body = document.body
        used_at, address = self._last_use(document.id, body)
        return {
            "id": document.id,
            "user_id": body["user_id"],
            "kind": body.get("session") or PROGRAM,
            "created_at": timestamp_text(body["created_at"]),
            "last_used": timestamp_text(used_at),
            "expires_at": timestamp_text(body["keep_until"]),
            "address": address,
            "user_agent": body.get("user_agent"),
            "current": document.id == current,
        }

    def _last_use(self, family: str, body: Mapping[str, Any]) -> tuple[float, str | None]:
        stored = body["used_at"], body.get("address")
        return max(self._used.get(family, stored), stored, key=lambda use: use[0])


def client_of(address: str, user_agent: str | None) -> Client:
    """A client with what it says it is as one line of text."""
    text = "".join(each for each in user_agent or "" if each.isprintable())[:LONGEST_USER_AGENT]
    return Client(address, text or None)
