"""Questions by name and kind of record: the cache, one exchange for all who ask the same, and aliases to their end."""

from __future__ import annotations

from collections.abc import Callable

from actors.bus.loop import Loop
from actors.resolver.cache import FAILED, FOUND, NO_DATA, NO_NAME, TIMED_OUT, Cache, Key, Outcome
from actors.resolver.exchange import Exchange
from actors.resolver.profiles import Profile
from actors.resolver.wire import ALIASES_MAX, NXDOMAIN, TTL_MAX, NotAName, Response, pack_name

FAILURE_KEPT = 3.0
"""Seconds that it holds that no name server could say (RFC 9520 wants one at least)."""
NEGATIVE_MAX = 3 * 3600
"""Seconds that it holds at most that there is no such name or address (RFC 2308, section 5)."""

OnOutcome = Callable[[Outcome], None]


class Questions:
    """`ask` for the addresses of one kind; `known` is the cache alone."""

    def __init__(self, loop: Loop, cache: Cache) -> None:
        self._loop = loop
        self._cache = cache
        self._pending: dict[Key, _Question] = {}

    def known(self, profile: Profile, name: str, kind: int) -> Outcome | None:
        """The outcome, if it is cached."""
        return self._cache.get((profile.key, name, kind), self._loop.now)

    def ask(self, profile: Profile, name: str, kind: int, done: OnOutcome) -> Callable[[], None]:
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
            question.is_kept = False

    def _ended(self, key: Key, outcome: Outcome) -> None:
        question = self._pending.pop(key)
        if question.is_kept:
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

    def __init__(self, loop: Loop, profile: Profile, name: str, kind: int, done: OnOutcome) -> None:
        self.waiting: dict[OnOutcome, None] = {}
        self.is_kept = True
        self._loop = loop
        self._profile = profile
        self._kind = kind
        self._done = done
        self._names = [name]
        self._ttl = TTL_MAX
        self._until = loop.now + profile.deadline
        self._exchange = Exchange(loop, profile, name, kind, self._until, self._on_response)

    def cancel(self) -> None:
        """End it."""
        self._exchange.cancel()

    def _on_response(self, response: Response | str, timed_out: bool) -> None:
        if isinstance(response, str):
            self._end(TIMED_OUT if timed_out else FAILED, (), FAILURE_KEPT, response)
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
            self._end(FAILED, (), FAILURE_KEPT, "an alias (CNAME) leads to what is no name")
            return
        if alias in self._names or len(self._names) > ALIASES_MAX:
            self._end(FAILED, (), FAILURE_KEPT, "its aliases (CNAME) are a loop or too many")
            return
        self._names.append(alias)
        self._exchange = Exchange(self._loop, self._profile, alias, self._kind, self._until, self._on_response)

    def _end(self, status: str, addresses: tuple[str, ...], ttl: float, detail: str = "") -> None:
        self._done(Outcome(status, addresses, self._loop.now + ttl, detail))
