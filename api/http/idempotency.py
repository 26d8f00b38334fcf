"""`Idempotency-Key`: a POST that is sent again within 24 hours is answered as it was the first time, and done once.

After draft-ietf-httpapi-idempotency-key-header. A key belongs to the caller (API key, else user). The same key with
another request is 400. A request that comes while the first one is still under way waits for it. Only successes are
kept: what failed may be tried again.

The answers are kept on the disk, so they outlive a restart, and sealed (`config.files.secret_box`) together with a
fingerprint of the request: an answer may hold a new API key, a request a password. A crash in the middle of a request
leaves no answer, so that request is done anew when it is repeated.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from actors.sqlite import open_database
from api.errors import Invalid, TooBusy
from api.store.interface import StoreError
from config.files.paths import DataDir, PathError
from config.files.secret_box import SecretBox, SecretBoxError

log = logging.getLogger(__name__)

Answer = dict[str, Any]


class Replayable(Protocol):
    """A reply that can be kept."""

    def plain(self) -> Answer:
        """As JSON-like data."""


R = TypeVar("R", bound=Replayable)

HEADER = "Idempotency-Key"
KEPT = 24 * 3600.0
MOST_KEPT = 100_000
LONGEST_WAIT = 10.0
"""Seconds that a repeated request waits for the first one; then it is told to come again."""

_PURPOSE = "idempotency"
_PURGE_PERIOD = 600.0
_KEY = re.compile(r"[\x21-\x7e]{1,255}", re.ASCII)
_SCHEMA = """
CREATE TABLE IF NOT EXISTS answers (mark TEXT PRIMARY KEY, created REAL NOT NULL, sealed TEXT NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS answers_by_age ON answers (created);
"""


class Idempotency:
    """The answers of one data directory. Thread-safe. `clock` is wall time: answers outlive the process."""

    def __init__(self, data: DataDir, seal: SecretBox, clock: Callable[[], float] = time.time) -> None:
        """Raises `StoreError`."""
        self._seal = seal
        self._clock = clock
        self._lock = threading.Lock()
        self._turns: dict[str, _Turn] = {}
        self._purged = 0.0
        try:
            self._database = open_database(data.idempotency / "answers.sqlite", _SCHEMA, any_thread=True)
        except (sqlite3.Error, PathError, OSError) as error:
            raise StoreError(f"{data.idempotency}: {error}") from error

    def once(self, caller: str, key: str, request: Any, execute: Callable[[], R]) -> R | Answer:
        """The reply of `execute`, or, when `caller` sent `key` before, the plain form of the reply to that request.

        `request` is what must be the same; it is JSON-like. Raises `Invalid` for a bad key or one of
        another request, `TooBusy` while the first one takes long, and what `execute` raises.
        """
        if not _KEY.fullmatch(key):
            raise Invalid(HEADER, "must be 1 to 255 visible ASCII characters")
        mark = _digest([caller, key])
        with self._turn(mark):
            kept = self._find(mark)
            if kept is None:
                reply = execute()
                self._keep(mark, {"request": _digest(request), "answer": reply.plain()})
                return reply
        if kept["request"] != _digest(request):
            raise Invalid(HEADER, "was used for another request within the last 24 hours")
        return dict(kept["answer"])

    def close(self) -> None:
        """Give the file back."""
        with self._lock:
            self._database.close()

    @contextmanager
    def _turn(self, mark: str) -> Iterator[None]:
        """One request of a mark at a time."""
        with self._lock:
            turn = self._turns.setdefault(mark, _Turn())
            turn.wanted += 1
        try:
            if not turn.lock.acquire(timeout=LONGEST_WAIT):
                raise TooBusy(1, "The first request with this Idempotency-Key is still under way")
            try:
                yield
            finally:
                turn.lock.release()
        finally:
            with self._lock:
                turn.wanted -= 1
                if not turn.wanted:
                    del self._turns[mark]

    def _find(self, mark: str) -> dict[str, Any] | None:
        """What is kept and can be read. Else the request is done, as if it came for the first time."""
        statement = "SELECT sealed FROM answers WHERE mark = ? AND created > ?"
        try:
            with self._lock:
                found = self._database.execute(statement, (mark, self._clock() - KEPT)).fetchone()
            return None if found is None else dict(json.loads(self._seal.open(found[0], f"{_PURPOSE} {mark}")))
        except (sqlite3.Error, SecretBoxError) as error:
            log.error("the answer to an earlier request can't be read: %s", error)
            return None

    def _keep(self, mark: str, entry: dict[str, Any]) -> None:
        """The request is done by now: if its answer can't be kept, only a repetition is worse off."""
        try:
            sealed = self._seal.seal(json.dumps(entry), f"{_PURPOSE} {mark}")
            with self._lock:
                self._database.execute("REPLACE INTO answers VALUES (?, ?, ?)", (mark, self._clock(), sealed))
                self._purge()
        except (sqlite3.Error, SecretBoxError) as error:
            log.error("the answer to a request with an Idempotency-Key can't be kept: %s", error)

    def _purge(self) -> None:
        now = self._clock()
        if abs(now - self._purged) < _PURGE_PERIOD:
            return
        self._purged = now
        self._database.execute("DELETE FROM answers WHERE created <= ?", (now - KEPT,))
        oldest = "SELECT created FROM answers ORDER BY created DESC LIMIT 1 OFFSET ?"
        self._database.execute(f"DELETE FROM answers WHERE created <= ({oldest})", (MOST_KEPT,))  # noqa: S608 - our own text


class _Turn:
    """Who comes first, and how many want to."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.wanted = 0


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
