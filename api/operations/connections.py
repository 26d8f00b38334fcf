"""The live connections of a proxy, and of all."""

from __future__ import annotations

from api.engine.operation import PROXY, V1, delete, get, resource
from api.openapi.schemas.connections import Connections, Ended, EndedFleet, EndedMany, FleetConnections
from api.resources import connections, fleet_connections

_OF_ALL = resource(f"{V1}/connections", read="proxy.read", write="proxy.write")(
    get(
        "",
        "listFleetConnections",
        fleet_connections.list_connections,
        FleetConnections,
        query=fleet_connections.ListFleetConnections,
        errors=(404,),
        scoped=True,
    ),
    delete(
        "",
        "endFleetConnections",
        fleet_connections.end_connections,
        EndedFleet,
        query=fleet_connections.EndFleetConnections,
        errors=(404,),
        scoped=True,
        audit="proxy.connections_ended",
    ),
)

_OF_ONE = resource(f"{PROXY}/connections", read="proxy.read", write="proxy.write")(
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

TABLE = (*_OF_ALL, *_OF_ONE)
