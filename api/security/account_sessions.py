"""Sign-ins of account holders: what their tokens may do is in `api.objects.accounts.self_service`.

A token is `pfs_` and 40 characters; its SHA-256 is stored, with the account and a fingerprint of the password's hash.
So a token ends with its time, a sign-out, or another password.

On one machine they are in a file of their own. A node of a fleet stores them as documents, which all nodes share
(`api.engine.loose`); those in the file stay good until their end.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import sqlite3
import string
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass

from actors.sqlite import open_database, transaction
from api.engine.loose import HOLDERS, LooseObjects
from api.store import FleetStore, NotStored, StoreError, StoreWriteError, Write
from config.files.paths import DataDir, PathError
from config.passwords import fingerprint

PREFIX = "pfs_"
LIFETIME = 3600
"""Seconds."""
SESSIONS_PER_ACCOUNT = 20
"""Sign-ins of one account that live at the same time; with more of them the oldest ends."""

_ALPHABET = string.digits + string.ascii_letters
_LENGTH = 40
_TOKEN = re.compile(r"pfs_[0-9A-Za-z]{40}", re.ASCII)
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

    def __init__(
        self,
        data: DataDir,
        store: FleetStore,
        loose: LooseObjects,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`loose` are those of the store. Raises `StoreError`."""
        self._store = store
        self._loose = loose
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
        if self._loose.are_shared:
            self._share(AccountSession(*row), now)
            return token
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
        return self._shared(token) if row is None else AccountSession(*row)

    def end(self, session: AccountSession) -> None:
        """End a sign-in. Raises `StoreWriteError`."""
        self._end_shared([session.id])
        with self._writing() as database:
            database.execute("DELETE FROM sessions WHERE digest = ?", [session.id])

    def end_of(self, account_ids: Iterable[str]) -> None:
        """End all sign-ins of these accounts. Raises `StoreWriteError`."""
        ended = set(account_ids)
        found = self._store.find(HOLDERS, lambda body: body["account_id"] in ended)
        self._end_shared([each.id for each in found])
        with self._writing() as database:
            database.executemany("DELETE FROM sessions WHERE account = ?", [(each,) for each in ended])

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._database.close()

    def _share(self, session: AccountSession, now: float) -> None:
        over = [each.id for each in self._store.find(HOLDERS, lambda body: body["until"] <= now)]
        live = self._store.find(HOLDERS, lambda body: body["until"] > now, account_id=session.account_id)
        live.sort(key=lambda document: document.body["until"])
        self._end_shared([*over, *(each.id for each in live[: max(0, len(live) + 1 - SESSIONS_PER_ACCOUNT)])])
        self._store.put(HOLDERS, asdict(session), expect=0)

    def _shared(self, token: str) -> AccountSession | None:
        """That of a fleet. One that isn't here may be of a sign-in at another node of this moment."""
        if not _TOKEN.fullmatch(token):
            return None
        found = self._store.get(HOLDERS, _digest(token))
        if found is None:
            self._loose.ask()
            found = self._store.get(HOLDERS, _digest(token))
        return None if found is None else AccountSession(**found.body)

    def _end_shared(self, identifiers: Iterable[str]) -> None:
        for each in identifiers:
            if self._store.get(HOLDERS, each) is None:
                continue
            with suppress(NotStored):  # it has ended meanwhile
                self._store.commit([Write(HOLDERS, each, None)])

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        try:
            with self._lock, transaction(self._database) as database:
                yield database
        except sqlite3.Error as error:
            raise StoreWriteError(f"the sign-ins of accounts can't be stored: {error}") from error


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
