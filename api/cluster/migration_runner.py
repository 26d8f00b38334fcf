"""The schema of the fleet's database, as numbered files of SQL, and the one way to bring it forward.

All that is missing runs in one transaction, which has a lock that poolers don't lose. A file that has run is never
altered: the database has its SHA-256.

**Functions that change** from one release to the next have files in `migrations/functions`, which may be altered: all
of them run again behind the numbered files. So a release that alters one adds a number, too, if need be an empty file.

**From one release to the next the schema only gains**: tables, columns with defaults, functions beside those that
there are. So nodes of the former release go on, and the first full node of the new one brings the schema forward by
itself (`SchemaUpkeep`). A file whose first line begins with `-- removes` runs by itself only when no node was seen for
24 h whose program lacks that file; files behind it need nothing of it.
"""

from __future__ import annotations

import hashlib
import logging
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import resources

from actors.cluster.database import Database, DatabaseSession
from actors.cluster.errors import DatabaseBusy, DatabaseDeadlock, DatabaseError
from api.cluster.following.heartbeat import Beat
from config import VERSION, OperatorError

log = logging.getLogger(__name__)

DEADLINE = 60.0
"""Seconds of one migration."""
REHEARSAL = 2.0
"""Seconds for which it is tried what migrations take, each of them: changes wait meanwhile."""
AGAIN = 3_600.0
"""Seconds until a node looks again whether something may be removed."""
TRIES = 3
"""How often a node tries at once; then at each heartbeat."""
LOCK_TIMEOUT = "5s"
LOCK = 7_075_663_081
"""The number of the lock, ours alone in the fleet's database."""
ALONE = f"SELECT pg_advisory_xact_lock({LOCK})"
"""Within a transaction: no other one does this meanwhile."""
_TABLE = """
CREATE SCHEMA proxyfleet;
CREATE TABLE proxyfleet.migrations (
    number integer PRIMARY KEY, name text NOT NULL, sha256 text NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp(), version text NOT NULL, node text NOT NULL
)
"""
# Changes take the lock of the fleet first, and heartbeats that table: so neither holds what a migration needs next.
_HOLD = "LOCK TABLE proxyfleet.heartbeats, proxyfleet.fleet IN ACCESS EXCLUSIVE MODE"
# What edges have begun ends, and they do it again: a stolen one could keep for minutes what is waited for here.
_NO_EDGES, _ENDS_EDGES = "SELECT proxyfleet.end_long_edges('0 s', '0 s')", 8
_MAY_REMOVE = """
SELECT NOT EXISTS (
    SELECT FROM proxyfleet.heartbeats h
    WHERE coalesce(h.schema, 0) < %s AND h.at > clock_timestamp() - interval '24 h'
)
"""
_IS_OWNER = "SELECT pg_has_role(nspowner, 'USAGE') FROM pg_namespace WHERE nspname = 'proxyfleet'"
# What the roles of nodes may do with the tables and functions that are new, if there are such roles.
_RIGHTS = """DO $$ BEGIN
    IF to_regprocedure('proxyfleet.set_rights()') IS NOT NULL THEN
        PERFORM proxyfleet.set_rights() FROM proxyfleet.fleet WHERE has_roles;
    END IF;
END $$"""


class SchemaRefused(OperatorError):
    """The schema of the database isn't one that this release can bring forward."""


class SchemaOfLaterRelease(SchemaRefused):
    """A later release has brought the schema forward."""


@dataclass(frozen=True, slots=True)
class Migration:
    """One file."""

    number: int
    name: str
    sql: str

    @property
    def digest(self) -> str:
        """Its SHA-256, in hex."""
        return hashlib.sha256(self.sql.encode()).hexdigest()

    @property
    def title(self) -> str:
        """As people see it."""
        return f"{self.number:04}_{self.name}{' (removes something)' if self.removes else ''}"

    @property
    def removes(self) -> bool:
        """Whether nodes of the former release may need what it removes."""
        return self.sql.startswith("-- removes")


@cache
def migrations() -> tuple[Migration, ...]:
    """Those of this release, in their order."""
    files = [each for each in (resources.files(__package__) / "migrations").iterdir() if each.name.endswith(".sql")]
    named = [(re.fullmatch(r"(\d{4})_(\w+)\.sql", each.name), each) for each in files]
    found = [Migration(int(match[1]), match[2], each.read_text("utf-8")) for match, each in named if match]
    return tuple(sorted(found, key=lambda each: each.number))


@cache
def functions() -> str:
    """The statements that make all functions which have files of their own."""
    files = [*(resources.files(__package__) / "migrations" / "functions").iterdir()]
    return "".join(each.read_text("utf-8") for each in sorted(files, key=lambda each: each.name))


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """What `migrate` would do, and the seconds for which it has locks; None when that is more than `REHEARSAL`."""

    missing: tuple[Migration, ...]
    seconds: float | None


def rehearse(database: Database, known: Sequence[Migration] | None = None) -> Rehearsal:
    """Do what `migrate` would do, and take it back. Raises as it does."""
    with database.session() as session:
        session.begin(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'; {ALONE}", (), DEADLINE)
        missing = tuple(missing_within(session, known))
        session.go_on(f"SET LOCAL statement_timeout = '{REHEARSAL:g}s'")
        began = time.monotonic()
        try:
            _hold_others(session, missing)
            for each in missing:
                _run(session, each, "")
            _renew_functions(session, missing)
        except DatabaseBusy:
            return Rehearsal(missing, None)
        return Rehearsal(missing, time.monotonic() - began)


def migrate(
    database: Database, node: str, known: Sequence[Migration] | None = None, by_itself: bool = False
) -> list[Migration]:
    """Bring the schema forward to the last of `known` (by default `migrations`); what that took.

    `by_itself` without what nodes of the former release may need. Raises `SchemaRefused`, and `DatabaseError`: then
    nothing was changed.
    """
    tries = TRIES
    while True:
        tries -= 1
        try:
            return _migrated(database, node, known, by_itself)
        except DatabaseDeadlock:  # others may take what is locked here in another order
            if not tries:
                raise


def _migrated(database: Database, node: str, known: Sequence[Migration] | None, by_itself: bool) -> list[Migration]:
    with database.session() as session:
        session.begin(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'; {ALONE}", (), DEADLINE)
        missing = missing_within(session, known)
        if missing and missing[0].number > _ENDS_EDGES:
            _as_owner(session, _NO_EDGES)
        _hold_others(session, missing)
        done = []
        for each in sorted(missing, key=lambda each: (each.removes and by_itself, each.number)):
            if each.removes and by_itself and not session.go_on(_MAY_REMOVE, [each.number])[0][0]:
                continue
            _run(session, each, node)
            done.append(each)
        if done:
            _renew_functions(session, done)
            _as_owner(session, _RIGHTS)
            session.finish("SELECT 1")
    return done


def _hold_others(session: DatabaseSession, missing: Sequence[Migration]) -> None:
    """Within a transaction that is to do these: from here on others wait."""
    if missing and missing[0].number > 2:
        session.go_on(_HOLD)


def _as_owner(session: DatabaseSession, statements: str) -> None:
    ((is_owner,),) = session.go_on(_IS_OWNER)
    if is_owner:
        session.go_on(statements, None, DEADLINE)
    else:
        session.go_on("SELECT proxyfleet.run_as_owner(%s)", [statements], DEADLINE)


def _run(session: DatabaseSession, migration: Migration, node: str) -> None:
    """Within a transaction."""
    if migration.number == 1:
        session.go_on(_TABLE, None)
    _as_owner(session, migration.sql)
    row = {
        "number": migration.number, "name": migration.name, "sha256": migration.digest, "version": VERSION,
        "node": node, **({"removes": True} if migration.removes else {}),
    }  # fmt: skip
    places = ", ".join(["%s"] * len(row))
    session.go_on(f"INSERT INTO proxyfleet.migrations ({', '.join(row)}) VALUES ({places})", [*row.values()])  # noqa: S608 - ours


def _renew_functions(session: DatabaseSession, done: Sequence[Migration]) -> None:
    """Within a transaction that has done these: functions are those of this program, if the schema is."""
    if any(each.number >= migrations()[-1].number for each in done):
        _as_owner(session, f"{functions()}; REVOKE ALL ON ALL FUNCTIONS IN SCHEMA proxyfleet FROM PUBLIC")


def missing_within(session: DatabaseSession, known: Sequence[Migration] | None = None) -> list[Migration]:
    """Within a transaction: those that have not run."""
    ours = migrations() if known is None else known
    ((schema, table),) = session.go_on("SELECT to_regnamespace('proxyfleet'), to_regclass('proxyfleet.migrations')")
    if table is None:
        if schema is not None:
            raise SchemaRefused("the database has a schema proxyfleet that is not Proxyfleet's")
        return [*ours]
    there = session.go_on("SELECT number, name, sha256, version FROM proxyfleet.migrations ORDER BY number")
    for number, name, digest, version in there:
        same = next((each for each in ours if each.number == number), None)
        if same is None:
            raise SchemaOfLaterRelease(
                f"the database was brought forward to {number}_{name} by release {version}, not this one"
            )
        if same.digest != digest:
            raise SchemaRefused(f"the migration {number}_{name} of release {version} is another than that of this one")
    done = {number for number, *_ in there}
    return [each for each in ours if each.number not in done]


class SchemaUpkeep:
    """Brings the schema forward by itself, as far as that goes, once a full node has a later program. Changes wait.

    Thread-safe. Learns from heartbeats, and does it in a thread of its own.
    """

    def __init__(
        self,
        database: Database,
        node: str,
        wait: Callable[[str], object],
        known: Sequence[Migration] | None = None,
    ) -> None:
        """`wait` has changes wait for this reason, and no more when it is empty."""
        self._database = database
        self._node = node
        self._wait = wait
        self._known = migrations() if known is None else known
        self._at_work = threading.Lock()
        self._due = 0.0
        self._problem = ""
        self._ended = threading.Event()

    @property
    def last(self) -> int:
        """The last migration that the program knows."""
        return self._known[-1].number

    def heartbeat_fields(self) -> Mapping[str, int]:
        """For the heartbeat."""
        return {"schema": self.last}

    def on_heartbeat(self, beat: Beat) -> None:
        """What the heartbeat has learnt."""
        there = beat.reply.get("schema") or 0
        if there > self.last or self._ended.is_set():
            return
        is_behind = any(each.number > there and not each.removes for each in self._known)
        if is_behind:
            self._wait(self._problem or "the schema of the database is brought forward at this moment")
        if (is_behind or time.monotonic() >= self._due) and self._at_work.acquire(blocking=False):
            threading.Thread(target=self._work, name="schema", daemon=True).start()

    def close(self) -> None:
        """Begin nothing any more. What is under way is one transaction."""
        self._ended.set()

    def _work(self) -> None:
        self._due = time.monotonic() + AGAIN  # also when it fails: what is behind is brought forward at each heartbeat
        try:
            done = self._migrated()
        except SchemaOfLaterRelease:
            self._wait("")
        except (DatabaseError, SchemaRefused) as error:
            problem = f"the schema of the database can't be brought forward: {error}"
            if problem != self._problem:
                log.error("%s", problem)
            self._problem = problem
            if isinstance(error, SchemaRefused):
                self._wait(problem)
        else:
            self._problem = ""
            if done:
                names = ", ".join(each.title for each in done)
                log.warning("the schema of the database was brought forward: %s", names)
            self._wait("")
        finally:
            self._at_work.release()

    def _migrated(self) -> list[Migration]:
        for _ in range(TRIES - 1):
            with suppress(DatabaseBusy):
                return migrate(self._database, self._node, self._known, by_itself=True)
        return migrate(self._database, self._node, self._known, by_itself=True)
