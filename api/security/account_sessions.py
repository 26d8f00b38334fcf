"""Sign-ins of account holders: what their tokens may do is in `api.objects.accounts.self_service`.

A token is `pfs_` and 40 characters; its SHA-256 is stored, with the account and a fingerprint of the password's hash.
So a token ends with its time, a sign-out, or another password.
"""

from __future__ import annotations

import hashlib
import secrets
import sqlite3
import string
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from actors.sqlite import open_database, transaction
from api.store import StoreError, StoreWriteError
from config.files.paths import DataDir, PathError
from config.passwords import fingerprint

PREFIX = "pfs_"
LIFETIME = 3600
"""Seconds."""
SESSIONS_PER_ACCOUNT = 20
"""Sign-ins of one account that live at the same time; with more of them the oldest ends."""

_ALPHABET = string.digits + string.ascii_letters
_LENGTH = 40
_SCHEMA = """
CREATE TABLE IF NOT EXISTS sessions
    (digest TEXT PRIMARY KEY, account TEXT NOT NULL, password TEXT NOT NULL, until REAL NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS sessions_by_account ON sessions (account, until);
CREATE INDEX IF NOT EXISTS sessions_by_end ON sessions (until);
"""


@dataclass(frozen=True, slots=True)
class AccountSession:
    """A sign-in. `id` is no secret; `password` is `fingerprint` of the hash that was right; `until` is Unix seconds."""

    id: str
    account_id: str
    password: str
    until: float


class AccountSessions:
    """The sign-ins of one data directory. Thread-safe. `clock` is wall time."""

    def __init__(self, data: DataDir, clock: Callable[[], float] = time.time) -> None:
        """Raises `StoreError`."""
        self._clock = clock
        self._lock = threading.Lock()
        try:
            self._database = open_database(data.account_sessions, _SCHEMA, any_thread=True)
        except (sqlite3.Error, PathError, OSError) as error:
            raise StoreError(f"{data.account_sessions}: {error}") from error

    def issue(self, account_id: str, password_hash: str) -> str:
        """The token of a new sign-in. Raises `StoreWriteError`."""
        token = PREFIX + "".join(secrets.choice(_ALPHABET) for _ in range(_LENGTH))
        now = self._clock()
        row = (_digest(token), account_id, fingerprint(password_hash), now + LIFETIME)
        with self._writing() as database:
            database.execute("DELETE FROM sessions WHERE until <= ?", [now])
            database.execute("INSERT INTO sessions VALUES (?, ?, ?, ?)", row)
            database.execute(
                "DELETE FROM sessions WHERE digest IN"
                " (SELECT digest FROM sessions WHERE account = ? ORDER BY until DESC LIMIT -1 OFFSET ?)",
                [account_id, SESSIONS_PER_ACCOUNT],
            )
        return token

    def find(self, token: str) -> AccountSession | None:
        """The sign-in of a token, also of one whose time is over; None for any other text. Raises `StoreError`."""
        try:
            with self._lock:
                query = "SELECT digest, account, password, until FROM sessions WHERE digest = ?"
                row = self._database.execute(query, [_digest(token)]).fetchone()
        except sqlite3.Error as error:
            raise StoreError(f"the sign-ins of accounts can't be read: {error}") from error
        return None if row is None else AccountSession(*row)

    def end(self, session: AccountSession) -> None:
        """End a sign-in. Raises `StoreWriteError`."""
        with self._writing() as database:
            database.execute("DELETE FROM sessions WHERE digest = ?", [session.id])

    def end_of(self, account_ids: Iterable[str]) -> None:
        """End all sign-ins of these accounts. Raises `StoreWriteError`."""
        with self._writing() as database:
            database.executemany("DELETE FROM sessions WHERE account = ?", [(each,) for each in account_ids])

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._database.close()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        try:
            with self._lock, transaction(self._database) as database:
                yield database
        except sqlite3.Error as error:
            raise StoreWriteError(f"the sign-ins of accounts can't be stored: {error}") from error


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
