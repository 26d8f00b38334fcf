"""What a proxy should be, as values that messages carry."""

from __future__ import annotations

from dataclasses import field

from actors.bus.codec import message
from actors.bus.messages.upstreams import UpstreamsSpec
from config.net.ports import Ports


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
    each client address, but bandwidth for all of it; of an account for all who use it.
    """

    bandwidth_in: int = 0
    bandwidth_out: int = 0
    connections: int = 0
    requests_per_minute: int = 0


@message
class AccountSpec:
    """One account. A value, not a message by itself.

    `password_hash` is as `ProxySpec.auth_hash`, None where the protocol has no passwords. `quota` is bytes in both
    directions in a `period` (`config.model.quotas`), 0 for none. `expires_at` is 0 for never. `allow_clients` are
    networks, destinations entries of access rules (`config.net.entries`). `schedule` is `actors.accounts.schedule`'s,
    None for always. `socks4_by_name`: on SOCKS4 the name alone lets in. `renewal` is `config.passwords.renewal`'s.
    `tags` are those of the account, `policies` the names of its own and of its plan's; `egress` are the addresses and
    networks (`config.net.egress`) that its connections leave from, by its plan. `disclose`: its clients get to know
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
    none: they leave from one of these addresses and networks (`config.net.egress`). `bind_policy` says from which one.
    `tags` are those of the proxy, by which accounts of the fleet may name it.
    `policy` is the name of its policy, empty for none; `pool` is that of the pool that it has in place of `upstreams`.
    `backend` decides about users that the proxy and the table of accounts don't know.
    `objects` are the keys of the objects that it names (`actors.bus.messages.fleet_objects`).
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
