"""The schema of the fleet's database, as numbered files of SQL, and the one way to bring it forward.

All that is missing runs in one transaction, which has a lock that poolers don't lose. A file that has run is never
altered: the database has its SHA-256.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

from actors.cluster.database import Database, DatabaseSession
from config import VERSION, OperatorError

DEADLINE = 60.0
"""Seconds of one migration."""
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
_IS_OWNER = "SELECT pg_has_role(nspowner, 'USAGE') FROM pg_namespace WHERE nspname = 'proxyfleet'"
# What the roles of nodes may do with the tables and functions that are new, if there are such roles.
_RIGHTS = """DO $$ BEGIN
    IF to_regprocedure('proxyfleet.set_rights()') IS NOT NULL THEN
        PERFORM proxyfleet.set_rights() FROM proxyfleet.fleet WHERE has_roles;
    END IF;
END $$"""


class SchemaRefused(OperatorError):
    """The schema of the database isn't one that this release can bring forward."""


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


@cache
def migrations() -> tuple[Migration, ...]:
    """Those of this release, in their order."""
    files = [each for each in (resources.files(__package__) / "migrations").iterdir() if each.name.endswith(".sql")]
    named = [(re.fullmatch(r"(\d{4})_(\w+)\.sql", each.name), each) for each in files]
    found = [Migration(int(match[1]), match[2], each.read_text("utf-8")) for match, each in named if match]
    return tuple(sorted(found, key=lambda each: each.number))


def pending(database: Database, known: Sequence[Migration] | None = None) -> list[Migration]:
    """What `migrate` would do. Raises as it does."""
    with database.session() as session:
        session.begin("SELECT 1")
        return _pending(session, known)


def migrate(database: Database, node: str, known: Sequence[Migration] | None = None) -> list[Migration]:
    """Bring the schema forward to the last of `known` (by default `migrations`); what that took.

    Raises `SchemaRefused`, and `DatabaseError`: then nothing was changed.
    """
    with database.session() as session:
        session.begin(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'; {ALONE}", (), DEADLINE)
        missing = _pending(session, known)
        if not missing:
            return []
        if missing[0].number == 1:
            session.go_on(_TABLE, None)
        ((is_owner,),) = session.go_on(_IS_OWNER)
        for each in missing:
            if is_owner:
                session.go_on(each.sql, None, DEADLINE)
            else:
                session.go_on("SELECT proxyfleet.run_as_owner(%s)", [each.sql], DEADLINE)
            row = [each.number, each.name, each.digest, VERSION, node]
            session.go_on(
                "INSERT INTO proxyfleet.migrations (number, name, sha256, version, node) VALUES (%s, %s, %s, %s, %s)",
                row,
            )
        session.finish(_RIGHTS)
    return missing


def _pending(session: DatabaseSession, known: Sequence[Migration] | None) -> list[Migration]:
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
            raise SchemaRefused(
                f"the database was brought forward to {number}_{name} by release {version}, not this one"
            )
        if same.digest != digest:
            raise SchemaRefused(f"the migration {number}_{name} of release {version} is another than that of this one")
    done = {number for number, *_ in there}
    return [each for each in ours if each.number not in done]
