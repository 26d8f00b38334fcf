"""What makes a fleet of a database, without an installation that is its first node."""

from __future__ import annotations

from uuid import UUID

from actors.cluster.database import Database
from api.cluster.roles import NodeLogin, begin_roles_within
from api.cluster.shared_ledger import insert_fleet


def create_fleet(database: Database, fleet: UUID, node: str, head: int = 0, history: int = 0) -> UUID:
    """As `insert_fleet`, in a transaction of its own; the fleet has no key."""
    with database.session() as session:
        session.begin("SELECT 1")
        stamp = insert_fleet(session, fleet, node, head, history, "")
        session.finish("SELECT 1")
    return stamp


def begin_roles(database: Database, first: NodeLogin) -> None:
    """As `begin_roles_within`, in a transaction of its own."""
    with database.session() as session:
        session.begin("SELECT 1")
        begin_roles_within(session, first)
        session.finish("SELECT 1")
