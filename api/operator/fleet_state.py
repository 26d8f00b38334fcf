"""How a node stands to its fleet, by its own files and the database, without the API."""

from __future__ import annotations

import shutil
from contextlib import closing
from dataclasses import dataclass

from actors.sqlite import open_for_reading
from api.operator.cluster import NO_NODE, loaded, node_of
from api.store import StoreError
from api.store.fleet_file import last_number, translated
from config.files.paths import DataDir

BEHIND = 10.0
"""Seconds behind the fleet from which a node isn't current."""

_STATE = """
SELECT f.head,
    coalesce((SELECT extract(epoch FROM clock_timestamp() - c.at)::float8 FROM proxyfleet.commits c
        WHERE c.number > %s ORDER BY c.number LIMIT 1), 0),
    (SELECT h.problems -> 'database' ->> 'doorbell' FROM proxyfleet.heartbeats h
        WHERE h.node = %s AND h.at > clock_timestamp() - interval '15 s'),
    coalesce((SELECT max(a.seq) FROM proxyfleet.audit a WHERE a.node = %s), 0)
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


def state_of(data: DataDir) -> FleetState | None:
    """That of this installation; None when it stands alone. Raises `StoreError`."""
    node = node_of(data)
    if node is None:
        return None
    from actors.cluster.errors import DatabaseError

    with translated(data.fleet), closing(node), closing(open_for_reading(data.fleet)) as file:
        number = last_number(file)
        waiting = dict(file.execute("SELECT collection, count(*) FROM loose WHERE was IS NOT NULL GROUP BY 1"))
        (last,) = file.execute("SELECT coalesce(max(seq), 0) FROM audit").fetchone()
        head, behind, doorbell, audited, error = None, 0.0, None, None, None
        try:
            with node.database.session() as session:
                found = session.transaction(_STATE, [number, node.node_id, node.node_id])
            if found:
                ((head, behind, doorbell, audited),) = found
            else:
                error = "the database holds no fleet"
        except DatabaseError as problem:
            error = str(problem)
        if audited is not None:
            waiting["audit"] = max(0, last - audited)
        identity = node.identity
        return FleetState(
            fleet=str(identity.fleet),
            node=identity.id,
            name=identity.name,
            role=identity.role,
            database=node.database.place,
            connected=error is None,
            error=error,
            revision=number,
            head=head,
            behind_seconds=round(behind, 1),
            doorbell=doorbell,
            pending=waiting,
            disk_free=shutil.disk_usage(data.path).free,
        )


def migrations_of(data: DataDir, dsn: str | None, dry_run: bool) -> tuple[list[str], float | None]:
    """Bring the schema forward, in the database of this node or in another one: by what.

    In a `dry_run` all of it is taken back; with the seconds that it takes, None when that is longer than it was tried
    for. Raises `StoreError`, `DatabaseError`, `SchemaRefused`.
    """
    node = node_of(data)
    if node is None and not dsn:
        raise StoreError(NO_NODE)
    with loaded():
        from actors.cluster.database import Database
        from api.cluster.migration_runner import migrate, rehearse
    with closing(Database(dsn) if dsn else node.database) as database:  # type: ignore[union-attr]  # as above
        if dry_run:
            tried = rehearse(database)
            return [each.title for each in tried.missing], tried.seconds
        return [each.title for each in migrate(database, "" if node is None else node.node_id)], None
