"""The live connections of a proxy."""

from __future__ import annotations

from api.openapi.schemas.proxies import Connections, Ended, EndedMany
from api.operations import query_parameters
from api.operations.operation import PROXY, delete, get, resource
from api.resources import connections

TABLE = resource(f"{PROXY}/connections", read="proxy.read", write="proxy.write")(
    get("", "listConnections", connections.list_connections, Connections, query=query_parameters.LIST_CONNECTIONS),
    delete(
        "",
        "endConnections",
        connections.end_connections,
        EndedMany,
        query=query_parameters.END_CONNECTIONS,
        audit="proxy.connections_ended",
    ),
    delete("/{connection_id}", "endConnection", connections.end_connection, Ended, audit="proxy.connection_ended"),
)
