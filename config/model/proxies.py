"""Proxies in requests, and their stored model.

`ProxyCreate` and `ProxyUpdate` are bodies of requests: strict (`true` is no integer, `"80"` no port), and fields
that aren't named here are refused. `ProxyRecord` is a document of the store. `apply` makes the one from the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    Field,
    SerializerFunctionWrapHandler,
    StrictBool,
    StrictInt,
    model_serializer,
)

from config.model.accounts import Accounts, ProxyAccount, ProxyLimits, check_accounts, replace_accounts
from config.model.choices import (
    SOCKETS_MAX,
    WORKERS_MAX,
    BindPolicy,
    ClientAuth,
    ProxyProtocol,
    ProxyStatus,
    TlsNameCheck,
    UpstreamPolicyName,
    UpstreamProtocol,
    resolved,
)
from config.model.declaration import INTERNAL, SECRET, Given, Group, Instant, Viewed, gives, update
from config.model.fields import (
    NULLABLE,
    WORKERS,
    Body,
    FilePath,
    InvalidProxy,
    Name,
    Password,
    PortOrRange,
    SomePorts,
    Username,
    example,
    refuse_long,
)
from config.model.nodes import EVERY_NODE, NodesInput, NodesOfProxy, ProxyHost, is_address_of_node
from config.model.object_fields import Description, ObjectName, ProxyHeaders, Tags, check_headers
from config.model.proxy_parts import (
    AuthBackend,
    BackendInput,
    BindAddress,
    ProxyAccess,
    ProxyDns,
    UsernameParams,
    check_ttls,
    refuse_foreign,
)
from config.model.shared_objects.upstreams import ProxyUpstream, UpstreamCheck, Upstreams
from config.net.addresses import not_local
from config.net.entries import is_network
from config.net.names import Ports, Range
from config.passwords import hash_to_store

READ_ONLY_FIELDS = frozenset({"id", "status", "created_at", "updated_at", "stats", "runtime", "auth_enabled"})
"""Fields of responses that no request may set."""


Workers = Annotated[Annotated[StrictInt, Field(ge=1, le=WORKERS_MAX)] | Literal["auto"], WORKERS]
Timeout = Annotated[StrictInt, Field(ge=1, le=3600)]
MaxConnections = Annotated[StrictInt, Field(ge=1, le=100_000)]
SLEEP_MAX = 31_536_000
"""Seconds: a year."""
SleepAfter = Annotated[StrictInt, Field(ge=0, le=SLEEP_MAX)]


class ProxyAuth(Viewed):
    """The credentials that clients need. The password is stored as a hash alone."""

    enabled: Annotated[bool, Given(StrictBool)] = False
    username: Annotated[str | None, Given(Username)] = None
    password_hash: Annotated[str | None, SECRET] = Field(None, repr=False)
    backend: AuthBackend | None = None

    def view(self) -> dict[str, Any]:
        """Without secrets; `backend` where there is one."""
        backend = {} if self.backend is None else {"backend": self.backend.view()}
        return {"enabled": self.enabled, "username": self.username, **backend}


@gives(ProxyAuth)
class AuthInput(Body):
    """`auth` of a request; in an update, what is not given stays. `backend` null: there is to be none."""

    enabled: StrictBool | None = None
    username: Username | None = None
    password: Password | None = Field(None, repr=False)
    backend: Annotated[BackendInput | None, NULLABLE] = None


class ProxySettings(Group):
    """`timeout` is seconds, for connecting and for idleness."""

    timeout: Annotated[int, Given(Timeout)]
    keep_alive: Annotated[bool, Given(StrictBool)] = True
    max_connections: Annotated[int, Given(MaxConnections)] = 1000


class ProxyTls(BaseModel):
    """TLS of an `https` proxy: files in PEM on the machine that the product runs on.

    `cert_file` and `key_file` are the proxy's own certificate, None for that of `server.tls`. With `client_ca` clients
    are asked for a certificate of these authorities; `client_crl` has what these have revoked.
    """

    cert_file: Annotated[str | None, Given(FilePath), NULLABLE] = None
    key_file: Annotated[str | None, Given(FilePath), NULLABLE] = None
    client_ca: Annotated[str | None, Given(FilePath), NULLABLE] = None
    client_auth: Annotated[ClientAuth | None, Given(ClientAuth), NULLABLE] = None
    client_crl: Annotated[str | None, Given(FilePath), NULLABLE] = None

    @model_serializer(mode="wrap")
    def _without_nulls(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in plain(self).items() if value is not None}


@gives(ProxyTls)
class TlsInput(Body):
    """`tls` of a request; in an update, what is not given stays, and null takes it away."""


class ProxyRecord(BaseModel):
    """A document of the collection `proxies`. `status` is the desired state; times are Unix seconds."""

    id: str
    name: Annotated[str, Given(Name)]
    host: Annotated[str, Given(ProxyHost)]
    port: int
    last_port: Annotated[int, INTERNAL] = 0
    protocol: Annotated[ProxyProtocol, Given(ProxyProtocol)]
    status: ProxyStatus
    auth: ProxyAuth
    settings: ProxySettings
    access: ProxyAccess = ProxyAccess()
    upstreams: list[ProxyUpstream] = []
    upstream_policy: Annotated[UpstreamPolicyName, Given(UpstreamPolicyName)] = "failover"
    upstream_check: UpstreamCheck = UpstreamCheck()
    limits: ProxyLimits = ProxyLimits()
    accounts: list[ProxyAccount] = []
    tags: Annotated[list[str], Given(Tags)]
    tls: ProxyTls | None = None
    accept_proxy_protocol: Annotated[bool, Given(StrictBool)] = False
    bind_address: Annotated[str | list[str], Given(BindAddress)] = ""
    bind_policy: Annotated[BindPolicy, Given(BindPolicy)] = "random"
    headers: ProxyHeaders = ProxyHeaders()
    dns: ProxyDns = ProxyDns()
    username_params: UsernameParams = UsernameParams()
    policy: Annotated[str | None, Given(ObjectName), NULLABLE] = None
    pool: Annotated[str | None, Given(ObjectName), NULLABLE] = None
    workers: Annotated[int | Literal["auto"], Given(Workers)] = 1
    description: Annotated[str, Given(Description)] = ""
    sleep_after: Annotated[int, Given(SleepAfter)] = 0
    tls_name: Annotated[TlsNameCheck, Given(TlsNameCheck)] = "auto"
    tls_ports: Annotated[list[int], Given(SomePorts)] = [443]
    nodes: Annotated[NodesOfProxy, Given(NodesInput)] = EVERY_NODE
    created_at: Instant
    updated_at: Instant

    @property
    def ports(self) -> Ports:
        """All ports that it listens at, from `port` to `last_port`; this is 0 where there is only one."""
        return Ports.of(self.port, self.last_port)

    @property
    def processes(self) -> int:
        """The number of its workers on this machine."""
        return resolved(0 if self.workers == "auto" else self.workers)

    @property
    def listens_at(self) -> Range:
        """Its host, and the first and the last of its ports."""
        return self.host, self.port, self.last_port or self.port

    @property
    def speaks_tls(self) -> bool:
        """Whether clients may come with TLS: on `https` all of them, on `mixed` where `tls` is given."""
        return self.protocol == "https" or (self.protocol == "mixed" and self.tls is not None)

    @property
    def usual_protocol(self) -> UpstreamProtocol:
        """What a client speaks that may choose: HTTP on `mixed`, which most programs know."""
        return "http" if self.protocol == "mixed" else self.protocol


@gives(ProxyRecord)
class ProxyUpdate(Body):
    """The body of PUT and PATCH: any part of what a create takes."""

    model_config = example(
        {"settings": {"timeout": 60}, "headers": {"via": "off"}, "tls_name": "match", "tags": ["office", "berlin"]}
    )

    name: Name | None = None
    host: ProxyHost | None = None
    port: PortOrRange | None = None
    protocol: ProxyProtocol | None = None
    auth: AuthInput | None = None
    upstream_protocol: UpstreamProtocol | None = None  # before the list, whose lines without a scheme are of it
    upstreams: Upstreams | None = None
    accounts: Accounts | None = None
    tls: TlsInput | None = None


class ProxyCreate(ProxyUpdate):
    """The body of a create.

    `tls_name` is what becomes of the name in the TLS handshake of a tunnel to one of `tls_ports`; `auto` is `match`
    where an entry with names has let the request through, else `record`.
    """

    model_config = example(
        {
            "name": "office",
            "host": "127.0.0.1",
            "port": 3128,
            "protocol": "http",
            "auth": {"enabled": True, "username": "alice", "password": "correct horse"},
            "settings": {"timeout": 30, "keep_alive": True, "max_connections": 1000},
            "headers": {"via": "pseudonym"},
            "tls_name": "auto",
            "tls_ports": [443, 8443],
            "tags": ["office"],
        }
    )

    name: Name
    port: PortOrRange
    protocol: ProxyProtocol
    host: ProxyHost = "127.0.0.1"


def new_record(
    body: ProxyCreate,
    identifier: str,
    now: float,
    default_timeout: int,
    sleep_after: int = 0,
    workers: int | Literal["auto"] = 1,
) -> ProxyRecord:
    """The record of a proxy that is to be created, active; the last three are for what the body doesn't say.

    Raises `InvalidProxy`.
    """
    where = body.name, body.host, body.port, body.protocol
    return apply(blank_record(identifier, *where, now, default_timeout, sleep_after, workers), body, now)


def blank_record(
    identifier: str,
    name: str,
    host: str,
    port: int | str,
    protocol: str,
    now: float,
    default_timeout: int,
    sleep_after: int = 0,
    workers: int | Literal["auto"] = 1,
) -> ProxyRecord:
    """The record of an active proxy with defaults in all other fields. The last three are settings."""
    return ProxyRecord.model_validate(
        {
            "id": identifier,
            "name": name,
            "host": host,
            **_stored(Ports.given(port)),
            "protocol": protocol,
            "status": "active",
            "auth": ProxyAuth(),
            "settings": ProxySettings(timeout=default_timeout),
            "sleep_after": sleep_after,
            "workers": workers,
            "tags": [],
            "created_at": now,
            "updated_at": now,
        }
    )


def apply(record: ProxyRecord, body: ProxyUpdate, now: float) -> ProxyRecord:
    """`record` with the changes of `body`, but for those with secrets to be sealed: `upstreams` and `auth.backend`.

    Raises `InvalidProxy`.
    """
    changed = update(record, body)
    if changed.get("bind_address") and changed.get("nodes", record.nodes).all:
        _refuse_foreign(changed["bind_address"])  # else it need not be an address of this machine
    if body.port is not None:
        changed |= _stored(Ports.given(body.port))
    protocol = changed.get("protocol", record.protocol)
    if body.accounts is not None:
        changed["accounts"] = replace_accounts(record.accounts, body.accounts, protocol, now)
    accounts = changed.get("accounts", record.accounts)
    changed["auth"] = auth = apply_auth(record, body.auth, accounts, protocol)
    check_accounts(accounts, protocol, auth.username)
    if body.tls is not None:
        changed["tls"] = _changed_tls(record.tls or ProxyTls(), body.tls, protocol)
    check_headers(changed.get("headers", record.headers))
    check_ttls(changed.get("dns", record.dns))
    changed_record = record.model_copy(update={**changed, "updated_at": now})
    _refuse_required_certificate(changed_record)
    _refuse_too_many_sockets(changed_record)
    return changed_record


def _stored(ports: Ports) -> dict[str, int]:
    return {"port": ports.first, "last_port": ports.stored_last}


def _changed_tls(before: ProxyTls, given: TlsInput, protocol: str) -> ProxyTls | None:
    """None when it says nothing any more. Raises `InvalidProxy`."""
    tls = before.model_copy(update=given.model_dump(exclude_unset=True))
    for name, other in (("cert_file", tls.key_file), ("key_file", tls.cert_file)):
        if other is not None and getattr(tls, name) is None:
            beside = "key_file" if name == "cert_file" else "cert_file"
            raise InvalidProxy(f"tls.{name}", f"is required beside {beside}")
    if tls.client_ca is None:
        for name in ("client_auth", "client_crl"):
            if getattr(given, name) is not None:
                raise InvalidProxy(f"tls.{name}", "is for a proxy with tls.client_ca")
        tls = tls.model_copy(update={"client_auth": None, "client_crl": None})
    elif tls.client_auth is None:
        tls = tls.model_copy(update={"client_auth": "optional" if protocol == "mixed" else "require"})
    return None if tls == ProxyTls() else tls


def _refuse_too_many_sockets(record: ProxyRecord) -> None:
    workers = record.processes
    if len(record.ports) * workers > SOCKETS_MAX:
        raise InvalidProxy(
            "port",
            f"has {len(record.ports)} ports for {workers} workers, and the product of both is at most {SOCKETS_MAX}",
        )


def _refuse_required_certificate(record: ProxyRecord) -> None:
    if record.protocol == "mixed" and record.tls is not None and record.tls.client_auth == "require":
        raise InvalidProxy("tls.client_auth", "must be optional on mixed, where clients may come without TLS")


def apply_auth(
    record: ProxyRecord, body: AuthInput | None, accounts: Sequence[ProxyAccount], protocol: str
) -> ProxyAuth:
    """`auth` of `record` with the changes of `body`, beside these accounts. Raises `InvalidProxy`.

    The first account or a back end turns it on, unless the body turns it off. It stays on when the last one is
    removed, so that the proxy accepts no client rather than all. On without any account it accepts those of the fleet.
    """
    auth, given = record.auth, body or AuthInput()
    first = (bool(accounts) and not record.accounts) or (given.backend is not None and auth.backend is None)
    enabled = (auth.enabled or first) if given.enabled is None else given.enabled
    username = auth.username if given.username is None else given.username
    if enabled and username is None and given.password is not None:
        raise InvalidProxy("auth.username", "is required with a password")
    if protocol == "socks4":
        _refuse_password(enabled, auth, given)
        return ProxyAuth(enabled=enabled, username=username, backend=auth.backend)
    if enabled and username is not None and given.password is None and auth.password_hash is None:
        raise InvalidProxy("auth.password", "is required when auth is enabled")
    if protocol in ("socks5", "mixed"):
        refuse_long("auth.username", username)
        refuse_long("auth.password", given.password)
    known = auth.password_hash
    hashed = known if given.password is None else hash_to_store(given.password, known)
    return ProxyAuth(enabled=enabled, username=username, password_hash=hashed, backend=auth.backend)


def _refuse_foreign(bind_address: str | list[str]) -> None:
    if isinstance(bind_address, list):
        refuse_foreign(bind_address, "bind_address")
        return
    error = None if is_network(bind_address) or is_address_of_node(bind_address) else not_local(bind_address)
    if error is not None:
        raise InvalidProxy("bind_address", error)


def _refuse_password(enabled: bool, auth: ProxyAuth, body: AuthInput) -> None:
    """SOCKS4 has a USERID alone; a password that is never checked would only seem to protect."""
    if body.password is not None:
        raise InvalidProxy("auth.password", "socks4 has no passwords: clients send auth.username as their USERID")
    if enabled and auth.password_hash is not None:
        raise InvalidProxy("auth.password", "socks4 has no passwords; disable auth before the protocol is changed")
