"""Questions by name and kind of record: the cache, one exchange for all who ask the same, and aliases to their end.

The cache has what the name servers have said, for as long as it holds: by profile, name and kind of record; bounded.

An exchange is one question to the name servers of a profile, until one of them responds. The first in order is asked;
when it is silent for longer than it takes usually, the next one is asked as well, and the first response counts. A
server that fails is followed by the next at once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from actors.bus.loop import Loop, Timer
from actors.resolver.profiles import DnsProfile, ProfileKey
from actors.resolver.servers import Cancel, NameServer
from actors.resolver.wire import ALIASES_MAX, NOERROR, NXDOMAIN, RCODES, TTL_MAX, DnsResponse, NotAName, pack_name

ENTRIES_MAX = 20_000
"""Some 12 MB with one address each."""

FOUND, NO_DATA, NO_NAME, FAILED, TIMED_OUT = "found", "no_data", "no_name", "failed", "timed_out"
"""The name has addresses; it has none of this kind; there is no such name; no name server could say."""


class CachedResult(NamedTuple):
    """The result of one question. `until` is when it ends, in seconds of the loop's clock."""

    status: str
    addresses: tuple[str, ...]
    until: float
    detail: str = ""


Key = tuple[ProfileKey, str, int]


class Cache:
    """Entries that were used longest ago make room for new ones."""

    def __init__(self, size: int = ENTRIES_MAX) -> None:
        self._size = size
        self._entries: OrderedDict[Key, CachedResult] = OrderedDict()

    def get(self, key: Key, now: float) -> CachedResult | None:
        """The outcome, while it holds."""
        found = self._entries.get(key)
        if found is None:
            return None
        if found.until <= now:
            del self._entries[key]
            return None
        self._entries.move_to_end(key)
        return found

    def put(self, key: Key, outcome: CachedResult, now: float) -> None:
        """Keep an outcome if it holds beyond now."""
        if outcome.until <= now:
            return
        self._entries[key] = outcome
        self._entries.move_to_end(key)
        if len(self._entries) > self._size:
            self._entries.popitem(last=False)

    def entries(self, now: float, name: str = "") -> Iterator[tuple[Key, CachedResult]]:
        """All that hold, or those of one name; those used last come first."""
        every = reversed(self._entries.items())
        return ((key, each) for key, each in every if each.until > now and name in ("", key[1]))

    def forget(self, name: str = "", profile: ProfileKey | None = None) -> int:
        """Drop those of a name, of a profile, or all; how many."""
        gone = [key for key in self._entries if name in ("", key[1]) and (profile is None or key[0] == profile)]
        for key in gone:
            del self._entries[key]
        return len(gone)

    def __len__(self) -> int:
        return len(self._entries)


AGAIN_AFTER = 1.0
"""Seconds after which a question is sent again to a server that has it already, or to a silent one; doubled each
time."""
ATTEMPTS_MORE = 2
"""Beside those that are configured: these are sent sooner than by the system's resolver, and datagrams get lost."""


class ServerExchange:
    """`done` is called once, later, with the response, or with why there is none and whether time ran out.

    It does at `until`, by the loop's clock.
    """

    def __init__(
        self,
        loop: Loop,
        profile: DnsProfile,
        name: str,
        kind: int,
        until: float,
        done: Callable[[DnsResponse | str, bool], None],
    ) -> None:
        self._loop = loop
        self._question = name, kind
        self._done: Callable[[DnsResponse | str, bool], None] | None = done
        servers, probed = profile.in_order()
        self._untried = [server for _ in range(profile.attempts + ATTEMPTS_MORE) for server in servers]
        self._failed: set[NameServer] = set()
        self._running: dict[int, tuple[NameServer, float, Cancel]] = {}
        self._asked: set[NameServer] = set()
        self._numbers = 0
        self._again_after = AGAIN_AFTER
        self._reason = "there is no name server"
        self._deadline = loop.call_later(until - loop.now, self._expire)
        self._hedge: Timer | None = None
        self._next()
        if probed is not None:
            self._send(probed)

    def cancel(self) -> None:
        """End it; `done` is not called any more."""
        self._done = None
        self._deadline.cancel()
        if self._hedge is not None:
            self._hedge.cancel()
        running, self._running = self._running, {}
        for _server, _began, cancel in running.values():
            cancel()

    def _next(self) -> None:
        """Ask the next server that has not failed; without one, fail when none is under way."""
        if self._hedge is not None:
            self._hedge.cancel()
        while self._untried and self._untried[0] in self._failed:
            del self._untried[0]
        if self._untried:
            server = self._untried.pop(0)
            self._send(server)
            self._hedge = self._loop.call_later(self._until_next(server), self._next)
        elif not self._running:
            self._loop.call_soon(lambda: self._end(self._reason, False))

    def _until_next(self, server: NameServer) -> float:
        if self._untried and self._untried[0] not in self._asked and not self._untried[0].is_silent:
            return server.hedge_after
        self._again_after *= 2
        return self._again_after / 2

    def _send(self, server: NameServer) -> None:
        self._numbers += 1
        self._asked.add(server)
        cancel = server.ask(*self._question, partial(self._on_result, self._numbers))
        self._running[self._numbers] = server, self._loop.now, cancel

    def _on_result(self, number: int, result: DnsResponse | str) -> None:
        server, _began, _cancel = self._running.pop(number)
        if isinstance(result, DnsResponse) and result.code in (NOERROR, NXDOMAIN):
            for other, began, _ in self._running.values():
                if other is not server:
                    other.was_late(self._loop.now - began)
            self._end(result, False)
            return
        if isinstance(result, DnsResponse):
            server.counts.failures += 1
            self._failed.add(server)
            code = RCODES[result.code] if result.code < len(RCODES) else f"code {result.code}"
            result = f"responds with {code}"
        self._reason = f"name server {server.name}: {result}"
        self._next()

    def _expire(self) -> None:
        for server, _began, _cancel in self._running.values():
            server.missed()
        self._end("no name server responds", True)

    def _end(self, result: DnsResponse | str, timed_out: bool) -> None:
        done = self._done
        self.cancel()
        if done is not None:
            done(result, timed_out)


FAILURE_TTL = 3.0
"""Seconds that it holds that no name server could say (RFC 9520 wants one at least)."""
NEGATIVE_MAX = 3 * 3600
"""Seconds that it holds at most that there is no such name or address (RFC 2308, section 5)."""

OnOutcome = Callable[[CachedResult], None]


class Questions:
    """`ask` for the addresses of one kind; `known` is the cache alone."""

    def __init__(self, loop: Loop, cache: Cache) -> None:
        self._loop = loop
        self._cache = cache
        self._pending: dict[Key, _Question] = {}

    def known(self, profile: DnsProfile, name: str, kind: int) -> CachedResult | None:
        """The outcome, if it is cached."""
        return self._cache.get((profile.key, name, kind), self._loop.now)

    def ask(self, profile: DnsProfile, name: str, kind: int, done: OnOutcome) -> Callable[[], None]:
        """Call `done` once, later; returns what cancels that. Raises `NotAName`."""
        pack_name(name)
        key = profile.key, name, kind
        question = self._pending.get(key)
        if question is None:
            question = self._pending[key] = _Question(
                self._loop, profile, name, kind, lambda each: self._ended(key, each)
            )
        question.waiting[done] = None
        return lambda: self._cancel(key, done)

    def forget(self) -> None:
        """What is under way is not kept when it ends."""
        for question in self._pending.values():
            question.is_cached = False

    def _ended(self, key: Key, outcome: CachedResult) -> None:
        question = self._pending.pop(key)
        if question.is_cached:
            self._cache.put(key, outcome, self._loop.now)
        for done in tuple(question.waiting):
            done(outcome)

    def _cancel(self, key: Key, done: OnOutcome) -> None:
        question = self._pending.get(key)
        if question is not None and done in question.waiting:
            del question.waiting[done]
            if not question.waiting:
                del self._pending[key]
                question.cancel()


class _Question:
    """One question, and those for the names that it leads to."""

    def __init__(self, loop: Loop, profile: DnsProfile, name: str, kind: int, done: OnOutcome) -> None:
        self.waiting: dict[OnOutcome, None] = {}
        self.is_cached = True
        self._loop = loop
        self._profile = profile
        self._kind = kind
        self._done = done
        self._names = [name]
        self._ttl = TTL_MAX
        self._until = loop.now + profile.deadline
        self._exchange = ServerExchange(loop, profile, name, kind, self._until, self._on_response)

    def cancel(self) -> None:
        """End it."""
        self._exchange.cancel()

    def _on_response(self, response: DnsResponse | str, timed_out: bool) -> None:
        if isinstance(response, str):
            self._end(TIMED_OUT if timed_out else FAILED, (), FAILURE_TTL, response)
            return
        self._ttl = min(self._ttl, response.ttl) if response.addresses or response.alias else self._ttl
        if response.addresses:
            limits = self._profile.key
            self._end(FOUND, response.addresses, min(max(self._ttl, limits.min_ttl), limits.max_ttl))
        elif response.alias:
            self._follow(response.alias)
        else:
            ttl = min(self._ttl, response.negative_ttl or 0, NEGATIVE_MAX, self._profile.key.max_ttl)
            self._end(NO_NAME if response.code == NXDOMAIN else NO_DATA, (), ttl)

    def _follow(self, alias: str) -> None:
        """Ask for the end of a chain of aliases that the server has not followed."""
        try:
            pack_name(alias)
        except NotAName:
            self._end(FAILED, (), FAILURE_TTL, "an alias (CNAME) leads to what is no name")
            return
        if alias in self._names or len(self._names) > ALIASES_MAX:
            self._end(FAILED, (), FAILURE_TTL, "its aliases (CNAME) are a loop or too many")
            return
        self._names.append(alias)
        self._exchange = ServerExchange(self._loop, self._profile, alias, self._kind, self._until, self._on_response)

    def _end(self, status: str, addresses: tuple[str, ...], ttl: float, detail: str = "") -> None:
        self._done(CachedResult(status, addresses, self._loop.now + ttl, detail))
