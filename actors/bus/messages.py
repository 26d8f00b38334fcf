"""Everything that is said on the mailbox and on the events plane: one small class each.

Each docstring says who sends it to whom, when, and what answers. A message that is asked is always answered: by what
its docstring names, by `Failed` when the receiver could not do it, or by `Unreachable` when there is no receiver.
Times are Unix seconds, durations seconds, sizes bytes.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

from actors.bus.codec import message

SUPERVISOR = "supervisor"
API = "api"
METRICS = "metrics"
LOGS = "logs"
WEBHOOKS = "webhooks"


def forwarding_name(proxy_id: str) -> str:
    """The actor name, and so the routing id, of the forwarding actor of a proxy."""
    return f"forwarding.{proxy_id}"


# --- what may answer anything -------------------------------------------------------------------------------------


@message
class Done:
    """Receiver → asker: it is done, there is nothing more to say."""


@message
class Failed:
    """Receiver → asker: it could not be done. `field` names the part of the request at fault, or is None."""

    error: str
    field: str | None = None


@message
class Unreachable:
    """Supervisor → asker, at once: nobody called `actor` is on the bus, or its queue is full."""

    actor: str
    reason: str


# --- every actor and the supervisor -------------------------------------------------------------------------------


@message
class Hello:
    """Actor → supervisor, once at its start when it is ready for work. `instance` is the number of this start."""

    instance: int
    pid: int


@message
class Stop:
    """Supervisor → actor: finish within `drain` seconds and end. A forwarding actor stops accepting at once.

    Answered by `Done` as soon as nothing new is accepted any more, not at the end.
    """

    drain: float


@message
class SetLogLevel:
    """Supervisor → actor: `logging.level` has changed. Nothing answers."""

    level: str


@message
class Trouble:
    """Forwarding actor → supervisor: an error that it outlives (out of descriptors, …), at most once a minute each.

    `what` is one word for machines, `detail` a sentence.
    """

    what: str
    detail: str


@message
class SetSettings:
    """Supervisor → API: the operator's settings were read again. Nothing answers.

    `settings` is what `Settings.model_dump(mode="json")` gives without secrets; the API takes over what it can
    change while it runs: lifetimes of tokens, rate limits, the limit of failed sign-ins, defaults of proxies.
    """

    settings: dict[str, Any]


# --- the wish: what should run ------------------------------------------------------------------------------------


@message
class AccessSpec:
    """The access rules of a proxy, as `config.access` reads their entries. A value, not a message by itself.

    `mode` is `enforce` or `report`.
    """

    allow_clients: tuple[str, ...] = ()
    deny_clients: tuple[str, ...] = ()
    allow_destinations: tuple[str, ...] = ()
    deny_destinations: tuple[str, ...] = ()
    mode: str = "enforce"


@message
class ProxySpec:
    """What a proxy should be, as the forwarding actor and the supervisor need it. A value, not a message by itself.

    `revision` is the store's: the greater one wins. `timeout` is for connecting and for idleness.
    `auth_hash` is bcrypt over the pre-hashed password, with `auth_username` None when no credentials are wanted.
    `tls` is the proxy's own certificate and key file, None for those of `server.tls`.
    """

    id: str
    name: str
    host: str
    port: int
    protocol: str
    active: bool
    revision: int
    timeout: float
    keep_alive: bool
    max_connections: int
    auth_username: str | None
    auth_hash: str | None
    tls: tuple[str, str] | None = None
    access: AccessSpec = AccessSpec()


@message
class EgressSpec:
    """The egress guard's orders. A value, not a message by itself.

    `policy` is `public_only` or `off`; `allow` lists CIDRs and names that are excepted; `own` lists the addresses of
    the product's own listeners and API, `(host, port)`, which are refused in any case.
    """

    policy: str
    allow: tuple[str, ...]
    own: tuple[tuple[str, int], ...]


@message
class ReserveListener:
    """API → supervisor, before a proxy is stored or started: bind the listening socket and hold it.

    Answered by `ListenerReserved` or `ListenerRefused`. What is not followed by `PutProxy` within ten seconds is let
    go. A socket that the supervisor already holds for this proxy at this address is a success.
    """

    proxy_id: str
    host: str
    port: int


@message
class ListenerReserved:
    """Supervisor → API: the socket is bound and listening."""

    host: str
    port: int


@message
class ListenerRefused:
    """Supervisor → API: the address can't be bound. `field` is `host` or `port`; `error` is a sentence."""

    field: str
    error: str


@message
class PutProxy:
    """API → supervisor, after the store has it: this is the wish for one proxy from now on. Answered by `Done`.

    The answer to one that is inactive comes when its listener is closed. An older revision than the known is ignored.

    An active one that has no socket yet is bound; when that fails its runtime becomes `failed`.
    """

    spec: ProxySpec


@message
class RemoveProxy:
    """API → supervisor, after the store has it: this proxy is gone. Answered by `Done` when its listener is closed."""

    proxy_id: str


@message
class RestartProxy:
    """API → supervisor: a new process on the same socket; the old one drains.

    Answered by `Done` when the new process has taken over, or after four seconds while it still starts; by `Failed`
    when it died at its start (then the old one goes on), or when the proxy is unknown or inactive.
    """

    proxy_id: str


@message
class PutWish:
    """API → supervisor, at the API's start: the whole wish, in place of what the supervisor remembers. → `Done`."""

    specs: tuple[ProxySpec, ...]


@message
class DescribeFleet:
    """API → supervisor: what is really so? `proxy_ids` empty means all. Answered by `Fleet`."""

    proxy_ids: tuple[str, ...]


@message
class Runtime:
    """What is really so with one actor. A value, not a message by itself.

    `state` is `starting`, `running`, `draining`, `failed` or `stopped`; `since` is when it entered that state;
    `restarts` counts starts that were not asked for.
    """

    state: str
    pid: int | None
    since: float
    restarts: int
    error: str | None


@message
class Fleet:
    """Supervisor → API: the runtime of proxies by proxy id, and of the other actors by name."""

    proxies: dict[str, Runtime]
    actors: dict[str, Runtime]
    started_at: float


# --- the supervisor or the API and a forwarding actor -------------------------------------------------------------


@message
class Configure:
    """Supervisor → forwarding actor, at its hello and at every change: holds for new connections, drops none."""

    spec: ProxySpec
    egress: EgressSpec


@message
class AdmitTester:
    """API → forwarding actor: let one test in. The credentials `user`, `token` are good once within `ttl`. → `Done`."""

    user: str
    token: str
    ttl: float


@message
class Explain:
    """API → forwarding actor: what would happen to a request? Answered by `Explanation` or `Failed` (a bad target).

    `user` None means somebody with good credentials. No connection is made.
    """

    client_ip: str
    user: str | None
    target: str


@message
class ExplainedAddress:
    """What is decided about one address of a target. A value, not a message by itself. `decision`: `allow`, `deny`."""

    address: str
    decision: str
    reason: str
    rule: str


@message
class Explanation:
    """Forwarding actor → API: the decision, the word for it, and what decided at which stage (`explain.py`)."""

    decision: str
    reason: str
    rule: str
    stage: str
    mode: str
    host: str
    port: int
    addresses: tuple[ExplainedAddress, ...]


@message
class ConnectionFilter:
    """Which connections: all that every given part matches. A value, not a message by itself.

    `client` is an address or a network, `user` exact, `target` a part of it, `min_age` seconds.
    """

    client: str | None = None
    user: str | None = None
    target: str | None = None
    min_age: float = 0.0


@message
class QueryConnections:
    """API → forwarding actor: what is open? A page of at most 1,000. Answered by `Connections`, after up to a second.

    `sort` is one of `connections.SORTS`, with `-` before it for the greatest first.
    """

    only: ConnectionFilter
    sort: str
    limit: int
    offset: int


@message
class Connection:
    """One live connection of a client. A value, not a message by itself.

    `state` is `idle`, `authorizing`, `connecting`, `active`, `closing` or `tunnel`; rates are bytes per second.
    """

    id: str
    client: str
    user: str
    target: str
    state: str
    started_at: float
    age: float
    bytes_in: int
    bytes_out: int
    rate_in: float
    rate_out: float


@message
class Connections:
    """Forwarding actor → API: a page, and how many match in all."""

    connections: tuple[Connection, ...]
    total: int


@message
class EndConnections:
    """API → forwarding actor: end what matches; `id` None means whichever. Answered by `Ended`."""

    id: str | None
    only: ConnectionFilter


@message
class Ended:
    """Forwarding actor → API: so many connections were ended."""

    count: int


# --- counters and statistics --------------------------------------------------------------------------------------


@message
class Counters:
    """Forwarding actor → events plane, topic `counters.<proxy id>`: cumulative since its start.

    Every second while they change, else every five seconds.

    `bytes_in` is what clients sent, `bytes_out` what they received. `response_seconds` is the sum over `requests`.
    `last_request` is 0 when there was none. `refusals` counts by reason what guard and access rules refused, `reported`
    what rules in report mode would have refused.
    """

    proxy_id: str
    instance: int
    requests: int
    errors: int
    denied: int
    auth_failures: int
    connections: int
    active_connections: int
    bytes_in: int
    bytes_out: int
    response_seconds: float
    last_request: float
    records_dropped: int
    refusals: dict[str, int] = field(default_factory=dict)
    reported: dict[str, int] = field(default_factory=dict)


@message
class QueryStats:
    """API → metrics collector: the totals of these proxies, of all when empty. Answered by `Stats`."""

    proxy_ids: tuple[str, ...]


@message
class ProxyStats:
    """The totals of one proxy over all its processes. A value, not a message by itself."""

    requests: int
    errors: int
    denied: int
    auth_failures: int
    active_connections: int
    connections: int
    bytes_in: int
    bytes_out: int
    response_seconds: float
    last_request: float


@message
class Stats:
    """Metrics collector → API: totals by proxy id; a proxy without traffic may be absent."""

    proxies: dict[str, ProxyStats]


@message
class QuerySystem:
    """API → metrics collector: the system's and all proxies' figures at this moment. Answered by `SystemFigures`."""


@message
class SystemFigures:
    """Metrics collector → API. Percentages are 0 to 100; rates are per second over the last complete seconds.

    `rss` and `vms` are of all processes of the product together.
    """

    cpu_percent: float
    load_average: tuple[float, float, float]
    memory_percent: float
    memory_total: int
    memory_used: int
    disk_percent: float
    disk_free: int
    rss: int
    uss: int
    vms: int
    requests_per_second: float
    bandwidth_in: float
    bandwidth_out: float
    total: ProxyStats


@message
class ForgetProxy:
    """Supervisor → metrics collector: this proxy was deleted. Nothing answers."""

    proxy_id: str


# --- records ------------------------------------------------------------------------------------------------------


@message
class QueryLogs:
    """API → log indexer. Newest first; `search` is words that must all occur. Answered by `LogPage`.

    `level` is exact, `min_level` at least; the others are exact too; None means all.
    `start` and `end` are Unix seconds; `proxy_ids` None means all.
    """

    start: float
    end: float
    limit: int
    offset: int
    level: str | None
    search: str | None
    proxy_ids: tuple[str, ...] | None
    min_level: str | None = None
    client_ip: str | None = None
    status_code: int | None = None


@message
class LogPage:
    """Log indexer → API: the rows as maps with the names of `records.ACCESS_FIELDS`, and how many there are in all."""

    rows: tuple[dict[str, Any], ...]
    total: int


# --- events -------------------------------------------------------------------------------------------------------


@message
class Event:
    """Supervisor or API → events plane, topic `events.<type>`: something happened that people may want to hear of.

    `id` is unique and stays the same through every delivery. `data` is JSON-like and holds no secret.
    """

    id: str
    type: str
    timestamp: float
    data: dict[str, Any]


@message
class QuerySender:
    """API → webhook sender: how is it? Answered by `SenderState`."""


@message
class SenderState:
    """Webhook sender → API: how many events it took in since its start, and how many wait for delivery."""

    taken: int
    waiting: int
