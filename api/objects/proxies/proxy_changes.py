"""What a change of a proxy has to pass beside its model: secrets are sealed, chains of proxies end, upstreams and name
servers are allowed, and a key with a scope leaves alone what others share.

A proxy with a pool has the upstreams of that as if they were its own. Names of upstreams and name servers are checked
where they are resolved, by the process of the proxy (`actors.net.egress_guard.UpstreamGuard`) or the resolver
(`NameServerGuard`), and so is all that is stored. A forbidden address in a request is refused here already, with its
field.

Of a scope: pools have credentials of their own, policies are attached by others, tags decide which accounts a proxy
has, files and source addresses belong to the machine. Such fields stay as they are or become what the scope names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

from actors.bus.messages.specs import EgressSpec
from actors.net.egress_guard import LOOPBACK, NameServerGuard, OwnListeners, UpstreamGuard, is_localhost
from actors.resolver.system_config import system_servers
from api.errors import Denied
from api.security.api_keys import Scope
from config.files.secret_box import SecretBox
from config.model.fields import InvalidProxy
from config.model.object_fields import Named, names_of_proxy
from config.model.proxies import ProxyRecord, ProxyTls, ProxyUpdate
from config.model.proxy_parts import change_backend
from config.model.shared_objects.pools import Pool
from config.model.shared_objects.upstreams import Listeners, ProxyUpstream, refuse_itself, replace_upstreams
from config.net.addresses import tcp_parts
from config.net.dns_servers import read_server
from config.settings.settings import ProxyGroup, Server

# --- secrets ------------------------------------------------------------------------------------------------------


def with_secrets(record: ProxyRecord, body: ProxyUpdate, seal: SecretBox, makes: bool = True) -> ProxyRecord:
    """`record` with the upstreams and the back end of `body`, if it names any. Without a secret one is made if `makes`.

    Raises `InvalidProxy`, `SecretBoxError`.
    """
    changed: dict[str, Any] = {}
    if body.upstreams is not None:
        changed["upstreams"] = replace_upstreams(record.upstreams, body.upstreams, seal, ProxyUpstream)
    upstreams = changed.get("upstreams", record.upstreams)
    if record.pool is not None and upstreams:
        raise InvalidProxy("pool", "takes the place of upstreams, and a proxy has one of both: give upstreams as []")
    refuse_itself(upstreams, record.host, record.ports)
    if body.auth is not None and "backend" in body.auth.model_fields_set:
        given = body.auth.backend
        backend = None if given is None else change_backend(record.auth.backend, given, seal, makes)
        changed["auth"] = record.auth.model_copy(update={"backend": backend})
    return record.model_copy(update=changed)


# --- chains -------------------------------------------------------------------------------------------------------

OfPool = Callable[[str], Sequence[ProxyUpstream]]
"""The upstreams of the pool of this name; none if there is no such pool."""


def with_pool(record: ProxyRecord, of_pool: OfPool) -> ProxyRecord:
    """The proxy with the upstreams of its pool, if it has one."""
    if record.pool is None:
        return record
    return record.model_copy(update={"upstreams": list(of_pool(record.pool))})


def listeners_of(records: Iterable[ProxyRecord], of_pool: OfPool) -> Listeners:
    """All proxies with what they lead to, for `refuse_chain`."""
    return Listeners(with_pool(each, of_pool) for each in records)


def refuse_chain(record: ProxyRecord, listeners: Listeners, of_pool: OfPool) -> None:
    """Raise `InvalidProxy` when the upstreams of a proxy lead back to it."""
    chained = with_pool(record, of_pool)
    try:
        refuse_itself(chained.upstreams, record.host, record.ports)
        listeners.refuse_circle(chained)
    except InvalidProxy as error:
        if record.pool is None:
            raise
        raise InvalidProxy("pool", f"{error.field} of the pool: {error.error}") from error


def refuse_pool(name: str, upstreams: Sequence[ProxyUpstream], records: Sequence[ProxyRecord], of_pool: OfPool) -> None:
    """Raise `InvalidProxy` when with these upstreams of a pool one of the proxies would lead back to itself."""

    def changed(pool: str) -> Sequence[ProxyUpstream]:
        return upstreams if pool == name else of_pool(pool)

    listeners = listeners_of(records, changed)
    for each in records:
        if each.pool == name:
            try:
                refuse_chain(each, listeners, changed)
            except InvalidProxy as error:
                raise InvalidProxy("upstreams", f"the proxy {each.name!r} has this pool: {error.error}") from error


# --- addresses ----------------------------------------------------------------------------------------------------

FOREIGN = "is a proxy that the key's scope doesn't have"


@dataclass(frozen=True, slots=True)
class UpstreamPolicy:
    """The settings about it; `services` are the addresses of the product's own listeners that aren't proxies."""

    proxy: ProxyGroup
    services: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, server: Server, proxy: ProxyGroup, metrics: Mapping[str, Any]) -> UpstreamPolicy:
        """From these groups; `metrics` is plain."""
        published = tcp_parts(str(metrics.get("publish", "")))
        return cls(proxy, ((server.host, server.port), *((published,) if published else ())))

    def refuse(
        self, record: ProxyRecord | Pool, records: Iterable[ProxyRecord], scope: frozenset[str] | None = None
    ) -> None:
        """Raise `InvalidProxy` when an upstream of a proxy or pool may not be used; `records` are all proxies.

        With a `scope`, the ids of the proxies that the caller may change, no other proxy is a good upstream either.
        """
        known = [each for each in records if each.id != record.id]
        guard = self._guard(known)
        foreign = OwnListeners((), (each.listens_at for each in known if scope is not None and each.id not in scope))
        for index, upstream in enumerate(record.upstreams):
            address = _address(upstream.host)
            if address is None:
                continue
            if foreign.has(address, upstream.port):
                raise InvalidProxy(f"upstreams[{index}].host", FOREIGN)
            refused = guard.check(address, upstream.port, upstream.host)
            if refused is not None:
                raise InvalidProxy(f"upstreams[{index}].host", refused)

    def refuse_name_servers(self, record: ProxyRecord, records: Iterable[ProxyRecord]) -> None:
        """Raise `InvalidProxy` when a name server of a proxy may not be asked; `records` are all proxies."""
        servers = [read_server(text) for text in record.dns.servers]
        ranges = [each.listens_at for each in (*records, record)] if servers else []
        named = [(each.host, each.port) for each in map(read_server, self.proxy.dns.servers)]
        named += [(each, 53) for each in system_servers()] if servers else []
        guard = NameServerGuard(OwnListeners(self.services, ranges), self.proxy.dns_allow, lambda: named)
        for index, server in enumerate(servers):
            address = _address(server.host)
            refused = None if address is None else guard.check(address, server.port, server.host)
            if refused is not None:
                raise InvalidProxy(f"dns.servers[{index}]", refused)

    def _guard(self, records: Iterable[ProxyRecord]) -> UpstreamGuard:
        proxy, services = self.proxy, self.services
        return UpstreamGuard(
            EgressSpec(
                proxy.egress_guard,
                proxy.egress_allow,
                services,
                services,
                proxy.upstreams_allow,
                own_ranges=tuple(each.listens_at for each in records),
            )
        )


def _address(host: str) -> str | None:
    """The address, that of loopback for `localhost`, or None for a name."""
    if is_localhost(host):
        return LOOPBACK
    try:
        return str(ip_address(host))
    except ValueError:
        return None


# --- scopes of keys -----------------------------------------------------------------------------------------------

_FILES = ("cert_file", "key_file", "client_ca", "client_crl")
_OF_ALL = ("tags", "bind_address")


def refuse_beyond(scope: Scope, before: ProxyRecord, after: ProxyRecord, body: ProxyUpdate) -> None:
    """Raise `Denied` when a change reaches beyond the scope; `after` need not have the upstreams of `body` yet."""
    for name in ("policy", "pool"):
        _refuse_single(scope, name, getattr(before, name), getattr(after, name))
    _refuse_lists(scope, before, after)
    for field in _others(before, after, body):
        raise Denied(f"{field}: a key with a scope can't change it, since it is not the proxy's alone")


def _refuse_single(scope: Scope, field: str, before: str | None, after: str | None) -> None:
    collection = {"policy": "policies", "pool": "pools"}[field]
    if after != before and after not in (scope.named(collection) or ()):
        given = f"the {field} {after!r} is not in the key's scope" if after else f"the proxy keeps its {field}"
        raise Denied(f"{field}: {given}; it may stay, or be one of scope.{collection}")


def _refuse_lists(scope: Scope, before: ProxyRecord, after: ProxyRecord) -> None:
    """Lists that the scope doesn't name are neither added nor taken away."""
    known, given = _foreign_lists(scope, before), _foreign_lists(scope, after)
    for field, name in sorted(known ^ given):
        what = "is not in the key's scope" if (field, name) in given else "stays: it is not in the key's scope"
        raise Denied(f"{field}: the list {name!r} {what} (scope.lists)")


def _foreign_lists(scope: Scope, record: ProxyRecord) -> set[tuple[str, str]]:
    """Field and name of each list in the rules of a proxy that the scope doesn't name."""
    lists = (each for each in names_of_proxy(record) if each.collection == "lists")
    return {(_list_of(each), each.name) for each in lists if each.name not in (scope.lists or ())}


def _list_of(named: Named) -> str:
    return named.field.partition("[")[0]


def _others(before: ProxyRecord, after: ProxyRecord, body: ProxyUpdate) -> Iterator[str]:
    """The fields of the whole machine that the change alters."""
    yield from (name for name in _OF_ALL if getattr(before, name) != getattr(after, name))
    known, given = before.tls or ProxyTls(), after.tls or ProxyTls()
    yield from (f"tls.{name}" for name in _FILES if getattr(known, name) != getattr(given, name))
    files = {None, *(each.ca_file for each in before.upstreams)}
    for index, entry in enumerate(body.upstreams or ()):
        if entry.tls is not None and entry.tls.ca_file not in files:
            yield f"upstreams[{index}].tls.ca_file"
