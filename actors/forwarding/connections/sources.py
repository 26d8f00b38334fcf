"""Where the requests of a client leave from, where the configuration gives several addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actors.forwarding.connections.client_connection import ClientConnection
from actors.forwarding.limits.meter import account_of
from actors.forwarding.net.connection_pool import Key, OriginConnection
from actors.forwarding.net.egress import Requested
from actors.forwarding.net.source_address import Source, may_serve
from actors.forwarding.protocols.http.targets import Authority

if TYPE_CHECKING:
    from actors.forwarding.policies.judge import Verdict


def source_of(client: ClientConnection, verdict: Verdict | None) -> Source | None:
    """Where the request of a client leaves from by what policies say; None: from where all of the proxy do."""
    sources, account = client.context.sources, account_of(client.meter)
    stated = sources.stated(verdict, account)
    return sources.source(stated, requested(client), account) if stated.entries else None


def requested(client: ClientConnection) -> Requested:
    """Who sends the request that a client connection serves."""
    request = client.request
    parameters = request.parameters
    session, rotate, ttl = parameters.session or "", parameters.rotate, parameters.ttl
    return Requested(client.client_ip, request.user, session, rotate, ttl)


def bound_from(client: ClientConnection, origin: OriginConnection, source: Source | None) -> bool:
    """Whether the client's own kept connection left from where the request is to leave from; else it is closed."""
    if may_serve(origin.source, source):
        return True
    client.context.pool.release(origin)
    return False


def key_of(target: Authority, source: Source | None) -> Key:
    """By what an idle connection to the target is found again."""
    return (target.host if source is None else source.key(target.host), target.port)
