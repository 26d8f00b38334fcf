"""The live connections of a proxy."""

from __future__ import annotations

from api.operations import query_parameters
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
        description=(
            "Returns the open connections of a proxy with client, account, target, age and bytes moved. Filters "
            "and order are given in the query."
        ),
        query=query_parameters.LIST_CONNECTIONS,
    ),
    Operation(
        "DELETE",
        f"{PROXY}/connections",
        "proxy.write",
        "endConnections",
        "End live connections by filter",
        connections.end_connections,
        description=(
            "Ends all open connections that match the filters, and returns how many there were. Without a "
            "filter, `all=true` is required."
        ),
        query=query_parameters.END_CONNECTIONS,
    ),
    Operation(
        "DELETE",
        f"{PROXY}/connections/{{connection_id}}",
        "proxy.write",
        "endConnection",
        "End a live connection",
        connections.end_connection,
        description=("Ends one open connection at once. Its access record has the reason `ended_by_operator`."),
    ),
)
