"""The live connections of a proxy."""

from __future__ import annotations

from api import queries
from api.operations.operation import PROXY, Operation
from api.resources import connections

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "GET",
        f"{PROXY}/connections",
        "proxy.read",
        "listConnections",
        "List live connections",
        connections.list_connections,
        query=queries.LIST_CONNECTIONS,
    ),
    Operation(
        "DELETE",
        f"{PROXY}/connections",
        "proxy.write",
        "endConnections",
        "End the connections that match",
        connections.end_connections,
        query=queries.END_CONNECTIONS,
    ),
    Operation(
        "DELETE",
        f"{PROXY}/connections/{{connection_id}}",
        "proxy.write",
        "endConnection",
        "End one connection",
        connections.end_connection,
    ),
)
