"""Live connections of a proxy: asked of its process, and ended there."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from actors.bus.messages.common import forwarding_name
from actors.bus.messages.forwarding import (
    CloseConnections,
    Connection,
    ConnectionFilter,
    Connections,
    Ended,
    QueryConnections,
)
from actors.forwarding.connections.table import SORTS
from api.bus_bridge import request
from api.errors import Invalid, NotFound
from api.http.call import Call, Reply
from config.model.access import read_network
from config.text.formatting import timestamp_text

FILTERS = ("client", "user", "target", "min_age")
EVERYTHING = ConnectionFilter()


def list_connections(call: Call) -> Reply:
    """List live connections.

    Returns the open connections of a proxy with client, account, target, age and bytes moved. Filters and order are
    given in the query.
    """
    call.query.refuse_others()
    question = QueryConnections(
        only=_filter(call),
        sort=call.query.one_of("sort", (*SORTS, *(f"-{name}" for name in SORTS))) or "-age",
        limit=call.query.integer("limit", 100, 1, 1000),
        offset=call.query.integer("offset", 0, 0, 1_000_000),
    )
    page = _ask(call, question, Connections((), 0))
    return Reply({"connections": [_shown(each) for each in page.connections], "total": page.total})


def end_connection(call: Call) -> Reply:
    """End a live connection.

    Ends one open connection at once. Its access record has the reason `ended_by_operator`.
    """
    connection_id = call.params["connection_id"]
    ended = _ask(call, CloseConnections(connection_id, EVERYTHING), Ended(0))
    if not ended.count:
        raise NotFound("The connection")
    return Reply({"id": connection_id, "ended": True})


def end_connections(call: Call) -> Reply:
    """End live connections by filter.

    Ends all open connections that match the filters, and returns how many there were. Without a filter, `all=true` is
    required.
    """
    call.query.refuse_others()
    everything = call.query.one_of("all", ("true", "false")) == "true"
    only = _filter(call)
    if only == EVERYTHING and not everything:
        raise Invalid("all", f"must be true to end all connections; or give one of {', '.join(FILTERS)}")
    if only != EVERYTHING and everything:
        raise Invalid("all", "must not be true when there is a filter")
    return Reply({"ended": _ask(call, CloseConnections(None, only), Ended(0)).count})


def _filter(call: Call) -> ConnectionFilter:
    query = call.query
    client = query.text("client")
    if client is not None:
        try:
            read_network(client)
        except ValueError as error:
            raise Invalid("client", str(error)) from error
    min_age = float(query.integer("min_age", 0, 0, 1_000_000_000))
    return ConnectionFilter(client, _part(call, "user"), _part(call, "target"), min_age)


def _part(call: Call, name: str) -> str | None:
    """A filter that is a text. An empty one may be a variable that somebody forgot to set."""
    text = call.query.text(name)
    if text == "":
        raise Invalid(name, "must not be empty")
    return text


def _ask(call: Call, message: Any, nothing: Any) -> Any:
    """The answer of the proxy's process: of the type of `nothing`, which stands for an inactive proxy's."""
    proxy = call.services.proxies.get(call.params["proxy_id"])
    if proxy.record.status == "inactive":
        return nothing
    return request(call.services.bridge, forwarding_name(proxy.record.id), message, type(nothing))


def _shown(connection: Connection) -> dict[str, Any]:
    return {
        **asdict(connection),
        "user": connection.user or None,
        "target": connection.target or None,
        "parent": connection.parent or None,
        "started_at": timestamp_text(connection.started_at),
        "age": math.floor(connection.age * 1000) / 1000,
        "rate_in": round(connection.rate_in),
        "rate_out": round(connection.rate_out),
    }
