"""Between the supervisor or the API and the forwarding actor of a proxy."""

from __future__ import annotations

from dataclasses import field

from actors.bus.codec import message
from actors.bus.messages.specs import EgressSpec, ListRef, PolicySpec, ProxySpec


@message
class Configure:
    """Supervisor → forwarding actor, at its hello and at every change: holds for new connections, drops none.

    `objects` has by key all objects that the proxy needs, packed (`FleetObject`), and under `FIRST_POLICY` which policy
    comes before all others; or where `changes` is set those alone that differ from the configuration before, empty for
    one that is gone. → `Done`, if that is asked for: when objects have changed. `worker` is the receiver's index among
    all `workers` of the proxy.
    """

    spec: ProxySpec
    egress: EgressSpec
    objects: dict[str, bytes] = field(default_factory=dict, repr=False)
    worker: int = 0
    workers: int = 1
    changes: bool = False


@message
class Idle:
    """Forwarding actor → supervisor: it has had no client for `sleep_after`. Nothing replies; it reports again."""

    instance: int


@message
class DrainEnded:
    """Forwarding actor → supervisor: its time to drain is over, and so many connections are cut. Nothing replies."""

    instance: int
    cut: int


@message
class Sleep:
    """Supervisor → forwarding actor: accept no more and keep what you know for the next process. → `Done` or `Failed`.

    `Failed` means that there is a client, and that it goes on. After `Done` follows `Resume` or `Stop`.
    """


@message
class Resume:
    """Supervisor → forwarding actor, after `Sleep`: a client has come, so go on. → `Done`."""


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
    """API → forwarding actor: the decision on a request, without making it. → `RequestExplanation` or `Failed` (a bad
    target).

    `user` counts as authenticated; None means a client without credentials. `credential` is the id of one whose secret
    counts as sent, as `user` or without a name. `method` is that of a request for an http URL. No connection is made.
    `draft` is judged in place of the policy of its name, or where none that applies has it, of the proxy's own; `lists`
    are those that it names. `listen_port` is the port of the proxy that the client comes to. `tls_name` is the name in
    the TLS handshake of a tunnel, empty for a handshake without one; None: it is not asked about. `at` is when, in Unix
    seconds, 0 for now; what was used counts as of now.
    """

    client_ip: str
    user: str | None
    target: str
    credential: str | None = None
    method: str = "GET"
    draft: PolicySpec | None = None
    lists: tuple[ListRef, ...] = ()
    listen_port: int = 0
    tls_name: str | None = None
    at: float = 0.0


@message
class ExplainedAddress:
    """The decision on one address of a target. A value, not a message by itself. `decision`: `allow`, `deny`."""

    address: str
    decision: str
    reason: str
    rule: str


@message
class RuleExplanation:
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
class SourceExplanation:
    """Where a request would leave from. A value, not a message by itself.

    `rule` is what of the configuration says so, `entries` are its addresses and networks, `policy` is how one of them
    is chosen. `ipv4` and `ipv6` are the addresses: empty where there is none, and both where they are drawn at random.
    """

    rule: str
    policy: str
    entries: tuple[str, ...]
    ipv4: str = ""
    ipv6: str = ""


@message
class HeadersExplanation:
    """What is done to the header fields of a plain request. A value, not a message by itself.

    `set` has names and values of what is added and set, `remove` names in lower case.
    """

    set: tuple[tuple[str, str], ...] = ()
    remove: tuple[str, ...] = ()


@message
class NameExplanation:
    """How a user name with parameters was understood. A value, not a message by itself.

    `account` is the part that names the account. `ttl` is seconds, of the session; `labels` and `marks` are names and
    values, `unknown` what has no effect. `problem` says why what stands behind an account is no parameters.
    """

    account: str
    session: str | None
    ttl: float
    rotate: bool
    labels: dict[str, str]
    marks: dict[str, str]
    unknown: tuple[str, ...]
    problem: str


@message
class UpstreamExplanation:
    """An upstream that would not be chosen, and why. A value, not a message by itself."""

    name: str
    why: str


@message
class UpstreamsExplanation:
    """Which upstream a request would go through. A value, not a message by itself.

    `pool` is the name of theirs, empty for those of the proxy itself; `policy` is how one is chosen, `chosen` the one
    that would be, empty for none. There are `total`, of which `usable` may be chosen; `left_out` are others, the first
    of them.
    """

    pool: str
    policy: str
    chosen: str
    total: int
    usable: int
    left_out: tuple[UpstreamExplanation, ...]


@message
class TlsNameExplanation:
    """What becomes of the name in the TLS handshake of a tunnel. A value, not a message by itself.

    `check` is `off`, `record`, `match` or `allowed`, `rule` what of the configuration says so. `port_checked`: it is a
    tunnel to a port where handshakes are read. `name` is as in `Explain`; `kind` is what it was judged to be, empty
    where it was not, and `detail` a sentence about what is wrong with it.
    """

    check: str = "record"
    rule: str = "tls_name"
    port_checked: bool = False
    name: str | None = None
    kind: str = ""
    detail: str = ""


@message
class RequestExplanation:
    """Forwarding actor → API: the decision, its reason, and what decided at which stage (`explain.py`).

    `account` and `credential` are the ids of those that the client would have used, empty for none. `rules` are those
    of all policies that apply, in their order. `source` is None where the configuration says nothing about it,
    `upstreams` where the request is refused or goes directly. `headers` are of an allowed request for an http URL.
    `name` None: the user name is taken as it is.
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
    rules: tuple[RuleExplanation, ...] = ()
    source: SourceExplanation | None = None
    headers: HeadersExplanation = HeadersExplanation()
    name: NameExplanation | None = None
    upstreams: UpstreamsExplanation | None = None
    tls_name: TlsNameExplanation = TlsNameExplanation()


@message
class ConnectionFilter:
    """A filter of connections: those that every given part matches. A value, not a message by itself.

    `client` is an address or a network, `user` exact, `target` and `tls_name` a part of it, `min_age` seconds.
    `listen_port` is the port of the proxy that the client has come to. `alpn` is one of the protocols that are offered.
    """

    client: str | None = None
    user: str | None = None
    target: str | None = None
    min_age: float = 0.0
    listen_port: int | None = None
    tls_name: str | None = None
    alpn: str | None = None


@message
class QueryConnections:
    """API → forwarding actor: the open connections, a page of at most 1,000. → `ConnectionPage`, after up to a second.

    `sort` is one of `connections.SORTS`, with `-` before it for the greatest first.
    """

    only: ConnectionFilter
    sort: str
    limit: int
    offset: int


@message
class ConnectionReport:
    """One live connection of a client. A value, not a message by itself.

    `state` is `announcing`, `idle`, `authorizing`, `connecting`, `active`, `closing`,
    `tunnel` or `datagrams`; rates are bytes per second.
    `parent` is the name of the upstream proxy that it goes through, empty without one. `credential` is the id of the
    one that was used in place of the password. `source_address` is the one that it leaves from, and `source_rule` what
    of the configuration says so; empty where nothing does. `parameters` are
    those of the user name. `pool` is the name of the pool that the upstream is in, empty for one of the proxy itself.
    `listen_port` is the port of the proxy that the client has come to. `tls_name`, `alpn` (with commas between) and
    `tls_version` are what the client's TLS handshake in a tunnel says, empty where none was read.
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
    source_address: str = ""
    source_rule: str = ""
    parameters: str = ""
    pool: str = ""
    listen_port: int = 0
    tls_name: str = ""
    alpn: str = ""
    tls_version: str = ""


@message
class ConnectionPage:
    """Forwarding actor → API: a page, and how many match in all."""

    connections: tuple[ConnectionReport, ...]
    total: int


@message
class GroupConnections:
    """API or supervisor → forwarding actor: count the open connections. → `ConnectionGroups`.

    The reply is a page of at most 1,000 groups. `by` is one of `connections.GROUPS`; None puts all that match into one
    group. With `values` there are no groups but of these.
    """

    only: ConnectionFilter
    by: str | None
    limit: int
    offset: int = 0
    values: tuple[str, ...] = ()


@message
class ConnectionGroups:
    """Forwarding actor → API or supervisor: connections, their bytes in and bytes out by value (empty for none).

    `groups` is a page, the largest first; `total` counts all pages.
    """

    groups: dict[str, tuple[int, int, int]]
    total: int


@message
class CloseConnections:
    """API → forwarding actor: close the connections that match; `id` None means any. → `ConnectionsEnded`."""

    id: str | None
    only: ConnectionFilter


@message
class ConnectionsEnded:
    """Forwarding actor → API: the number of connections that were closed."""

    count: int
