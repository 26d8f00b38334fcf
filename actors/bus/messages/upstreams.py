"""Upstream proxies: their configuration and their state."""

from __future__ import annotations

from dataclasses import field

from actors.bus.codec import message


@message
class UpstreamSpec:
    """One upstream proxy. A value, not a message by itself.

    `name` is what the API calls it, `protocol` as of a proxy. `username` None: it wants no credentials. `verify`,
    `ca_file` and `server_name` are for `https` upstreams; `proxy_protocol` is `v1`, `v2` or None. `weight` is 1 to 100.
    `labels` are names and texts; only upstreams of pools have some.
    """

    name: str
    protocol: str
    host: str
    port: int
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    weight: int = 1
    verify: bool = True
    ca_file: str | None = None
    server_name: str | None = None
    proxy_protocol: str | None = None
    labels: tuple[tuple[str, str], ...] = ()


@message
class UpstreamsSpec:
    """The upstreams of a proxy and how one is chosen. A value, not a message by itself.

    `policy` is `failover`, `round_robin`, `least_connections` or `sticky`, of a pool also `latency`. Without
    `entries` targets are connected to directly. `check_timeout` is for reaching an upstream, by traffic as well.
    With a `check_url` checks request that through the upstream, and its response has to have the status `check_expect`.
    `fetched`: they come from a source, and none of them is a proxy of this service.
    """

    entries: tuple[UpstreamSpec, ...] = ()
    policy: str = "failover"
    check_enabled: bool = True
    check_interval: float = 30.0
    check_timeout: float = 5.0
    check_url: str = ""
    check_expect: int = 204
    fetched: bool = False


@message
class QueryUpstreams:
    """API → forwarding actor: the state of the upstreams. → `Upstreams`."""


@message
class UpstreamState:
    """The state of one upstream. A value, not a message by itself.

    `state` is `up`, `down` or `unknown` (not used or checked yet), since `since`. `connections` and `active` count
    uses by clients, `failures` failed attempts and checks; bytes are of uses that are over. `latency` is the
    milliseconds that clients wait for it lately, None before the first.
    """

    name: str
    state: str
    since: float
    active: int
    connections: int
    failures: int
    bytes_in: int
    bytes_out: int
    latency: float | None
    last_error: str | None


@message
class Upstreams:
    """Forwarding actor → API: the upstreams in their order."""

    states: tuple[UpstreamState, ...]
