"""`Idempotency-Key`: a POST that is repeated within 24 hours is executed once and has the same response.

After draft-ietf-httpapi-idempotency-key-header. A key belongs to the caller (API key, else user). The same key with
another request is 400. A repetition during the first request waits for it. Only successes are kept: a failed request
may be repeated.

In a fleet the request is taken in its database first, so a repetition at another node waits or has the same response.
In an outage each node is for itself. Its commit says there that the change is made, in the same transaction: when the
process ends before it has responded, a repetition at any node is refused, and does not make the change twice. What is
in no commit is noted before.

The responses are kept on disk, so they survive a restart, and sealed (`config.files.secret_box`) together with a
fingerprint of the request: a response may contain a new API key, a request a password. On one machine a crash during a
request leaves no response, so its repetition is executed.
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
from api.fleet import ThisNode
from api.store.interface import OutcomeUnknown, StoreError
from config.files.paths import DataDir, PathError
from config.files.secret_box import SealedFor, SecretBox, SecretBoxError

log = logging.getLogger(__name__)

PlainReply = dict[str, Any]


class Replayable(Protocol):
    """A reply that can be kept."""

    def plain(self) -> PlainReply:
        """As JSON-like data."""


R = TypeVar("R", bound=Replayable)

HEADER = "Idempotency-Key"
RETENTION = 24 * 3600.0
RESPONSES_MAX = 100_000
LONGEST_WAIT = 10.0
"""Seconds that a repetition waits for the first request; then the response is 429."""
LOST_AFTER = 8.0
"""Seconds that a repetition waits for the response to a change that is made: what follows from one may take some, such
as the start of a proxy, and what other nodes say of it."""
AGAIN = 0.1
"""Seconds between two looks whether another node has responded."""

_PURGE_PERIOD = 600.0
_KEY = re.compile(r"[\x21-\x7e]{1,255}", re.ASCII)
_SCHEMA = """
CREATE TABLE IF NOT EXISTS answers (mark TEXT PRIMARY KEY, created REAL NOT NULL, sealed TEXT NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS answers_by_age ON answers (created);
"""


class Idempotency:
    """The responses of one data directory. Thread-safe. `clock` is wall time: responses outlive the process."""

    def __init__(
        self,
        data: DataDir,
        seal: SecretBox,
        clock: Callable[[], float] = time.time,
        node: Callable[[], ThisNode] = ThisNode,
        was_made: Callable[[int], bool | None] = lambda _number: None,
    ) -> None:
        """`was_made` says what became of a commit that ended with `OutcomeUnknown`. Raises `StoreError`."""
        self._was_made = was_made
        self._unknown: dict[str, int] = {}
        self._node = node
        self._seal = seal
        self._clock = clock
        self._lock = threading.Lock()
        self._turns: dict[str, _Turn] = {}
        self._purged = 0.0
        try:
            self._database = open_database(data.idempotency / "answers.sqlite", _SCHEMA, any_thread=True)
        except (sqlite3.Error, PathError, OSError) as error:
            raise StoreError(f"{data.idempotency}: {error}") from error

    def once(self, caller: str, key: str, request: Any, execute: Callable[[], R]) -> R | PlainReply:
        """The reply of `execute`, or, when `caller` sent `key` before, the plain form of the reply to that request.

        `request` is the JSON-like data that must be the same. Raises `Invalid` for a bad key or one of another
        request, `TooBusy` when the first request takes long, and the errors of `execute`.
        """
        if not _KEY.fullmatch(key):
            raise Invalid(HEADER, "must be 1 to 255 visible ASCII characters")
        mark = _digest([caller, key])
        with self._turn(mark):
            kept = self._find(mark) or self._known_of(mark, request)
            if kept is None:
                kept = self._taken(mark)
            if kept is None:
                entry = {"request": _digest(request), "answer": None}
                try:
                    with self._making(mark, entry):
                        reply = execute()
                except OutcomeUnknown as error:  # it stays taken: it may have been made
                    self._unknown[mark] = error.number
                    raise
                except BaseException:
                    self._give_back(mark)
                    raise
                self._keep(mark, {**entry, "answer": reply.plain()})
                return reply
        if kept["request"] != _digest(request):
            raise Invalid(HEADER, "was used for another request within the last 24 hours")
        if kept["answer"] is None:
            raise Invalid(HEADER, "was used for a change that was made, whose response was lost: see the audit trail")
        return dict(kept["answer"])

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._database.close()

    @contextmanager
    def _turn(self, mark: str) -> Iterator[None]:
        """One request of a key at a time."""
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

    def _taken(self, mark: str) -> dict[str, Any] | None:
        """The entry of another node of the fleet; None when the request is this node's. Raises `TooBusy`."""
        began, busy = time.monotonic(), False
        while True:
            claimed = self._node().requests.claim(mark)
            if (claimed is None and not busy) or (claimed is not None and claimed.ours):
                return None
            busy = True
            if claimed is not None and claimed.response is not None:
                try:
                    entry = self._opened(mark, claimed.response)
                    if entry["answer"] is not None or time.monotonic() >= began + LOST_AFTER:
                        return entry
                except SecretBoxError as error:
                    log.error("cannot read the response of another node to an earlier request: %s", error)
            if time.monotonic() >= began + LONGEST_WAIT:
                raise TooBusy(1, "The first request with this Idempotency-Key is still under way")
            time.sleep(AGAIN)

    def _known_of(self, mark: str, request: Any) -> dict[str, Any] | None:
        """The entry of a request whose outcome was unknown; None when it was not made. Raises `OutcomeUnknown`."""
        if mark not in self._unknown:
            return None
        is_made = self._was_made(self._unknown[mark])
        if is_made is None:
            raise OutcomeUnknown(self._unknown[mark])
        del self._unknown[mark]
        if not is_made:
            return None
        entry = {"request": _digest(request), "answer": None}
        self._keep(mark, entry)
        return entry

    @contextmanager
    def _making(self, mark: str, entry: dict[str, Any]) -> Iterator[None]:
        """Within the block, which executes a request, its changes in a fleet are noted as made, with this entry."""
        requests = self._node().requests
        if not requests.are_shared:
            yield
            return
        try:
            sealed = self._sealed(mark, entry)
        except SecretBoxError as error:
            log.error("cannot note that a request with an Idempotency-Key is executed: %s", error)
            yield
            return
        with requests.making(mark, sealed, lambda: self._keep(mark, entry)):
            yield

    def _give_back(self, mark: str) -> None:
        """The request has failed, and may be executed again."""
        requests = self._node().requests
        requests.settle(mark, None)
        if requests.are_shared:
            try:
                with self._lock:
                    self._database.execute("DELETE FROM answers WHERE mark = ?", (mark,))
            except sqlite3.Error as error:
                log.error("a request that has failed can't be repeated: %s", error)

    def _sealed(self, mark: str, entry: dict[str, Any]) -> str:
        return self._seal.seal(json.dumps(entry), SealedFor.RESPONSE, mark)

    def _opened(self, mark: str, sealed: str) -> dict[str, Any]:
        return dict(json.loads(self._seal.open(sealed, SealedFor.RESPONSE, mark)))

    def _find(self, mark: str) -> dict[str, Any] | None:
        """The entry, if there is a readable one; without it, the request is executed as a first one."""
        statement = "SELECT sealed FROM answers WHERE mark = ? AND created > ?"
        try:
            with self._lock:
                found = self._database.execute(statement, (mark, self._clock() - RETENTION)).fetchone()
            return None if found is None else self._opened(mark, found[0])
        except (sqlite3.Error, SecretBoxError) as error:
            log.error("cannot read the response to an earlier request: %s", error)
            return None

    def _keep(self, mark: str, entry: dict[str, Any]) -> None:
        """The request has been executed: an error here only affects its repetition, so it is logged."""
        try:
            sealed = self._sealed(mark, entry)
            self._node().requests.settle(mark, sealed)
            with self._lock:
                self._database.execute("REPLACE INTO answers VALUES (?, ?, ?)", (mark, self._clock(), sealed))
                self._purge()
        except (sqlite3.Error, SecretBoxError) as error:
            log.error("cannot keep the response to a request with an Idempotency-Key: %s", error)

    def _purge(self) -> None:
        now = self._clock()
        if abs(now - self._purged) < _PURGE_PERIOD:
            return
        self._purged = now
        self._database.execute("DELETE FROM answers WHERE created <= ?", (now - RETENTION,))
        oldest = "SELECT created FROM answers ORDER BY created DESC LIMIT 1 OFFSET ?"
        self._database.execute(f"DELETE FROM answers WHERE created <= ({oldest})", (RESPONSES_MAX,))  # noqa: S608 - our own text


class _Turn:
    """The lock of a key, and the number of requests that hold or await it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.wanted = 0


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
