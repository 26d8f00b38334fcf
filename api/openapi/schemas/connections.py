"""Views of live connections."""

from __future__ import annotations

from typing import Literal

from api.openapi.schemas.base import Moment, ResponseModel


class Connection(ResponseModel):
    """A live connection; `age` in seconds, rates in bytes per second.

    `parameters` are those of the user name, `pool` is that of the upstream `parent`. `tls_name`, `alpn` and
    `tls_version` are what the client's TLS handshake in a tunnel says.
    """

    id: str
    client: str
    user: str | None
    target: str | None
    parent: str | None
    credential: str | None
    source_address: str | None
    source_rule: str | None
    parameters: str | None
    pool: str | None
    listen_port: int
    tls_name: str | None
    alpn: str | None
    tls_version: str | None
    state: Literal["announcing", "idle", "authorizing", "connecting", "active", "closing", "tunnel", "datagrams"]
    started_at: Moment
    age: float
    bytes_in: int
    bytes_out: int
    rate_in: int
    rate_out: int


class Connections(ResponseModel):
    """A page of live connections."""

    connections: list[Connection]
    total: int


class Ended(ResponseModel):
    """An ended connection."""

    id: str
    ended: Literal[True]


class EndedMany(ResponseModel):
    """The number of ended connections."""

    ended: int


class FleetConnection(Connection):
    """A live connection with its proxy; `proxy` is its name."""

    proxy_id: str
    proxy: str


class ConnectionGroup(ResponseModel):
    """The connections with the same value of what they are grouped by; null are those that have none."""

    client: str | None = None
    account: str | None = None
    target: str | None = None
    proxy_id: str | None = None
    proxy: str | None = None
    count: int
    bytes_in: int
    bytes_out: int


class UnavailableProxy(ResponseModel):
    """A proxy whose process did not reply."""

    proxy_id: str
    proxy: str
    error: str


class FleetConnections(ResponseModel):
    """A page of `connections`, or with `group_by` of `groups`; `total` counts all pages."""

    connections: list[FleetConnection] | None = None
    groups: list[ConnectionGroup] | None = None
    total: int
    unavailable: list[UnavailableProxy]


class EndedFleet(EndedMany):
    """The number of ended connections, and the proxies whose connections may be open."""

    unavailable: list[UnavailableProxy]
