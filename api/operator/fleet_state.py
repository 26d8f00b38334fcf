"""How a node stands to its fleet, by its own files and the database, without the API."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from actors.sqlite import open_for_reading
from api.store import StoreError
from api.store.fleet_file import last_number, translated
from config.files.paths import DataDir
from config.files.secret_box import SecretBoxError, secret_box_of

if TYPE_CHECKING:  # in a fleet alone
    from actors.cluster.database import Database

NOT_INSTALLED = "psycopg, which a node of a fleet needs, is not installed: install proxyfleet[cluster]"
NO_NODE = "this installation is not a node of a fleet"
PATIENCE, AT_LEAST = 1.7, 0.5
"""Seconds since this process began in which the database has to say how it stands, for a person waits two at most; and
those that it has in any case."""
BEHIND = 10.0
"""Seconds after which a node that does not run is behind: one that runs catches up by itself."""

_WAITING = """
SELECT iif(collection = 'credentials', 'credentials', 'sign_ins'), count(*) FROM loose WHERE was IS NOT NULL GROUP BY 1
"""
_STATE = """
SELECT f.head,
    coalesce((SELECT extract(epoch FROM clock_timestamp() - c.at)::float8 FROM proxyfleet.commits c
        WHERE c.number > %s ORDER BY c.number LIMIT 1), 0),
    (SELECT h.problems -> 'database' ->> 'doorbell' FROM proxyfleet.heartbeats h
        WHERE h.node = %s AND h.at > clock_timestamp() - interval '15 s'),
    coalesce((SELECT max(a.seq) FROM proxyfleet.audit a WHERE a.node = %s), 0),
    f.key_fingerprint
FROM proxyfleet.fleet f
"""


@dataclass(frozen=True, slots=True)
class FleetState:
    """That of a node. `revision` is its last commit, `head` that of the fleet; what only the database says is None."""

    fleet: str
    node: str
    name: str
    role: str
    database: str
    connected: bool
    error: str | None
    revision: int
    head: int | None
    behind_seconds: float
    doorbell: str | None
    pending: dict[str, int]
    disk_free: int
    problem: str | None
    """Why it does not follow the fleet by itself, with the remedy."""


def patience(runs_for: float) -> float:
    """Seconds that the database has, when this process runs for so many."""
    return max(AT_LEAST, PATIENCE - runs_for)


def runs_for() -> float:
    """Seconds for which this process runs."""
    ticks = int(Path("/proc/self/stat").read_bytes().rpartition(b") ")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def state_of(data: DataDir, within: float) -> FleetState | None:
    """That of this installation; None when it stands alone. The database has so many seconds, connecting included.

    Raises `StoreError`.
    """
    if not data.node.exists():
        return None
    with loaded():
        from actors.cluster.database import Database
        from actors.cluster.errors import DatabaseError
        from actors.cluster.identity import identity_of
    try:
        seal = secret_box_of(data)
        identity = identity_of(data, seal)
        if identity is None:
            return None
        database, marks = Database(identity.dsn), seal.marks
    except (DatabaseError, SecretBoxError) as problem:
        raise StoreError(str(problem)) from problem
    with translated(data.fleet), closing(database), closing(open_for_reading(data.fleet)) as file:
        number = last_number(file)
        waiting = dict(file.execute(_WAITING))
        (last,) = file.execute("SELECT coalesce(max(seq), 0) FROM audit").fetchone()
        head, behind, doorbell, audited, key, error = None, 0.0, None, None, None, None
        try:
            found = _in_time(database, within, _STATE, [number, identity.id, identity.id])
            if found:
                ((head, behind, doorbell, audited, key),) = found
            else:
                error = "the database holds no fleet"
        except DatabaseError as problem:
            error = str(problem)
        if audited is not None:
            waiting["audit"] = max(0, last - audited)
        return FleetState(
            fleet=str(identity.fleet),
            node=identity.id,
            name=identity.name,
            role=identity.role,
            database=database.place,
            connected=error is None,
            error=error,
            revision=number,
            head=head,
            behind_seconds=round(behind, 1),
            doorbell=doorbell,
            pending=waiting,
            disk_free=shutil.disk_usage(data.path).free,
            problem=_problem(key if key and key not in marks else None, seal.path, behind if doorbell is None else 0.0),
        )


def _problem(missing: str | None, keys: Path, stands_behind: float) -> str | None:
    if missing is not None:
        asks = "while the product runs it asks full nodes for it, at the addresses `internal`"
        return f"the fleet's key {missing} is missing in {keys}: {asks}; else add it there"
    stands = "the product does not run on this node, so it takes no changes: start it"
    return stands if stands_behind > BEHIND else None


def _in_time(database: Database, within: float, statement: str, parameters: list[Any]) -> list[Any]:
    """What it responds within so many seconds. Raises `DatabaseError`."""
    from actors.cluster.errors import DatabaseUnavailable

    response = Future[list[Any]]()

    def ask() -> None:
        try:
            response.set_result(database.transaction(statement, parameters, within))
        except BaseException as error:  # noqa: BLE001 - it is raised for the one who waits
            response.set_exception(error)

    threading.Thread(target=ask, name="asking the database", daemon=True).start()
    try:
        return response.result(within)
    except TimeoutError:
        raise DatabaseUnavailable(f"{database.place}: does not respond, waited for {within:.1f} s") from None


@contextmanager
def loaded() -> Iterator[None]:
    """Within it the modules of a fleet are loaded. Raises `StoreError` where psycopg is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "psycopg":
            raise
        raise StoreError(NOT_INSTALLED) from None


def migrations_of(data: DataDir, dsn: str | None, dry_run: bool) -> tuple[list[str], float | None]:
    """Bring the schema forward, in the database of this node or in another one: by what.


    In a `dry_run` all of it is taken back; with the seconds that it takes, None when that is longer than it was tried
    for. Raises `StoreError`, `DatabaseError`, `SchemaRefused`.
    """
    if not dsn and not data.node.exists():
        raise StoreError(NO_NODE)
    with loaded():
        from actors.cluster.database import Database
        from actors.cluster.identity import identity_of
        from api.cluster.migration_runner import migrate, rehearse
    identity = identity_of(data, secret_box_of(data))
    with closing(Database(dsn or ("" if identity is None else identity.dsn))) as database:
        if dry_run:
            tried = rehearse(database)
            return [each.title for each in tried.missing], tried.seconds
        return [each.title for each in migrate(database, "" if identity is None else identity.id)], None
