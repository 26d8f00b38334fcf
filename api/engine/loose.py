"""Objects that need no order over nodes: sign-ins and credentials. Made and ended by id, and never merged.

Without a fleet they are documents as any others. In one they are no part of commits: they have no number, take no lock
of the fleet, and go on without its database. They hold here as soon as the file has them, in one transaction with the
entries of the audit trail, and `api.cluster.loose` brings them to the database, in the same second if it can be used.
What waits for that is in the table `loose`, so it survives the end of the process.

An object is inserted once, replaced by its owner, and deleted for good. Each state is sent with those that it may take
the place of, as digests; if the database has another one, it was replaced or deleted at another node, and what the
database has is taken here. So of two nodes that replace one state one is refused.

All have an end, `until`, after which they are good for nothing: a node removes what is over by itself, and does
not remember that it was deleted.
"""

from __future__ import annotations

import hashlib
import json
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from api.store import Change, Document, RevisionConflict, SignInEnded
from api.store.fleet_file import FleetFile
from api.store.fleet_store import FleetStore, Key
from api.store.rows import text_of

log = logging.getLogger(__name__)

SIGN_INS, CREDENTIALS, HOLDERS = "refresh_families", "credentials", "account_sessions"
LOOSE = frozenset({SIGN_INS, CREDENTIALS, HOLDERS})
"""Their collections."""
FORGOTTEN = 86_400.0
"""Seconds after its end for which an object is remembered as one that was there."""
NOTHING = ""
"""In place of a digest: the state that follows is the first one."""

_ENDS = {SIGN_INS: "keep_until", CREDENTIALS: "expires_at", HOLDERS: "until"}
_NEVER_SENT = """
WITH found (collection, id, until) AS (
    SELECT 'credentials', id, expires_at FROM credentials
    UNION ALL SELECT collection, id, json_extract(body, '$.keep_until') FROM documents
        WHERE collection = 'refresh_families'
    UNION ALL SELECT collection, id, json_extract(body, '$.until') FROM documents
        WHERE collection = 'account_sessions'
)
SELECT collection, id, until FROM found WHERE until > ? AND (collection, id) NOT IN (SELECT collection, id FROM loose)
"""
_WAITING = "SELECT collection, id, step, until, was FROM loose WHERE was IS NOT NULL ORDER BY step LIMIT ?"

Body = Mapping[str, Any]
WriteChanges = Callable[[Sequence[Change], Mapping[Key, Document | None]], None]


@dataclass(frozen=True, slots=True)
class PendingChange:
    """What the database is to have: `text` is the whole object as JSON, None for its deletion.

    It takes the place of a state with one of the digests `was`.
    """

    collection: str
    id: str
    step: int
    until: float
    was: tuple[str, ...]
    text: str | None


@dataclass(frozen=True, slots=True)
class LooseObject:
    """As the database has it; `body` is None when it was deleted."""

    collection: str
    id: str
    until: float
    body: dict[str, Any] | None


class LooseOutlet(Protocol):
    """What brings them to the database."""

    @property
    def node(self) -> str:
        """The id of this node."""
        ...

    def time(self) -> float:
        """Unix time, the same on all nodes."""
        ...

    def ring(self) -> None:
        """There is something to be sent. Does not wait."""
        ...

    def send(self, step: int) -> None:
        """Bring all up to this step to the database if it can be used, in a second at most; else it is sent later."""
        ...

    def ask(self) -> bool:
        """Take what the database has at this moment; whether that was possible. Waits as `wait`."""
        ...


class _DueOfThread(threading.local):
    """What a thread has changed and not settled: its last step, and the revisions of what it has written.

    `settles` is whether it is in a block at the end of which that is sent.
    """

    settles = False
    note: Callable[[], object] | None = None
    step = 0
    written: dict[Key, int] | None = None


class LooseObjects:
    """Those of one file. Thread-safe. Raises `StoreError`."""

    def __init__(
        self,
        file: FleetFile,
        write: WriteChanges,
        revision_of: Callable[[str, str], int],
        settled: Callable[[], AbstractContextManager[None]],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`write` writes changes within a transaction, with what was there before; `settled` is that of effects."""
        self._file = file
        self._write = write
        self._revision_of = revision_of
        self._settled = settled
        self._clock = clock
        self._outlet: LooseOutlet | None = None
        self._thread = _DueOfThread()

    @property
    def are_shared(self) -> bool:
        """Whether there is a fleet that shares them."""
        return self._outlet is not None

    @property
    def node(self) -> str | None:
        """The id of this node; None without a fleet."""
        return None if self._outlet is None else self._outlet.node

    def share(self, outlet: LooseOutlet, all_of_them: bool = False) -> None:
        """From now on they go to the database of a fleet; what has never been sent there is sent now.

        `all_of_them` when the fleet is new.
        """
        self._outlet = outlet
        with self._file.transaction() as database:
            if all_of_them:
                database.execute("DELETE FROM loose")
            for collection, identifier, until in database.execute(_NEVER_SENT, [self._now()]).fetchall():
                _note(database, (collection, identifier), until, [NOTHING])
        outlet.ring()

    def stand_alone(self) -> None:
        """From now on they are documents as any others."""
        self._outlet = None

    # --- changes that are made here ---

    def with_steps(
        self, database: sqlite3.Connection, changes: Sequence[Change], before: Mapping[Key, Document | None]
    ) -> Sequence[Change]:
        """The changes of a transaction; those of loose objects have their step for a revision and are to be sent."""
        outlet = self._outlet
        if outlet is None:
            return changes
        stepped = [self._with_step(database, each, before) if each.collection in LOOSE else each for each in changes]
        due = [each for each in stepped if each.revision < 0]
        if due:
            self._file.after(lambda: self._on_committed(outlet, due))
        return stepped

    def _with_step(self, database: sqlite3.Connection, change: Change, before: Mapping[Key, Document | None]) -> Change:
        key = change.collection, change.id
        known = before.get(key)
        bodies = (change.body, known and known.body)
        until = max((_end_of(change.collection, each) for each in bodies if each), default=0.0)
        is_over = change.body is None and until <= self._now()
        was = None if is_over else [NOTHING if known is None else digest(text_of(known.body))]
        return Change(*key, -_note(database, key, until, was), change.body)

    def _on_committed(self, outlet: LooseOutlet, changes: Sequence[Change]) -> None:
        written = {(each.collection, each.id): each.revision for each in changes if each.body is not None}
        self._thread.step, self._thread.written = -changes[-1].revision, {**(self._thread.written or {}), **written}
        if not self._thread.settles:
            outlet.ring()

    def settle(self) -> None:
        """Bring what this thread has changed to the database, if it can be used, in a second at most.

        Without locks that others need. Raises `RevisionConflict` when it was changed at another node before,
        of sign-ins `SignInEnded`.
        """
        step, self._thread.step = self._thread.step, 0
        written, self._thread.written = self._thread.written or {}, None
        if self._outlet is None or not step:
            return
        self._outlet.send(step)
        for key, revision in written.items():
            found = self._revision_of(*key)
            if found != revision:
                conflict = RevisionConflict if key[0] == CREDENTIALS else SignInEnded
                raise conflict(*key, revision, found)

    @contextmanager
    def settled(self) -> Iterator[None]:
        """`settle` at the end of the block, which is one request; one that fails waits for nothing."""
        self._thread.settles = True
        try:
            yield
        except BaseException:
            if self._thread.step and self._outlet is not None:
                self._outlet.ring()
            self._thread.step, self._thread.written = 0, None
            raise
        finally:
            self._thread.settles = False
        self.settle()

    @contextmanager
    def noting(self, note: Callable[[], object]) -> Iterator[None]:
        """Within the block `note` is called before the first change of this thread."""
        self._thread.note = note
        try:
            yield
        finally:
            self._thread.note = None

    def begin(self) -> None:
        """This thread is about to change something. It has no locks that others need."""
        note, self._thread.note = self._thread.note, None
        if note is not None:
            note()

    def ask(self) -> bool:
        """Take what other nodes have made up to this moment; whether all of it is here now."""
        return self._outlet is None or self._outlet.ask()

    # --- what follows from commits of other nodes ---

    def ended_by(self, database: sqlite3.Connection, store: FleetStore, change: Change) -> list[Change]:
        """What ends here with a change that another node has made, within the transaction that takes it.

        The credentials of an account; and the sign-ins of a user that this node has made, by a password that is no
        longer good: the others are ended by who made them.
        """
        outlet = self._outlet
        if outlet is None:
            return []
        ended: dict[Key, Document | None] = {}
        if change.collection == "accounts" and change.body is None:
            found = store.accounts.ended_with(database, change.id)
            ended = {(CREDENTIALS, each): document for each, document in found.items()}
        elif change.collection == "users" and _ends_sign_ins(store.present(database, "users", change.id), change.body):
            own = store.documents.find(SIGN_INS, user_id=change.id, node=outlet.node)
            ended = {(SIGN_INS, each.id): each for each in own}
        if ended:
            self._file.after(outlet.ring)
        return [self._with_step(database, Change(*key, 0, None), ended) for key in ended]

    # --- to the database, and from it ---

    def pending(self, most: int) -> tuple[list[PendingChange], int]:
        """What the database doesn't have, oldest first, and the last step that it has with these."""
        with self._file.reading() as database:
            last = _last_step(database)
            found = database.execute(_WAITING, [most]).fetchall()
            documents = [FleetStore.present(database, collection, identifier) for collection, identifier, *_ in found]
        texts = (None if each is None else text_of(each.body) for each in documents)
        changes = [
            PendingChange(collection, identifier, step, until, tuple(json.loads(was)), text)
            for (collection, identifier, step, until, was), text in zip(found, texts, strict=True)
        ]
        return changes, changes[-1].step if len(changes) == most else last

    def counts(self) -> dict[str, int]:
        """How many objects wait for the database, by collection."""
        with self._file.reading() as database:
            return dict(database.execute("SELECT collection, count(*) FROM loose WHERE was IS NOT NULL GROUP BY 1"))

    def sent(self, changes: Sequence[PendingChange], refused: Mapping[Key, LooseObject]) -> None:
        """The database has taken these changes, but for those that it has refused: there it has other states.

        What was changed here meanwhile is sent, too, and is judged by itself. A power cut may undo it: then these
        changes are sent again, and refused again.
        """
        with self._settled(), self._file.transaction(synced=False) as database:
            done = [
                each
                for each in changes
                if database.execute(
                    "UPDATE loose SET was = NULL WHERE collection = ? AND id = ? AND step = ?",
                    [each.collection, each.id, each.step],
                ).rowcount
            ]
            keys = [(each.collection, each.id) for each in done]
            self._accept(database, [refused[each] for each in keys if each in refused])

    def last_step(self) -> int:
        """That of the last change of this file."""
        with self._file.reading() as database:
            return _last_step(database)

    def read(self, objects: Sequence[LooseObject], heads: Mapping[str, int], since: int) -> None:
        """The database has had these, as far as `heads` say for each node, when this file had the step `since`.

        What has changed here later is left alone, as what waits for the database: that has its own word about it. A
        power cut may undo it, unless something ended: then they are read again.
        """
        ends = any(each.body is None for each in objects)
        with self._settled(), self._file.transaction(synced=ends) as database:
            own = "SELECT 1 FROM loose WHERE collection = ? AND id = ? AND (was IS NOT NULL OR step > ?)"
            fresh = [
                each for each in objects if not database.execute(own, [each.collection, each.id, since]).fetchone()
            ]
            self._accept(database, fresh)
            database.executemany("REPLACE INTO loose_heads VALUES (?, ?)", heads.items())

    def _accept(self, database: sqlite3.Connection, objects: Sequence[LooseObject]) -> None:
        before: dict[Key, Document | None] = {}
        changes = []
        for each in objects:
            key = each.collection, each.id
            known = before[key] = FleetStore.present(database, *key)
            if (None if known is None else known.body) != each.body:
                changes.append(Change(*key, -_note(database, key, each.until, None), each.body))
            elif not database.execute("SELECT 1 FROM loose WHERE collection = ? AND id = ?", key).fetchone():
                _note(database, key, each.until, None)
        if changes:
            self._write(changes, before)

    def heads(self) -> dict[str, int]:
        """How far this file has what each node has sent, by its id."""
        with self._file.reading() as database:
            return dict(database.execute("SELECT node, seq FROM loose_heads WHERE node <> ''"))

    def begin_anew(self) -> None:
        """The database is another than it was: all of it is read anew, and all that is known here is sent again."""
        with self._file.transaction() as database:
            database.execute("DELETE FROM loose_heads WHERE node <> ''")
            database.execute("UPDATE loose SET was = ? WHERE was IS NULL", [json.dumps([NOTHING])])

    def forget_ended(self) -> None:
        """Forget what has been over for long."""
        with self._file.transaction() as database:
            database.execute("DELETE FROM loose WHERE until < ?", [self._now() - FORGOTTEN])

    def _now(self) -> float:
        """By the clock that all nodes go by: what is over by that is so on each of them."""
        return self._clock() if self._outlet is None else self._outlet.time()


def digest(text: str) -> str:
    """Of a state, as the database makes it."""
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def _last_step(database: sqlite3.Connection) -> int:
    found = database.execute("SELECT seq FROM loose_heads WHERE node = ''").fetchone()
    return 0 if found is None else int(found[0])


def _note(database: sqlite3.Connection, key: Key, until: float, was: Sequence[str] | None) -> int:
    """The next step, which changes this object. With `was` it is to be sent, in the place of one of these states."""
    database.execute("INSERT INTO loose_heads VALUES ('', 1) ON CONFLICT (node) DO UPDATE SET seq = seq + 1")
    (step,) = database.execute("SELECT seq FROM loose_heads WHERE node = ''").fetchone()
    if was is not None:
        found = database.execute("SELECT was FROM loose WHERE collection = ? AND id = ?", key).fetchone()
        earlier = json.loads(found[0]) if found is not None and found[0] is not None else []
        was = list(dict.fromkeys([*earlier, *was]))
    text = None if was is None else json.dumps(was)
    database.execute("REPLACE INTO loose VALUES (?, ?, ?, ?, ?)", [*key, step, until, text])
    return int(step)


def _end_of(collection: str, body: Body) -> float:
    return float(body[_ENDS[collection]])


def _ends_sign_ins(before: Document | None, after: Body | None) -> bool:
    if before is None:
        return False
    same = after is not None and after["password_hash"] == before.body["password_hash"]
    return not same or (after or {}).get("status") != "active"
