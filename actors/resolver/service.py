"""Requests for names: from the cache, or by a lookup in their turn. See `actors.resolver`.

A name is both kinds of addresses at once, then the names of the search list. Addresses of one kind don't wait for the
other without end (RFC 8305, section 3): IPv6 ones are passed on nearly at once, IPv4 ones after `RESOLUTION_DELAY`, and
the rest when it comes.

The addresses of name servers that are given by name come from this machine's own names, and from the system's name
servers. Each search is a lookup beside those of clients, and has a deadline: so no name that is dead keeps another
waiting.
"""

from __future__ import annotations

import resource
import socket
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple

from actors.bus.loop import Loop, Timer
from actors.net.egress_guard import is_localhost
from actors.net.resolver_protocol import BUSY, NEGATIVE, SOME, SYSTEM
from actors.net.resolver_protocol import FAILED as FAILED_REPLY
from actors.net.resolver_protocol import FOUND as FOUND_REPLY
from actors.net.resolver_protocol import TIMED_OUT as TIMED_OUT_REPLY
from actors.net.this_machine import LOOPBACK, HostsFile
from actors.resolver.fair_queue import RUNNING_MAX, Client, FairQueue
from actors.resolver.profiles import DnsProfile, ProfileKey, SystemProfile
from actors.resolver.questions import FAILED, FOUND, NO_NAME, TIMED_OUT, Cache, CachedResult, Questions
from actors.resolver.servers import Counts, NameServer
from actors.resolver.system_config import SystemConfig
from actors.resolver.wire import AAAA, NotAName
from config.net.dns_servers import DnsServer

RESOLUTION_DELAY = 0.05
V6_DELAY = 0.01
"""Not at once, since in most cases the other response is next."""


class LookupReply(NamedTuple):
    """A reply to an actor (`actors.net.resolver_protocol`). `until` is when it ends, by the loop's clock."""

    status: int
    until: float
    content: tuple[str, ...] | str


OnReply = Callable[[LookupReply], None]


def reply_of(name: str, outcomes: Mapping[int, CachedResult], wanted: int) -> LookupReply | None:
    """The reply when these kinds of `wanted` are known; None while the others can change it."""
    found = [outcomes[kind] for kind in sorted(outcomes, reverse=True) if outcomes[kind].status == FOUND]  # AAAA first
    complete = len(outcomes) == wanted
    if found:
        addresses = tuple(address for each in found for address in each.addresses)
        until = min(each.until for each in outcomes.values() if each.status in (FOUND, FAILED, TIMED_OUT))
        return LookupReply(FOUND_REPLY if complete else SOME, until, addresses)
    no_name = [each for each in outcomes.values() if each.status == NO_NAME]
    if no_name:
        return LookupReply(NEGATIVE, no_name[0].until, f"{name} does not resolve: there is no such name")
    if not complete:
        return None
    failed = next((each for each in outcomes.values() if each.status in (FAILED, TIMED_OUT)), None)
    if failed is not None:
        status = TIMED_OUT_REPLY if failed.status == TIMED_OUT else FAILED_REPLY
        return LookupReply(status, failed.until, f"{name} does not resolve: {failed.detail}")
    return LookupReply(
        NEGATIVE, min(each.until for each in outcomes.values()), f"{name} does not resolve: it has no address"
    )


def is_negative(outcomes: Mapping[int, CachedResult]) -> bool:
    """Whether the DNS says that there is no such name or address, so that another name may be tried."""
    return not any(each.status in (FOUND, FAILED, TIMED_OUT) for each in outcomes.values())


class Lookup:
    """A `QueuedLookup`. `waiting` has what is called with each reply, by client; `ended` is called once."""

    def __init__(
        self, loop: Loop, profile: DnsProfile, name: str, questions: Questions, ended: Callable[[Lookup], None]
    ) -> None:
        self.profile = profile
        self.name = name
        self.started = False
        self.waiting: dict[Client, list[OnReply]] = {}
        self._loop = loop
        self._questions = questions
        self._on_end: Callable[[Lookup], None] | None = ended
        self._candidates = list(profile.candidates(name))
        self._candidate = ""
        self._outcomes: dict[int, CachedResult] = {}
        self._cancels: list[Callable[[], None]] = []
        self._delay: Timer | None = None

    @property
    def is_wanted(self) -> bool:
        """See `QueuedLookup`."""
        return not self.started and bool(self.waiting)

    def start(self) -> None:
        """See `QueuedLookup`."""
        self.started = True
        self._ask()

    def give_up(self) -> None:
        """See `QueuedLookup`."""
        self._end(
            LookupReply(TIMED_OUT_REPLY, self._loop.now, f"{self.name} was given up: no name server has responded yet")
        )

    def _ask(self) -> None:
        candidate = self._candidate = self._candidates.pop(0)
        self._outcomes = {}
        for kind in self.profile.kinds:
            known = self._questions.known(self.profile, candidate, kind)
            if known is not None:
                self._loop.call_soon(partial(self._on_outcome, candidate, kind, known))
                continue
            try:
                on_outcome = partial(self._on_outcome, candidate, kind)
                self._cancels.append(self._questions.ask(self.profile, candidate, kind, on_outcome))
            except NotAName:
                until = float("inf")
                self._loop.call_soon(partial(self._on_outcome, candidate, kind, CachedResult(NO_NAME, (), until)))

    def _on_outcome(self, candidate: str, kind: int, outcome: CachedResult) -> None:
        if self._on_end is None or candidate != self._candidate or kind in self._outcomes:
            return
        self._outcomes[kind] = outcome
        reply = reply_of(self.name, self._outcomes, len(self.profile.kinds))
        if reply is None:
            return
        if reply.status == SOME:
            delay = V6_DELAY if kind == AAAA else RESOLUTION_DELAY
            self._delay = self._loop.call_later(delay, self._pass_on_some)
        elif self._candidates and is_negative(self._outcomes):
            self._cancel_questions()
            self._ask()
        else:
            self._end(reply)

    def _pass_on_some(self) -> None:
        reply = reply_of(self.name, self._outcomes, len(self.profile.kinds))
        if self._on_end is not None and reply is not None and reply.status == SOME:
            self._reply(reply)

    def _reply(self, reply: LookupReply) -> None:
        for waiting in tuple(self.waiting.values()):
            for done in waiting:
                done(reply)

    def _cancel_questions(self) -> None:
        cancels, self._cancels = self._cancels, []
        for cancel in cancels:
            cancel()

    def _end(self, reply: LookupReply) -> None:
        ended, self._on_end = self._on_end, None
        if ended is None:
            return
        if self._delay is not None:
            self._delay.cancel()
        self._cancel_questions()
        ended(self)
        self._reply(reply)


DEADLINE = 5.0
"""Seconds; a question that waits for the server has ten by default, and another server as well."""

Found = Callable[[str | None], None]


class ServerNames:
    """`find` calls back once with an address, or with None. `refreshed` is the system's profile as it is now."""

    def __init__(self, loop: Loop, questions: Questions, refreshed: Callable[[], DnsProfile]) -> None:
        self._loop = loop
        self._questions = questions
        self._refreshed = refreshed
        self._hosts = HostsFile()

    def find(self, host: str, found: Found) -> None:
        """Perhaps in this very call."""
        known = LOOPBACK if is_localhost(host) else self._hosts.find(host, self._loop.now)
        if known is not None:
            found(_reachable(known))
            return
        lookup = Lookup(self._loop, self._refreshed(), host, self._questions, _ended)
        deadline = self._loop.call_later(DEADLINE, lookup.give_up)

        def replied(reply: LookupReply) -> None:
            address = _reachable(reply.content) if reply.status in (SOME, FOUND_REPLY) else None
            if address is not None or reply.status != SOME:
                deadline.cancel()
                lookup.waiting.clear()  # what is found later changes nothing
                found(address)

        lookup.waiting["", ""] = [replied]
        lookup.start()


def _ended(_lookup: Lookup) -> None:
    """It has had no place to give back."""


def _reachable(addresses: Iterable[str]) -> str | None:
    """The first to which there is a way: a connection of datagrams sends nothing."""
    for address in addresses:
        try:
            with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as probe:
                probe.connect((address, 53))
                return address
        except OSError:
            continue
    return None


NEVER_IN_DNS = ("invalid", "onion")
"""Last labels of names that are not to be asked for (RFC 6761, section 6.4; RFC 7686)."""
DESCRIPTORS_OF_LOOKUP = 6
"""Two kinds, each at up to three servers."""


Guard = Callable[[str, int, str], str | None]
"""Why a name server, by address, port and host as it is written, may not be asked; None: it may."""


class Service:
    """`on_forget` is called when all that actors keep is void. `guard` says which name servers may be asked where
    these are of proxies, which have shares then."""

    def __init__(
        self, loop: Loop, system: SystemConfig, on_forget: Callable[[str], None], guard: Guard | None = None
    ) -> None:
        self.counts = Counts()
        self.cache = Cache()
        self._loop = loop
        self._system = system
        self._on_forget = on_forget
        self._questions = Questions(loop, self.cache)
        self._server_names = ServerNames(loop, self._questions, self._system_profile)
        descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        running = min(RUNNING_MAX, max(16, descriptors // (2 * DESCRIPTORS_OF_LOOKUP)))
        self._queue = FairQueue(loop, running, by_proxy=guard is not None)
        self._guard = guard or _allows
        self._profiles: dict[ProfileKey, tuple[DnsProfile, int]] = {}
        self._lookups: dict[tuple[ProfileKey, str], Lookup] = {}
        self.acquire(ProfileKey())  # for good: names of name servers are asked for by it

    # --- profiles ---

    def acquire(self, key: ProfileKey) -> DnsProfile:
        """The profile of a client connection. Raises `ValueError` for a server that is none."""
        profile, users = self._profiles.get(key) or (self._new_profile(key), 0)
        self._profiles[key] = profile, users + 1
        return profile

    def release(self, profile: DnsProfile) -> None:
        """A client connection doesn't use it any more; without any it is closed."""
        same, users = self._profiles[profile.key]
        self._profiles[profile.key] = same, users - 1
        if users == 1:
            del self._profiles[profile.key]
            self.cache.forget(profile=profile.key)
            profile.close()
            self.counts.forget_unused({name for each, _users in self._profiles.values() for name in each.servers})

    def _new_profile(self, key: ProfileKey) -> DnsProfile:
        if key.servers:
            return DnsProfile(self._loop, key, self._new_server)
        return SystemProfile(self._loop, key, self._new_server, self._system)

    def _new_server(self, server: DnsServer, stream_only: bool) -> NameServer:
        return NameServer(self._loop, self._server_names.find, server, self.counts, stream_only, self._check)

    def _system_profile(self) -> DnsProfile:
        profile = self._profiles[ProfileKey()][0]
        self._refresh(profile)
        return profile

    def _refresh(self, profile: DnsProfile) -> None:
        if profile.refresh():
            self.forget("", profile.key)

    def guard_by(self, guard: Guard) -> None:
        """Another guard from now on; what was connected to by the one before is not used any more."""
        self._guard = guard
        for profile, _users in self._profiles.values():
            profile.close()

    def _check(self, address: str, port: int, host: str) -> str | None:
        return self._guard(address, port, host)

    # --- requests ---

    def resolve(self, profile: DnsProfile, name: str, client: Client, done: OnReply) -> None:
        """Call `done` with the reply, perhaps in this very call; more than once while parts of it are late."""
        self.counts.requests += 1
        self._refresh(profile)
        if profile.is_systems(name):
            done(LookupReply(SYSTEM, self._loop.now, ""))
            return
        if name.rstrip(".").rpartition(".")[2] in NEVER_IN_DNS:
            done(LookupReply(NEGATIVE, float("inf"), f"{name} does not resolve: such names are not in the DNS"))
            return
        reply = self._cached(profile, name)
        if reply is not None:
            self.counts.hits += 1
            done(reply)
        else:
            self._begin_lookup(profile, name, client, partial(self._counted, done))

    def _counted(self, done: OnReply, reply: LookupReply) -> None:
        self.counts.failures += reply.status in (FAILED_REPLY, NEGATIVE, TIMED_OUT_REPLY, BUSY)
        done(reply)

    def _cached(self, profile: DnsProfile, name: str) -> LookupReply | None:
        candidates = profile.candidates(name)
        for candidate in candidates:
            found = {kind: self._questions.known(profile, candidate, kind) for kind in profile.kinds}
            outcomes = {kind: outcome for kind, outcome in found.items() if outcome is not None}
            reply = reply_of(name, outcomes, len(profile.kinds)) if outcomes else None
            if reply is None or (len(outcomes) < len(found) and not is_negative(outcomes)):
                return None
            if candidate is candidates[-1] or not is_negative(outcomes):
                return reply
        return None

    def _begin_lookup(self, profile: DnsProfile, name: str, client: Client, done: OnReply) -> None:
        key = profile.key, name
        lookup = self._lookups.get(key)
        if lookup is None:
            lookup = self._lookups[key] = Lookup(self._loop, profile, name, self._questions, self._ended)
        waits = client in lookup.waiting
        lookup.waiting.setdefault(client, []).append(done)
        if not lookup.started and not waits and not self._queue.add(client, lookup):
            del lookup.waiting[client]
            if not lookup.waiting:
                del self._lookups[key]
            done(LookupReply(BUSY, self._loop.now, f"{name} was not looked up: too many names wait"))

    def _ended(self, lookup: Lookup) -> None:
        self._queue.ended(lookup)
        if self._lookups.get((lookup.profile.key, lookup.name)) is lookup:
            del self._lookups[lookup.profile.key, lookup.name]

    # --- operations ---

    def forget(self, name: str, profile: ProfileKey | None = None) -> int:
        """Drop what is known of a name, or of all, here and in the actors; how many entries."""
        self._questions.forget()
        for key in [key for key, each in self._lookups.items() if each.started and name in ("", each.name)]:
            del self._lookups[key]  # those who ask from now on get a new one
        count = self.cache.forget(name, profile)
        self._on_forget(name)
        return count

    def silent_servers(self) -> frozenset[str]:
        """The names of those that have not responded lately."""
        return frozenset(name for profile, _users in self._profiles.values() for name in profile.silent())

    @property
    def waiting(self) -> int:
        """The number of lookups that wait for their turn."""
        return self._queue.waiting

    def close(self) -> None:
        """Close all connections."""
        for profile, _users in self._profiles.values():
            profile.close()


def _allows(_address: str, _port: int, _host: str) -> str | None:
    """Of all servers that the system or the configuration names."""
    return None
