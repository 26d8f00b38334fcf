"""The process of the resolver: the composition root. See `actors.resolver`."""

from __future__ import annotations

import socket
from collections.abc import Collection, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

from actors.bus.mailbox import Reply, refuse
from actors.bus.messages.common import EGRESS, PROXY_RESOLVER
from actors.bus.messages.dns import (
    DnsCache,
    DnsEntry,
    DnsServerState,
    DnsState,
    ForgetNames,
    NamesForgotten,
    QueryDns,
    QueryDnsCache,
)
from actors.net.egress_guard import NameServerGuard, OwnListeners, own_addresses
from actors.process import Actor, Boot
from actors.resolver.clients import Clients
from actors.resolver.service import Guard, Service
from actors.resolver.system_config import SystemConfig
from actors.resolver.wire import AAAA
from config.net.dns_servers import read_server


class ResolverActor(Actor):
    """`boot.params` may have `resolv_conf`, `nsswitch_conf` and the `port` of the servers in it.

    It is started a second time for the name servers that proxies name, which it asks only where its settings allow it,
    `proxy` and `egress`.
    """

    def __init__(self, boot: Boot, sockets: list[socket.socket]) -> None:
        super().__init__(boot, sockets)
        params = boot.params
        self._of_proxies = boot.name == PROXY_RESOLVER
        self._system = system = SystemConfig(
            Path(params.get("resolv_conf", "/etc/resolv.conf")),
            Path(params.get("nsswitch_conf", "/etc/nsswitch.conf")),
            int(params.get("port", 53)),
        )
        self._service = Service(self.loop, system, self._forget_in_actors, self._guard() if self._of_proxies else None)
        path = self.run_dir.proxy_resolver if self._of_proxies else self.run_dir.resolver
        self._clients = Clients(self.loop, path, self._service)
        self.ready()

    def settings_changed(self, groups: Collection[str]) -> None:
        """See `Actor`: which name servers may be asked."""
        if self._of_proxies and not {"proxy", EGRESS}.isdisjoint(groups):
            self._service.guard_by(self._guard())

    def _guard(self) -> Guard:
        proxy, own = self.settings["proxy"], self.settings[EGRESS]
        listeners = OwnListeners(*own_addresses(own))
        servers = frozenset((each.host, each.port) for each in map(read_server, proxy["dns"]["servers"]))

        def named() -> Iterator[tuple[str, int]]:
            self._system.refresh(self.loop.now)
            return chain(servers, self._system.servers)

        return NameServerGuard(listeners, proxy["dns_allow"], named).check

    def receive(self, sender: str, message: Any, reply: Reply) -> None:
        """See `Actor`."""
        if isinstance(message, QueryDnsCache):
            reply(DnsCache(self._entries(message), len(self._service.cache)))
        elif isinstance(message, ForgetNames):
            reply(NamesForgotten(self._service.forget(message.name)))
        elif isinstance(message, QueryDns):
            reply(self._state())
        else:
            refuse(sender, message, reply)

    def _forget_in_actors(self, name: str) -> None:
        self._clients.forget(name)

    def _entries(self, query: QueryDnsCache) -> tuple[DnsEntry, ...]:
        now = self.loop.now
        return tuple(
            DnsEntry(
                name,
                "AAAA" if kind == AAAA else "A",
                outcome.status,
                outcome.addresses,
                outcome.until - now,
                profile.servers,
                outcome.detail,
            )
            for (profile, name, kind), outcome in islice(self._service.cache.entries(now, query.name), query.limit)
        )

    def _state(self) -> DnsState:
        service, counts = self._service, self._service.counts
        silent = service.silent_servers()
        servers = tuple(
            DnsServerState(name, each.queries, each.failures, each.seconds, each.latency, name in silent)
            for name, each in sorted(counts.servers.items())
        )
        return DnsState(
            counts.requests,
            counts.hits,
            counts.failures,
            len(service.cache),
            service.waiting,
            dict(counts.dropped),
            servers,
        )

    def close(self) -> None:
        """See `Actor`."""
        self._clients.close()
        self._service.close()
        super().close()
