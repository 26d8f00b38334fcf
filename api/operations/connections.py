"""The live connections of a proxy."""

from __future__ import annotations

from api.openapi.schemas.proxies import Connections, Ended, EndedMany
from api.operations.operation import PROXY, delete, get, resource
from api.resources import connections

TABLE = resource(f"{PROXY}/connections", read="proxy.read", write="proxy.write")(
    get("", "listConnections", connections.list_connections, Connections, query=connections.ListConnections),
    delete(
        "",
        "endConnections",
        connections.end_connections,
        EndedMany,
        query=connections.EndConnections,
        audit="proxy.connections_ended",
    ),
    delete("/{connection_id}", "endConnection", connections.end_connection, Ended, audit="proxy.connection_ended"),
)
