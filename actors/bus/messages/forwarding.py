"""Between the supervisor or the API and the forwarding actor of a proxy."""

from __future__ import annotations

from actors.bus.codec import message
from actors.bus.messages.fleet_objects import FleetObjects
from actors.bus.messages.specs import EgressSpec, ProxySpec


@message
class Configure:
    """Supervisor → forwarding actor, at its hello and at every change: holds for new connections, drops none.

    `objects` has what the proxy names, and what any plan names where its clients may be accounts of the fleet.
    """

    spec: ProxySpec
    egress: EgressSpec
    objects: FleetObjects = FleetObjects()


@message
class AllowTestClient:
    """API → forwarding actor: allow one test. `user` and `token` are valid once within `ttl` seconds. → `Done`.

    `request_id` is that of the API's request, which the record of the test gets, too; empty: one of its own.
    """

    user: str
    token: str
    ttl: float
    request_id: str = ""


@message
class QueryTester:
    """API → forwarding actor: the result of the test with the one-use user `user`. → `ReportOfTest`."""

    user: str


@message
class ReportOfTest:
    """Forwarding actor → API: the upstream that a test went through, and why it was refused or failed.

    `parent` is None without an upstream. `reason` and `detail` are those of its access record, empty when it
    succeeded or nothing is known.
    """

    parent: str | None = None
    reason: str = ""
    detail: str = ""


@message
class Explain:
    """API → forwarding actor: the decision on a request, without making it. → `Explanation` or `Failed` (a bad target).

    `user` counts as authenticated; None means a client without credentials. `credential` is the id of one whose secret
    counts as sent, as `user` or without a name. `method` is that of a request for an http URL. No connection is made.
    """

    client_ip: str
    user: str | None
    target: str
    credential: str | None = None
    method: str = "GET"


@message
class ExplainedAddress:
    """The decision on one address of a target. A value, not a message by itself. `decision`: `allow`, `deny`."""

    address: str
    decision: str
    reason: str
    rule: str


@message
class ExplainedRule:
    """What one rule of a policy has to do with a request. A value, not a message by itself.

    `matches` is `yes`, `no`, or `unknown` while the target's address would decide; `why` is a sentence. `use` and
    `mode` are the rule's.
    """

    policy: str
    index: int
    name: str
    matches: str
    why: str
    use: str
    mode: str


@message
class Explanation:
    """Forwarding actor → API: the decision, its reason, and what decided at which stage (`explain.py`).

    `account` and `credential` are the ids of those that the client would have used, empty for none. `rules` are those
    of all policies that apply, in their order.
    """

    decision: str
    reason: str
    rule: str
    stage: str
    mode: str
    host: str
    port: int
    addresses: tuple[ExplainedAddress, ...]
    account: str = ""
    credential: str = ""
    rules: tuple[ExplainedRule, ...] = ()


@message
class ConnectionFilter:
    """A filter of connections: those that every given part matches. A value, not a message by itself.

    `client` is an address or a network, `user` exact, `target` a part of it, `min_age` seconds.
    """

    client: str | None = None
    user: str | None = None
    target: str | None = None
    min_age: float = 0.0


@message
class QueryConnections:
    """API → forwarding actor: the open connections, a page of at most 1,000. → `Connections`, after up to a second.

    `sort` is one of `connections.SORTS`, with `-` before it for the greatest first.
    """

    only: ConnectionFilter
    sort: str
    limit: int
    offset: int


@message
class Connection:
    """One live connection of a client. A value, not a message by itself.

    `state` is `announcing`, `idle`, `authorizing`, `connecting`, `active`, `closing`,
    `tunnel` or `datagrams`; rates are bytes per second.
    `parent` is the name of the upstream proxy that it goes through, empty without one. `credential` is the id of the
    one that was used in place of the password.
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
    parent: str = ""
    credential: str = ""


@message
class Connections:
    """Forwarding actor → API: a page, and how many match in all."""

    connections: tuple[Connection, ...]
    total: int


@message
class GroupConnections:
    """API → forwarding actor: count the open connections. → `ConnectionGroups`.

    `by` is one of `connections.GROUPS`; None puts all that match into one group.
    """

    only: ConnectionFilter
    by: str | None


@message
class ConnectionGroups:
    """Forwarding actor → API: by value (empty for none), the number of connections, their bytes in and bytes out."""

    groups: dict[str, tuple[int, int, int]]


@message
class CloseConnections:
    """API → forwarding actor: close the connections that match; `id` None means any. → `Ended`."""

    id: str | None
    only: ConnectionFilter


@message
class Ended:
    """Forwarding actor → API: the number of connections that were closed."""

    count: int
