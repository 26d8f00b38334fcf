"""Parts of a proxy in requests and as they are stored, one declaration each: its access rules, where its connections
leave from, how it resolves names, how user names are read, and the authentication back end with its sealed secret.

Checks of a whole proxy: the certificate that it would serve, and warnings where unknown clients can use it.

An open proxy is soon found and abused, and its operator is held responsible. It isn't refused, since a firewall may
protect it; the warning is in the proxy's view and in the log.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from ipaddress import ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Protocol

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainValidator,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
)

from config.files.certificates import CertificateError, ClientFiles, ask_clients, ends_at, for_callers, server_context
from config.files.secret_box import SealedFor, SecretBox
from config.model import json_patterns
from config.model.declaration import SECRET, Given, Group, gives, update
from config.model.fields import Body, InvalidProxy, InvalidResource, Text, TextList, each_entry
from config.model.nodes import is_address_of_node
from config.model.webhooks import Secret, Url, new_secret
from config.net.addresses import not_local, read_bind_address
from config.net.dns_servers import TTL_MAX, read_address, read_hosts_name, read_server
from config.net.entries import is_network, read_egress, read_entry, read_network, usual_form
from config.net.names import in_a_labels, is_loopback
from config.text.formatting import timestamp_text

if TYPE_CHECKING:  # it is made of these parts
    from config.model.proxies import ProxyRecord

# --- access rules -------------------------------------------------------------------------------------------------

ENTRIES_MAX = 10_000
"""Entries in one list."""

Clients = Annotated[list[str], TextList(ENTRIES_MAX, read_network, json_patterns.NETWORK)]
Destinations = Annotated[list[str], TextList(ENTRIES_MAX, read_entry, json_patterns.WRITTEN_DESTINATION, in_a_labels)]
Mode = Literal["enforce", "report"]


class ProxyAccess(Group):
    """The access rules. In an update a list that is given replaces the old one.

    Without an entry every client may go everywhere, as far as the egress guard allows it.
    """

    allow_clients: Annotated[list[str], Given(Clients)] = Field(default_factory=list)
    deny_clients: Annotated[list[str], Given(Clients)] = Field(default_factory=list)
    allow_destinations: Annotated[list[str], Given(Destinations)] = Field(default_factory=list)
    deny_destinations: Annotated[list[str], Given(Destinations)] = Field(default_factory=list)
    mode: Annotated[Mode, Given(Mode)] = "enforce"


# --- where connections leave from: `bind_address` of a proxy, `egress` of a plan and of a rule ----------------------

EGRESS_MAX = 100
"""Entries in one list."""


def _usual_forms(entries: list[str]) -> list[str]:
    return [usual_form(each) for each in entries]


def _of_proxy(entry: str) -> str:
    """An entry of `bind_address` as it is stored. Raises `ValueError`."""
    return entry if is_address_of_node(entry) else usual_form(entry)


def _bind_address(given: Any) -> str | list[str]:
    """One address or network, empty for any address, or several; an empty list is any address as well."""
    if isinstance(given, str):
        return _of_proxy(given) if is_network(given) or is_address_of_node(given) else read_bind_address(given)
    if not isinstance(given, list):
        raise ValueError("must be an address, a network or a list of them")
    if len(given) > EGRESS_MAX:
        raise ValueError(f"must have at most {EGRESS_MAX} entries")
    return [_of_proxy(each) for each in each_entry(_of_proxy)(given)] or ""


BindAddress = Annotated[
    str | list[str],
    PlainValidator(_bind_address),
    json_patterns.any_of(
        json_patterns.EMPTY,
        json_patterns.text(json_patterns.SOURCE, highest=49),
        json_patterns.texts(json_patterns.SOURCE, EGRESS_MAX),
    ),
]
Egress = Annotated[list[str], TextList(EGRESS_MAX, read_egress, json_patterns.NETWORK), AfterValidator(_usual_forms)]
SomeEgress = Annotated[
    list[str], TextList(EGRESS_MAX, read_egress, json_patterns.NETWORK, least=1), AfterValidator(_usual_forms)
]


def refuse_foreign(entries: Iterable[str], field: str) -> None:
    """Raises `InvalidResource` for a single address that this machine doesn't have; networks need not be configured."""
    for index, entry in enumerate(entries):
        error = None if is_network(entry) or is_address_of_node(entry) else not_local(entry)
        if error is not None:
            routed = f"{entry}/{128 if ':' in entry else 32}"
            raise InvalidResource(f"{field}[{index}]", f"{error}; write {routed} if it is only routed here")


def entries_of(bind_address: str | list[str]) -> tuple[str, ...]:
    """The addresses and networks among which there is a choice; none where it is one address, or any."""
    if isinstance(bind_address, list):
        return tuple(bind_address)
    return (bind_address,) if is_network(bind_address) else ()


# --- names of hosts: what the proxy says in place of the settings `proxy.dns` ---------------------------------------

SERVERS_MAX = 8
HOSTS_MAX = 1000
ADDRESSES_MAX = 32
"""Of one name of `hosts`."""

Prefer = Literal["default", "any", "ipv4", "ipv6"]


def _server(text: str) -> str:
    return str(read_server(text))


NameServer = Annotated[StrictStr, Text(1, 512, _server, pattern=json_patterns.NAME_SERVER)]
HostsName = Annotated[StrictStr, Field(min_length=1, max_length=253), AfterValidator(read_hosts_name)]
Address = Annotated[StrictStr, Text(0, 45, read_address, pattern=json_patterns.ADDRESS, lengths=False)]
Servers = Annotated[list[NameServer], Field(max_length=SERVERS_MAX)]
Addresses = Annotated[
    list[Address],
    Field(min_length=1, max_length=ADDRESSES_MAX),
    BeforeValidator(lambda value: [value] if isinstance(value, str) else value),
]
"""A single one may be written without a list."""
_ONE, _SOME = json_patterns.text(json_patterns.ADDRESS), json_patterns.texts(json_patterns.ADDRESS, ADDRESSES_MAX, 1)
Hosts = Annotated[
    dict[HostsName, Addresses],
    Field(max_length=HOSTS_MAX),
    json_patterns.mapping({"pattern": json_patterns.HOSTS_NAME}, json_patterns.any_of(_ONE, _SOME), HOSTS_MAX),
]
Ttl = Annotated[StrictInt, Field(ge=0, le=TTL_MAX)]


class ProxyDns(Group):
    """How names are resolved for this proxy. What is empty, 0 or `default` is as in the settings (`proxy.dns`).

    `hosts` come before those of the settings. TTLs are seconds.
    """

    servers: Annotated[list[str], Given(Servers)] = Field(default_factory=list)
    hosts: Annotated[dict[str, list[str]], Given(Hosts)] = Field(default_factory=dict)
    prefer: Annotated[Prefer, Given(Prefer)] = "default"
    min_ttl: Annotated[int, Given(Ttl)] = 0
    max_ttl: Annotated[int, Given(Ttl)] = 0


def check_ttls(dns: ProxyDns) -> None:
    """Raise `InvalidProxy` when the shortest time is above the longest, where both are given."""
    if dns.max_ttl and dns.min_ttl > dns.max_ttl:
        raise InvalidProxy("dns.min_ttl", f"must not be above dns.max_ttl ({dns.max_ttl})")


# --- user names with parameters, as `alice-session-7-country-de` ----------------------------------------------------

Separator = Literal["-", ".", "+", "~", "=", ",", ";"]
"""What a URL may have in a user name as it is (RFC 3986 3.2.1) and no shell reads, but for letters, digits and `_`,
which names of parameters have, and the colon, which ends the user name in HTTP Basic (RFC 7617 2)."""


class UsernameParams(Group):
    """How user names with parameters are read. `reject_unknown`: unknown parameters are refused, not ignored."""

    enabled: Annotated[bool, Given(StrictBool)] = False
    separator: Annotated[Separator, Given(Separator)] = "-"
    reject_unknown: Annotated[bool, Given(StrictBool)] = False


# --- the authentication back end ----------------------------------------------------------------------------------

BACKEND_PURPOSE = SealedFor.BACKEND

OnError = Literal["deny", "allow_cached"]
_Timeout = Annotated[StrictInt | StrictFloat, Field(ge=0.1, le=60), json_patterns.number(60, minimum=0.1)]
_CacheSeconds = Annotated[StrictInt | StrictFloat, Field(ge=0, le=86_400), json_patterns.number(86_400, minimum=0)]


class AuthBackend(Group):
    """A service of the operator's own that decides about users who are no accounts. Seconds.

    `cache_seconds` is how long it holds that a user is allowed, `negative_seconds` that one isn't. While it fails,
    `allow_cached` lets in those who were allowed before.
    """

    url: Annotated[str, Given(Url)]
    timeout: Annotated[float, Given(_Timeout)] = 5
    cache_seconds: Annotated[float, Given(_CacheSeconds)] = 60
    negative_seconds: Annotated[float, Given(_CacheSeconds)] = 5
    on_error: Annotated[OnError, Given(OnError)] = "deny"
    secret_sealed: Annotated[str, SECRET] = Field("", repr=False)


@gives(AuthBackend)
class BackendInput(Body):
    """`auth.backend` of a request: any part; what is not given stays. Without a `secret` a new one is made."""

    secret: Secret | None = Field(None, repr=False)


def change_backend(before: AuthBackend | None, given: BackendInput, seal: SecretBox, makes: bool = True) -> AuthBackend:
    """As it is to be stored. Without a secret one is made if `makes`.

    Raises `InvalidProxy`, `SecretBoxError`.
    """
    after = (before or AuthBackend(url="")).model_copy(update=update(before or AuthBackend(url=""), given))
    if not after.url:
        raise InvalidProxy("auth.backend.url", "is required")
    secret = given.secret
    if not after.secret_sealed and secret is None:
        if not makes:
            raise InvalidProxy("auth.backend.secret", "is required: no such secret is known here")
        secret = new_secret()
    if secret is None:
        return after
    return after.model_copy(update={"secret_sealed": seal.reseal(after.secret_sealed, secret, BACKEND_PURPOSE)})


def set_secret(before: AuthBackend | None, after: AuthBackend | None, seal: SecretBox) -> str | None:
    """The secret, if this change has set it. Raises `SecretBoxError`."""
    known = "" if before is None else before.secret_sealed
    return None if after is None or after.secret_sealed == known else seal.open(after.secret_sealed, BACKEND_PURPOSE)


class FieldWarning(NamedTuple):
    """A warning, and the field that causes it."""

    field: str
    warning: str


def warnings(record: ProxyRecord) -> list[FieldWarning]:
    """The warnings about a proxy; none for one that listens at loopback alone."""
    if is_loopback(record.host):
        return []
    found = []
    if not record.auth.enabled and _admits_all(record.access):
        found.append(
            FieldWarning(
                "auth.enabled",
                f"any client that reaches {record.host} port {record.port} can use this proxy: it asks for no "
                "credentials, and access.allow_clients allows all clients",
            )
        )
    if record.accept_proxy_protocol:
        found.append(
            FieldWarning(
                "accept_proxy_protocol",
                f"any client that reaches {record.host} port {record.port} can claim any address: "
                "allow only the balancer to reach it",
            )
        )
    return found


def _admits_all(access: ProxyAccess) -> bool:
    everything = any(ip_network(each).prefixlen == 0 for each in access.allow_clients)
    return not access.allow_clients or everything or access.mode == "report"


class ServerCertificate(Protocol):
    """The files of `server.tls`, None where the operator named none."""

    @property
    def cert_file(self) -> Path | None: ...

    @property
    def key_file(self) -> Path | None: ...


def check_certificate(record: ProxyRecord, of_server: ServerCertificate) -> None:
    """A proxy that speaks TLS needs a certificate that can be used: its own, else that of `server.tls`.

    Raises `InvalidProxy`.
    """
    if not record.speaks_tls:
        return
    own = record.tls
    has_pair = own is not None and own.cert_file is not None
    if not has_pair and (of_server.cert_file is None or of_server.key_file is None):
        raise InvalidProxy("tls", f"is required for {record.protocol}, since server.tls has no cert_file and key_file")
    cert, key = (own.cert_file, own.key_file) if own and has_pair else (of_server.cert_file, of_server.key_file)
    assert cert is not None
    assert key is not None
    try:
        context = server_context(Path(cert), Path(key))
    except CertificateError as error:
        field = f"tls.{error.field}" if has_pair else f"server.tls.{error.field}"
        raise InvalidProxy(field, for_callers(field, error.error)) from error
    if own is not None and own.client_ca is not None:
        _check_client_files(context, ClientFiles(own.client_ca, own.client_crl))


def _check_client_files(context: ssl.SSLContext, files: ClientFiles) -> None:
    try:
        ask_clients(context, files)
    except CertificateError as error:
        field = f"tls.{error.field}"
        raise InvalidProxy(field, for_callers(field, error.error)) from error


def refuse_ended_certificate(
    record: ProxyRecord, of_server: ServerCertificate, served_until: float, now: float
) -> None:
    """Refuse files whose certificate has ended while the one that is served, which ends at `served_until`, has not.

    For a proxy whose certificate `check_certificate` found good. Times are Unix seconds. Raises `InvalidProxy`.
    """
    own = record.tls.cert_file if record.tls else None
    cert_file = own or of_server.cert_file
    if not record.speaks_tls or cert_file is None or served_until <= now:
        return
    ends = ends_at(Path(cert_file))
    if ends <= now:
        field = "tls.cert_file" if own else "server.tls.cert_file"
        until = timestamp_text(served_until)
        error = f"ended at {timestamp_text(ends)}, and the process that runs serves a certificate that ends at {until}"
        raise InvalidProxy(field, error)
