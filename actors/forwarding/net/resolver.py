"""From a name to addresses, with a small cache in front of the resolver's that also keeps failures for a while.

Names are resolved by the actor `resolver` (`resolver_link`), and kept for their time to live. Lookups of one name at
the same time are one lookup. While the resolver can't be reached, and for names that the DNS doesn't have, threads call
`getaddrinfo`. Never for a proxy with name servers of its own, though: the system's must not see its names, which wait
for the resolver a moment, and fail then. `getaddrinfo` returns no time to live, so its results are kept for a fixed
time. It may also block for half a minute, when the name servers of a zone are silent: so no client has more than a
share of the threads, nor has a zone, and names of this machine's own (`actors.net.this_machine`) need no thread at all.

In which order the addresses of a target are tried (RFC 8305, section 4), and what was learned from earlier attempts.
The families take turns. What was silent while another address connected, and a family that has no way out, come last
for a while: so a black hole costs its delay once. The first success puts an address and its family right again.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, zip_longest

from actors.bounded import keep
from actors.bus.loop import Loop
from actors.forwarding.isolation import OURSELVES, Requester
from actors.forwarding.net.resolver_link import DnsSettings, ResolverLink, ResolverReply
from actors.forwarding.protocols.failures import Failure, dns_failed, dns_unanswered
from actors.net.client_key import site_key
from actors.net.egress_guard import is_localhost
from actors.net.resolver_protocol import BUSY, FOUND, NEGATIVE, SOME, SYSTEM, TIMED_OUT
from actors.net.this_machine import LOOPBACK, HostsFile
from actors.thread_pool import DROPPED, FairThreadPool

SHUNNED_FIRST, SHUNNED_LONGEST = 60.0, 600.0
"""Seconds that a silent address or family comes last; doubled each time that it is silent again."""
KNOWN_MAX = 1024


def is_v6(address: str) -> bool:
    """Whether it is an IPv6 address."""
    return ":" in address


def preferring(addresses: Iterable[str], v6_first: bool) -> tuple[str, ...]:
    """The addresses with those of one family first, and else in their order."""
    return tuple(sorted(addresses, key=lambda each: is_v6(each) != v6_first))


class AddressOrder:
    """`now` is the loop's clock."""

    def __init__(self) -> None:
        self._silent: dict[str | bool, tuple[float, float]] = {}
        """By address or family (True: IPv6): until when it comes last, and for how long that was."""

    def order(self, addresses: Sequence[str], now: float) -> list[str]:
        """The addresses as they are to be tried."""
        if len(addresses) < 2:
            return list(addresses)
        first = is_v6(addresses[0])
        own, other = [a for a in addresses if is_v6(a) is first], [a for a in addresses if is_v6(a) is not first]
        mixed = [each for each in chain.from_iterable(zip_longest(own, other)) if each is not None]
        return sorted(mixed, key=lambda each: self._rank(each, now)) if self._silent else mixed

    def was_silent(self, address: str, connected: str, now: float) -> None:
        """`address` had not connected in its time when a later one did, perhaps of the other family."""
        self._shun(address, now)
        if is_v6(address) is not is_v6(connected):
            self._shun(is_v6(address), now)

    def has_no_route(self, address: str, now: float) -> None:
        """The kernel knows no way to this address, and so to none of its family in most cases."""
        self._shun(is_v6(address), now)

    def has_connected(self, address: str) -> None:
        """It works."""
        if self._silent:
            self._silent.pop(address, None)
            self._silent.pop(is_v6(address), None)

    def _shun(self, key: str | bool, now: float) -> None:
        until, lasted = self._silent.get(key, (0.0, 0.0))
        if until <= now:
            lasts = min(max(SHUNNED_FIRST, 2 * lasted), SHUNNED_LONGEST)
            keep(self._silent, key, (now + lasts, lasts), KNOWN_MAX)

    def _rank(self, address: str, now: float) -> int:
        silent = self._silent
        of_family, of_address = silent.get(is_v6(address), (0.0, 0.0)), silent.get(address, (0.0, 0.0))
        return 2 * (of_family[0] > now) + (of_address[0] > now)


FAILURE_TTL = 3.0
"""Seconds that a failure is kept at most."""
CACHE_SIZE = 4096
AWAITED = 3.0
"""Seconds that a name waits for the resolver where only that may be asked: it is started with the first such proxy, and
again when it has ended."""
ASKED_EVERY = 0.1

THREADS = 32
SHARE_OF_CLIENT = 12
SHARE_OF_ZONE = 8
"""A zone is the last two labels of a name: near enough to what has name servers of its own."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """The addresses of a name in the order to try them. `more`: all of them follow in another call."""

    addresses: tuple[str, ...]
    more: bool = False


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
    """A lookup that waits or runs: who has requested it, and for which clients it waits.

    A request may take results in two parts. `running` in a thread; `part`: the addresses that are known already.
    """

    requests: list[tuple[Requester, OnResolved, bool]] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)
    running: bool = False
    part: Resolved | None = None


class Resolver:
    """Names to addresses for one actor."""

    def __init__(
        self,
        loop: Loop,
        threads: FairThreadPool,
        lookup: Lookup = look_up,
        hosts: HostsFile | None = None,
        link: ResolverLink | None = None,
    ) -> None:
        self.longest_ttl = 30.0
        """Seconds that addresses are kept at most: `proxy.dns_cache_seconds`."""
        self.prefers = "any"
        """The family whose addresses come first: `ipv4`, `ipv6`, or `any`."""
        self.names: Mapping[str, tuple[str, ...]] = {}
        """Addresses of names that are not looked up: `hosts` of `dns`."""
        self._dns = DnsSettings()
        self._link = link
        if link is not None:
            link.on_forget = self.forget
        self._loop = loop
        self._threads = threads
        self._lookup = lookup
        self._hosts = hosts or HostsFile()
        self._cache: dict[str, tuple[float, Resolution]] = {}
        self._pending: dict[str, _Pending] = {}

    def resolve(self, host: str, done: OnResolved, requester: Requester = OURSELVES, in_parts: bool = False) -> None:
        """Call `done` with the result, in this very call when it is known; with `in_parts` perhaps twice, the first
        time with those addresses that are not late.

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
        pending.requests.append((requester, done, in_parts))
        if pending.part is not None and in_parts:
            done(pending.part)
        key = site_key(requester.client_ip)
        if not pending.running and key not in pending.keys:
            pending.keys.add(key)
            self._ask(host, pending, key, self._loop.now + AWAITED)

    def configure(self, dns: DnsSettings) -> None:
        """Resolve names in another way from now on."""
        if dns != self._dns:
            self._dns = dns
            self.prefers, self.names = dns.prefers, dns.names
            self.forget()
            if self._link is not None:
                self._link.set_profile(dns.profile)

    def forget(self, host: str = "") -> None:
        """Drop what is kept of a name, or of all."""
        if host:
            self._cache.pop(host, None)
        else:
            self._cache.clear()

    def known(self, host: str) -> Resolution | None:
        """The result where no lookup is needed: names of this machine, and cached ones."""
        if is_localhost(host):
            return _LOOPBACK
        if self.names and (named := self.names.get(host.lower().rstrip("."))):
            return Resolved(named)
        addresses = self._hosts.find(host, self._loop.now)
        if addresses is not None:
            return Resolved(addresses)
        until, result = self._cache.get(host, (0.0, None))
        return result if until > self._loop.now else None

    def overdue(self, host: str) -> Failure:
        """For a client that waits no longer for a name."""
        return self._unanswered(host, f"{host} did not resolve in time", timed_out=True)

    # --- by the resolver ---

    def _ask(self, host: str, pending: _Pending, key: str, until: float) -> None:
        """Ask the resolver; where it can't be reached the system, or, with own name servers, the resolver again."""
        if self._pending.get(host) is not pending:
            return
        if self._link is not None and self._link.ask(host, key, partial(self._on_reply, host, pending, key, until)):
            return
        if not self._dns.profile.proxy:
            self._use_thread(host, pending, key)
        elif self._loop.now < until:
            self._loop.call_later(ASKED_EVERY, partial(self._ask, host, pending, key, until))
        else:
            self._finish(host, pending, self._unanswered(host, f"{host} does not resolve: the resolver does not run"))

    def _unanswered(self, host: str, why: str, timed_out: bool = False) -> Failure:
        """With own name servers clients don't learn either whether time ran out: it would say how a server fails."""
        return dns_unanswered(host, why, timed_out and not self._dns.profile.proxy)

    def _on_reply(self, host: str, pending: _Pending, key: str, until: float, reply: ResolverReply | None) -> None:
        if self._pending.get(host) is not pending:
            return
        if reply is None and pending.part is None and not pending.running and self._dns.profile.proxy:
            self._ask(host, pending, key, until)
        elif reply is None or reply.status == SYSTEM:
            if pending.part is not None:
                self._finish(host, pending, Resolved(pending.part.addresses))
            elif not pending.running:
                self._use_thread(host, pending, key)
        elif reply.status == BUSY:
            self._on_dropped(host, pending, key)
        elif reply.status in (SOME, FOUND):
            self._found(host, pending, reply)
        else:
            is_negative = reply.status == NEGATIVE
            timed_out = reply.status == TIMED_OUT
            failure = dns_failed(reply.content) if is_negative else self._unanswered(host, reply.content, timed_out)
            self._keep(host, failure, reply.ttl)
            self._finish(host, pending, failure)

    def _found(self, host: str, pending: _Pending, reply: ResolverReply) -> None:
        addresses = preferring(reply.content, self.prefers != "ipv4")
        if reply.status == FOUND:
            self._keep(host, Resolved(addresses), reply.ttl)
            self._finish(host, pending, Resolved(addresses))
            return
        pending.part = Resolved(addresses, more=True)
        for _requester, done, in_parts in tuple(pending.requests):
            if in_parts:
                done(pending.part)

    def _keep(self, host: str, result: Resolution, seconds: float) -> None:
        keep(self._cache, host, (self._loop.now + min(self.longest_ttl, seconds), result), CACHE_SIZE)

    def _finish(self, host: str, pending: _Pending, result: Resolution) -> None:
        del self._pending[host]
        for _requester, done, _in_parts in pending.requests:
            done(result)

    # --- by the system ---

    def _use_thread(self, host: str, pending: _Pending, key: str) -> None:
        ended, starts = partial(self._on_result, host, pending, key), partial(self._may_start, host, pending)
        self._threads.submit((key, zone_of(host)), partial(self._lookup, host), ended, starts)

    def _on_result(self, host: str, pending: _Pending, key: str, result: Resolution | object | None) -> None:
        if result is DROPPED:
            self._on_dropped(host, pending, key)
            return
        resolution = result if isinstance(result, (Resolved, Failure)) else dns_failed(f"{host} can't be resolved")
        if isinstance(resolution, Resolved) and self.prefers != "any":
            resolution = Resolved(preferring(resolution.addresses, self.prefers == "ipv6"))
        if self._pending.get(host) is pending:  # else the resolver was faster
            self._keep(host, resolution, self.longest_ttl if isinstance(resolution, Resolved) else FAILURE_TTL)
            self._finish(host, pending, resolution)

    def _may_start(self, host: str, pending: _Pending) -> bool:
        """Its turn has come. It runs once, and not at all when no requester waits any more."""
        if pending.running:
            return False
        pending.running = any(each[0].waits for each in pending.requests)
        if not pending.running and self._pending.get(host) is pending:
            del self._pending[host]  # the next request begins another lookup
        return pending.running

    def _on_dropped(self, host: str, pending: _Pending, key: str) -> None:
        """It did not run in the turn of this client: fail the client's requests, unless it runs in another's turn."""
        if pending.running:
            return
        gone = [done for requester, done, _ in pending.requests if site_key(requester.client_ip) == key]
        pending.requests = [each for each in pending.requests if site_key(each[0].client_ip) != key]
        pending.keys.discard(key)
        if not pending.requests and self._pending.get(host) is pending:
            del self._pending[host]
        for done in gone:
            done(dns_failed(f"{host} was not looked up: too many names wait, or the client has gone"))


def zone_of(host: str) -> str:
    """The last two labels of a name."""
    return ".".join(host.rstrip(".").rsplit(".", 2)[-2:])
