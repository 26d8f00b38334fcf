"""What a proxy should be, its upstreams, and the objects that any number of proxies name, as values that messages
carry.

Objects name each other by their names, which are unique within a kind. `revision` is the store's: the greater one wins.
"""

from __future__ import annotations

from dataclasses import field
from typing import Final

from actors.bus.codec import message
from config.model.choices import TAG_PREFIX
from config.net.names import Ports


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


@message
class AccessSpec:
    """The access rules of a proxy, as `config.net.entries` reads them. A value, not a message by itself.

    `mode` is `enforce` or `report`.
    """

    allow_clients: tuple[str, ...] = ()
    deny_clients: tuple[str, ...] = ()
    allow_destinations: tuple[str, ...] = ()
    deny_destinations: tuple[str, ...] = ()
    mode: str = "enforce"


@message
class LimitsSpec:
    """The limits of a proxy or of an account, 0 for none. A value, not a message by itself.

    Bandwidth is bytes per second, `in` what clients send. `connections` are at the same time. Of a proxy they hold for
    each client address, but bandwidth for all of it; of an account for all who use it. `clients` is how many client
    addresses may use an account within `clients_window` seconds (0, of a credential: as its account), over all proxies.
    """

    bandwidth_in: int = 0
    bandwidth_out: int = 0
    connections: int = 0
    requests_per_minute: int = 0
    clients: int = 0
    clients_window: int = 600


@message
class AccountSpec:
    """One account. A value, not a message by itself.

    `password_hash` is as `ProxySpec.auth_hash`, None where the protocol has no passwords. `quota` is bytes in both
    directions in a `period` (`config.model.choices`), 0 for none. `expires_at` is 0 for never. `allow_clients` are
    networks, destinations entries of access rules (`config.net.entries`). `schedule` is `actors.accounts.records`'s,
    None for always. `socks4_by_name`: on SOCKS4 the name alone lets in. `renewal` is `config.passwords.renewal`'s.
    `tags` are those of the account, `policies` the names of its own and of its plan's; `egress` are the addresses and
    networks (`config.net.entries`) that its connections leave from, by its plan. `disclose`: its clients get to know
    which policy, rule and list refuse a request.
    """

    id: str
    username: str
    password_hash: str | None
    enabled: bool = True
    limits: LimitsSpec = LimitsSpec()
    quota: int = 0
    period: str = "total"
    expires_at: float = 0.0
    allow_clients: tuple[str, ...] = ()
    allow_destinations: tuple[str, ...] = ()
    deny_destinations: tuple[str, ...] = ()
    schedule: tuple[str, tuple[tuple[tuple[int, ...], int, int], ...]] | None = None
    socks4_by_name: bool = True
    certificates: tuple[str, ...] = ()
    renewal: str = ""
    tags: tuple[str, ...] = ()
    policies: tuple[str, ...] = ()
    egress: tuple[str, ...] = ()
    disclose: bool = True


@message
class ClientTlsSpec:
    """How an `https` proxy asks clients for a certificate. A value, not a message by itself.

    `ca` has the authorities in PEM, `crl` their revocation lists, None for none. `required`: a client without a
    certificate is refused.
    """

    ca: str
    crl: str | None = None
    required: bool = True


@message
class BackendSpec:
    """The authentication back end of a proxy. A value, not a message by itself.

    Requests to `url` are signed with `secret`. `timeout` is seconds for a whole response; `cache_seconds` and
    `negative_seconds` are how long it holds that a user may or may not use the proxy. `allow_cached`: those who were
    allowed are, while the back end fails.
    """

    url: str
    secret: str = field(repr=False)
    timeout: float = 5.0
    cache_seconds: float = 60.0
    negative_seconds: float = 5.0
    allow_cached: bool = False


@message
class DnsSpec:
    """What a proxy says about resolving names. A value, not a message by itself.

    What is empty, 0 or `default` is as in the settings (`proxy.dns`).
    """

    servers: tuple[str, ...] = ()
    hosts: dict[str, tuple[str, ...]] = field(default_factory=dict)
    prefer: str = "default"
    min_ttl: int = 0
    max_ttl: int = 0


@message
class RequestHeadersSpec:
    """What a proxy does to the header fields of plain requests. A value, not a message by itself.

    `forwarded`: `off`, `x-forwarded-for` or `rfc7239`. `set` has names and values.
    """

    forwarded: str = "off"
    set: tuple[tuple[str, str], ...] = ()
    remove: tuple[str, ...] = ()


@message
class UsernameParamsSpec:
    """How user names with parameters are read. A value, not a message by itself.

    `separator` is one character. `reject_unknown`: a name with parameters that nothing knows is refused.
    """

    separator: str = "-"
    reject_unknown: bool = False


@message
class ProxySpec:
    """What a proxy should be, as the forwarding actor and the supervisor need it. A value, not a message by itself.

    `port` is the first that it listens at; `last_port` is the last of a range, 0 for one port.
    `revision` is the store's: the greater one wins. `timeout` is for connecting and for idleness.
    `auth_hash` is bcrypt over the pre-hashed password of `auth_username`. Credentials are wanted when there is such a
    name or `auth_required`; `accounts` are accepted beside it.
    `tls` is the proxy's own certificate and key file, None for those of `server.tls`; `client_tls` None: clients are
    not asked for a certificate.
    `accept_proxy_protocol`: each connection begins with a header of the PROXY protocol.
    `bind_address` is where its own connections leave from, empty for any address of the machine; with `egress` there is
    none: they leave from one of these addresses and networks (`config.net.entries`). `bind_policy` says from which one.
    `tags` are those of the proxy, by which accounts of the fleet may name it.
    `policy` is the name of its policy, empty for none; `pool` is that of the pool that it has in place of `upstreams`.
    `backend` decides about users that the proxy and the table of accounts don't know.
    `objects` are the keys of the objects that it names (`actors.bus.messages.specs`).
    `username_params` None: user names have no parameters but the session behind `-session-`, where there are upstreams
    or `bind_policy` is `session`.
    `via` is what it adds to `Via`: `pseudonym`, `on` (host name and port) or `off`.
    `workers` is the number of processes that serve it, 0 for one on each core.
    `sleep_after` is seconds without a client after which it sleeps, 0 for never.
    `tls_name` is what becomes of the name in the TLS handshake of a tunnel to one of `tls_ports`
    (`config.model.choices.TlsNameCheck`).
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
    client_tls: ClientTlsSpec | None = None
    access: AccessSpec = AccessSpec()
    upstreams: UpstreamsSpec = UpstreamsSpec()
    auth_required: bool = False
    accounts: tuple[AccountSpec, ...] = ()
    limits: LimitsSpec = LimitsSpec()
    tags: tuple[str, ...] = ()

    accept_proxy_protocol: bool = False
    bind_address: str = ""
    egress: tuple[str, ...] = ()
    bind_policy: str = "random"
    via: str = "pseudonym"
    request_headers: RequestHeadersSpec = RequestHeadersSpec()
    backend: BackendSpec | None = None
    dns: DnsSpec = field(default_factory=DnsSpec)
    policy: str = ""
    pool: str = ""
    objects: tuple[str, ...] = ()
    username_params: UsernameParamsSpec | None = None
    last_port: int = 0
    sleep_after: int = 0
    workers: int = 1
    tls_name: str = "auto"
    tls_ports: tuple[int, ...] = (443,)

    @property
    def ports(self) -> Ports:
        """All ports that it listens at."""
        return Ports.of(self.port, self.last_port)

    @property
    def address(self) -> tuple[str, Ports]:
        """Where it listens."""
        return self.host, self.ports

    @property
    def words(self) -> frozenset[str]:
        """By which rules of policies name it."""
        return frozenset((self.id, self.name, *(TAG_PREFIX + each for each in self.tags)))

    @property
    def speaks_tls(self) -> bool:
        """True if clients may come with TLS: on `https` all of them, on `mixed` where `tls` of the proxy says so."""
        return self.protocol == "https" or (self.protocol == "mixed" and bool(self.tls or self.client_tls))

    @property
    def wants_credentials(self) -> bool:
        """True if clients must authenticate."""
        return self.auth_required or self.auth_username is not None


@message
class EgressSpec:
    """The configuration of the egress guard. A value, not a message by itself.

    `policy` is `public_only`, `private` (all but the addresses that are never a target: link-local, metadata,
    multicast, reserved) or `off`; `allow` lists CIDRs and names that are excepted; `own` lists the addresses of all the
    product's own listeners, `(host, port)`, which are refused in any case; `own_ranges` those with consecutive ports,
    `(host, first, last)`. `services` are those of them that aren't
    proxies: no upstream may be there either. `upstreams_allow` is as `allow`, for upstreams; None: `allow` holds.
    `private_backends`: authentication back ends may have addresses that are not public.
    """

    policy: str
    allow: tuple[str, ...]
    own: tuple[tuple[str, int], ...]
    services: tuple[tuple[str, int], ...] = ()
    upstreams_allow: tuple[str, ...] | None = None
    private_backends: bool = False
    own_ranges: tuple[tuple[str, int, int], ...] = ()


DENY: Final = "deny"
DIRECT: Final = "direct"
POOL = "pool:"
"""Begins the `use` of a rule that names a pool."""


@message
class RuleSpec:
    """One rule of a policy. A value, not a message by itself.

    Conditions that are empty hold for every request; a rule matches when all hold. `accounts` are user names, or tags
    behind `tag:`; `destinations` entries as `config.net.entries` reads them; the method `*` is any; `paths` patterns
    with `*`; `tunnel`: it is not plain HTTP; `params` names and values; `schedule` is `actors.accounts.records`'s;
    `listen_ports` the first and the last of consecutive ports of the proxy. `report`: it is counted and not enforced.
    `use` is `deny`, `direct`, `pool:` and a name, or empty: the request goes the way it would go without the rule.
    `egress` are addresses and networks that connections leave from. `tls_name` is as in `ProxySpec`, or empty: the
    proxy's holds. `proxies` are names and ids of proxies, or tags behind `tag:`. From `until` (Unix seconds) on it
    matches nothing; 0: it does not end.
    """

    name: str = ""
    accounts: tuple[str, ...] = ()
    destinations: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    params: tuple[tuple[str, str], ...] = ()
    schedule: tuple[str, tuple[tuple[tuple[int, ...], int, int], ...]] | None = None
    clients: tuple[str, ...] = ()
    report: bool = False
    use: str = ""
    reason: str = ""
    egress: tuple[str, ...] = ()
    set_headers: tuple[tuple[str, str], ...] = ()
    remove_headers: tuple[str, ...] = ()
    limits: LimitsSpec = LimitsSpec()
    listen_ports: tuple[tuple[int, int], ...] = ()
    tunnel: bool = False
    tls_name: str = ""
    until: float = 0.0
    proxies: tuple[str, ...] = ()


@message
class PolicySpec:
    """A policy: the first rule that matches decides. A value, not a message by itself.

    `revision` is the store's. A process that knew a smaller `ended` ends the tunnels that are no longer allowed.
    """

    id: str
    name: str
    rules: tuple[RuleSpec, ...] = ()
    revision: int = 0
    ended: int = 0


DOMAINS = "domains"
"""The kind of a list whose entries match names."""
PLANS = "plans"
"""The key of what plans of accounts name."""
POOL_KEY = "pool:"
"""Begins the keys of pools."""
POLICY_KEY = "policy:"
"""Begins the keys of policies."""
FIRST_POLICY = "first-policy"
"""The key of the name (UTF-8) of the policy that all proxies have before their own: `proxy.policy`."""
ALL_LISTS = "list:*"
"""The key of all lists: those that accounts, credentials and plans may name at any time."""


@message
class ListRef:
    """A list of destinations, without its entries. A value, not a message by itself.

    `kind` is `domains`, `networks` or `geo`. `file` is the name of the compiled file in the folder of lists of the data
    directory; empty: there is none yet, and the list matches nothing. Another content has another name.
    """

    id: str
    name: str
    revision: int
    kind: str
    file: str = ""

    @property
    def judges_addresses(self) -> bool:
        """Whether its entries match addresses, not names."""
        return self.kind != DOMAINS


@message
class PoolSpec:
    """A pool of upstreams. A value, not a message by itself.

    A request is tried `attempts` times in all: again after a failure to connect (`retry_connect`), and when the
    upstream responds with one of `retry_statuses`. `cooldown` has by kind of failure (`connect`, `407`, `429`, `5xx`)
    the seconds from and to that an upstream is left alone; 0 and 0 for not at all.
    Without entries there is no upstream, so that nothing can be reached through the pool.
    """

    id: str
    name: str
    revision: int
    upstreams: UpstreamsSpec = UpstreamsSpec()
    attempts: int = 5
    retry_connect: bool = True
    retry_statuses: tuple[int, ...] = ()
    cooldown: tuple[tuple[str, float, float], ...] = ()


@message
class FleetObject:
    """A list, pool or policy on its way to the processes that need it. A value, not a message by itself.

    `key` is its kind and its name, `pool:paris`; `names` are the keys of the objects that it names. `packed` is its
    `ListRef`, `PoolSpec` or `PolicySpec` (`actors.bus.codec.pack`), which may have secrets. Without it the object only
    stands for what it names: that with the key `plans` for what plans of accounts name.
    """

    key: str
    id: str
    revision: int
    names: tuple[str, ...]
    packed: bytes = field(repr=False)


@message
class CheckPool:
    """API → supervisor: check the upstreams of the pool with this key once and now, whether a proxy uses it or not.

    → `Done` when the order is on its way; what is found is in the file of the pool.
    """

    key: str


@message
class CheckPoolOnce:
    """Supervisor → pools, for a `CheckPool`: the packed `PoolSpec`. Nothing replies."""

    packed: bytes = field(repr=False)


@message
class CheckPools:
    """Supervisor → pools, at its hello and at every change: these are the pools that a proxy may use.

    `pools` has the packed `PoolSpec` of each by its key (`FleetObject`). Nothing replies.
    """

    egress: EgressSpec
    pools: dict[str, bytes] = field(default_factory=dict, repr=False)
