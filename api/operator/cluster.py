"""This installation as a node of a fleet: the one place that loads what only a fleet needs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from api.engine.commit import Engine, open_engine
from api.store import StoreError
from config.files.paths import DataDir
from config.files.secret_box import SecretBoxError, secret_box_of

if TYPE_CHECKING:  # in a fleet alone
    from api.cluster.fleet_node import FleetNode

NOT_INSTALLED = "psycopg, which a node of a fleet needs, is not installed: install proxyfleet[cluster]"


def node_of(data: DataDir) -> FleetNode | None:
    """What this installation is in its fleet; None when it stands alone. Needs no database. Raises `StoreError`."""
    if not data.node.exists():
        return None
    try:
        from actors.cluster.errors import DatabaseError
        from actors.cluster.identity import identity_of
        from api.cluster.fleet_node import FleetNode
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "psycopg":
            raise
        raise StoreError(f"{data.node}: {NOT_INSTALLED}") from None
    try:
        identity = identity_of(data, secret_box_of(data))
        return None if identity is None else FleetNode(identity)
    except (DatabaseError, SecretBoxError) as error:
        raise StoreError(str(error)) from error


@contextmanager
def offline_engine(data: DataDir, operation: str) -> Iterator[Engine]:
    """The engine for a change by the command line without the API; in a fleet it is a change of the fleet.

    The caller holds the lock of the data directory. Raises `StoreError`.
    """
    node = node_of(data)
    try:
        with open_engine(data, "command_line", operation, None if node is None else node.ledger) as engine:
            if node is not None:
                node.opened(engine)
            yield engine
    finally:
        if node is not None:
            node.close()
