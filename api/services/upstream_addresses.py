"""Which upstreams and name servers a request may name, as far as they are written as addresses.

Names are checked where they are resolved, by the process of the proxy (`actors.net.egress_guard.UpstreamGuard`) or the
resolver (`NameServerGuard`), and so is all that is stored. A forbidden address in a request is refused here already,
with its field.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

from actors.bus.messages.specs import EgressSpec
from actors.net.egress_guard import LOOPBACK, NameServerGuard, OwnListeners, UpstreamGuard, is_localhost
from actors.resolver.system_config import system_servers
from config.model.fields import InvalidProxy
from config.model.pools import Pool
from config.model.proxies import ProxyRecord
from config.net.addresses import tcp_parts
from config.net.dns_servers import read_server
from config.settings.settings import ProxyGroup, Server

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
