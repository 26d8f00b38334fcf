"""From a name to addresses, off the loop, with a small cache that also keeps failures for a while.

`getaddrinfo` returns no time to live, so results are kept for a fixed time. Lookups of one name at the same time
are one lookup. It may also block for half a minute, when the name servers of a zone are silent: so no client has more
than a share of the threads, nor has a zone, and names of this machine's own (`hosts_file`) need no thread at all.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from actors.bounded import keep
from actors.bus.loop import Loop
from actors.fair_thread_pool import DROPPED, FairThreadPool
from actors.forwarding.net.hosts_file import LOOPBACK, HostsFile
from actors.forwarding.protocols.failures import Failure, dns_failed
from actors.forwarding.requester import OURSELVES, Requester
from actors.net.client_key import site_key
from actors.net.egress_guard import is_localhost

FAILURE_KEPT = 3.0
"""Seconds that a failure is kept at most."""
CACHE_SIZE = 4096

THREADS = 32
SHARE_OF_CLIENT = 12
SHARE_OF_ZONE = 8
"""A zone is the last two labels of a name: near enough to what has name servers of its own."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """The addresses of a name in the order to try them."""

    addresses: tuple[str, ...]


Resolution = Resolved | Failure
OnResolved = Callable[[Resolution], None]
Lookup = Callable[[str], Resolution]

_LOOPBACK = Resolved(LOOPBACK)


def look_up(host: str) -> Resolution:
    """The addresses by the system's resolver; blocks."""
    try:
        entries = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as error:
        reason = error.strerror if isinstance(error, socket.gaierror) and error.strerror else "not a name"
        return dns_failed(f"{host} does not resolve: {reason}")
    except OSError as error:  # EAI_SYSTEM, for one when no descriptor is left
        return dns_failed(f"{host} can't be resolved: {error.strerror or error}")
    return Resolved(tuple(dict.fromkeys(str(entry[4][0]) for entry in entries)))


def new_threads(loop: Loop) -> FairThreadPool:
    """The threads of a resolver."""
    return FairThreadPool(loop, THREADS, (SHARE_OF_CLIENT, SHARE_OF_ZONE))


@dataclass(slots=True)
class _Pending:
    """A lookup that waits or runs: who has requested it, and for which clients it waits."""

    requests: list[tuple[Requester, OnResolved]] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)
    running: bool = False


class Resolver:
    """Names to addresses for one actor."""

    def __init__(
        self, loop: Loop, threads: FairThreadPool, lookup: Lookup = look_up, hosts: HostsFile | None = None
    ) -> None:
        self.kept = 30.0
        """Seconds that addresses are kept: `proxy.dns_cache_seconds`."""
        self._loop = loop
        self._threads = threads
        self._lookup = lookup
        self._hosts = hosts or HostsFile()
        self._cache: dict[str, tuple[float, Resolution]] = {}
        self._pending: dict[str, _Pending] = {}

    def resolve(self, host: str, done: OnResolved, requester: Requester = OURSELVES) -> None:
        """Call `done` with the result, in this very call when it is known.

        When the requester doesn't wait any more as its turn comes, nothing is looked up, and `done` is called with a
        failure, as it is when too many names of its client wait already.
        """
        known = self.known(host)
        if known is not None:
            done(known)
            return
        pending = self._pending.get(host)
        if pending is None:
            pending = self._pending[host] = _Pending()
        pending.requests.append((requester, done))
        key = site_key(requester.client_ip)
        if not pending.running and key not in pending.keys:
            pending.keys.add(key)
            ended, starts = partial(self._on_result, host, pending, key), partial(self._may_start, host, pending)
            self._threads.submit((key, zone_of(host)), partial(self._lookup, host), ended, starts)

    def known(self, host: str) -> Resolution | None:
        """The result where no lookup is needed: names of this machine, and cached ones."""
        if is_localhost(host):
            return _LOOPBACK
        addresses = self._hosts.find(host, self._loop.now)
        if addresses is not None:
            return Resolved(addresses)
        until, result = self._cache.get(host, (0.0, None))
        return result if until > self._loop.now else None

    def _on_result(self, host: str, pending: _Pending, key: str, result: Resolution | object | None) -> None:
        if result is DROPPED:
            self._on_dropped(host, pending, key)
            return
        resolution = result if isinstance(result, (Resolved, Failure)) else dns_failed(f"{host} can't be resolved")
        kept = self.kept if isinstance(resolution, Resolved) else min(self.kept, FAILURE_KEPT)
        keep(self._cache, host, (self._loop.now + kept, resolution), CACHE_SIZE)
        del self._pending[host]
        for _requester, done in pending.requests:
            done(resolution)

    def _may_start(self, host: str, pending: _Pending) -> bool:
        """Its turn has come. It runs once, and not at all when no requester waits any more."""
        if pending.running:
            return False
        pending.running = any(requester.waits for requester, _done in pending.requests)
        if not pending.running and self._pending.get(host) is pending:
            del self._pending[host]  # the next request begins another lookup
        return pending.running

    def _on_dropped(self, host: str, pending: _Pending, key: str) -> None:
        """It did not run in the turn of this client: fail the client's requests, unless it runs in another's turn."""
        if pending.running:
            return
        gone = [done for requester, done in pending.requests if site_key(requester.client_ip) == key]
        pending.requests = [each for each in pending.requests if site_key(each[0].client_ip) != key]
        pending.keys.discard(key)
        if not pending.requests and self._pending.get(host) is pending:
            del self._pending[host]
        for done in gone:
            done(dns_failed(f"{host} was not looked up: too many names wait, or the client has gone"))


def zone_of(host: str) -> str:
    """The last two labels of a name."""
    return ".".join(host.rstrip(".").rsplit(".", 2)[-2:])
