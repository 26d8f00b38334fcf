"""The process of the resolver: its composition root, its Unix socket and the actors that are connected to it
(`actors.net.resolver_protocol`). See `actors.resolver`."""

from __future__ import annotations

import logging
import os
import select
import socket
from collections.abc import Callable, Collection, Iterator
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

import msgpack

from actors.bus.loop import Loop
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
from actors.log_lines import ThrottledLog
from actors.net.accepting import pause_accepting
from actors.net.egress_guard import NameServerGuard, OwnListeners, own_addresses
from actors.net.resolver_protocol import FORGET, PING, PONG, PROFILE, PacketLink
from actors.process import Actor, Boot
from actors.resolver.profiles import DnsProfile, ProfileKey
from actors.resolver.service import Guard, LookupReply, Service
from actors.resolver.system_config import SystemConfig
from actors.resolver.wire import AAAA
from config.net.dns_servers import read_server

BACKLOG = 1024
UNSENT_MAX = 20_000
"""Packets that wait for an actor that reads none; beyond that its connection is closed."""

log = logging.getLogger(__name__)


class Clients:
    """Listens at `path`. Raises `OSError` when it can't."""

    def __init__(self, loop: Loop, path: Path, service: Service) -> None:
        self._loop = loop
        self._service = service
        self._clients: set[_Client] = set()
        path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        self._listener.bind(str(path))
        os.chmod(path, 0o600)
        self._listener.listen(BACKLOG)
        self._no_descriptor = ThrottledLog(log, "an actor can't be accepted")
        self._listen()

    def forget(self, name: str) -> None:
        """Have all actors drop what they keep of a name, or of all."""
        for client in tuple(self._clients):
            client.send([FORGET, name])

    def close(self) -> None:
        """Close everything."""
        for client in tuple(self._clients):
            client.close()
        self._loop.unwatch(self._listener.fileno())
        self._listener.close()

    def _listen(self) -> None:
        if self._listener.fileno() >= 0:  # not closed meanwhile
            self._loop.watch(self._listener.fileno(), select.EPOLLIN, self._accept)

    def _accept(self, _mask: int) -> None:
        try:
            sock, _address = self._listener.accept()
        except OSError as error:
            if pause_accepting(self._loop, self._listener, error, self._listen):  # it waits in the queue
                self._no_descriptor.error(error)
            return
        self._no_descriptor.recovered()
        sock.setblocking(False)
        self._clients.add(_Client(self._loop, sock, self._service, self._clients.discard))


class _Client:
    """One actor."""

    def __init__(self, loop: Loop, sock: socket.socket, service: Service, closed: Callable[[_Client], None]) -> None:
        self._loop = loop
        self._service = service
        self._closed = closed
        self._profile: DnsProfile = service.acquire(ProfileKey())
        self._proxy = ""
        self._link = PacketLink(loop, sock, self._handle, self._gone)

    def send(self, packet: list[Any]) -> None:
        """Send a packet, or have it wait until the actor reads again."""
        self._link.send(packet)
        if self._link.waiting > UNSENT_MAX:
            log.error("an actor reads no replies: its connection is closed")
            self.close()

    def close(self) -> None:
        """End the connection."""
        if self._link.is_open:
            self._link.close()
            self._gone()

    def _gone(self) -> None:
        self._service.release(self._profile)
        self._closed(self)

    def _handle(self, packet: bytes) -> None:
        try:
            number, *rest = msgpack.unpackb(packet)
            if number == PROFILE:
                servers, min_ttl, max_ttl, *proxy = rest
                self._proxy = str(*proxy)
                self._use(ProfileKey(tuple(map(str, servers)), int(min_ttl), int(max_ttl)))
            elif number == PING:
                self.send([PONG])
            else:
                name, client = rest
                whose = self._proxy, str(client)
                self._service.resolve(self._profile, str(name).lower(), whose, partial(self._reply, number))
        except (ValueError, TypeError, msgpack.exceptions.UnpackException) as error:
            log.error("a packet of an actor is not understood, its connection is closed: %s", error)
            self.close()

    def _use(self, key: ProfileKey) -> None:
        before, self._profile = self._profile, self._service.acquire(key)
        self._service.release(before)

    def _reply(self, number: int, reply: LookupReply) -> None:
        self.send([number, reply.status, max(0.0, min(reply.until - self._loop.now, 1e9)), reply.content])


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
