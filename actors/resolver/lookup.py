"""One name from the request of an actor to its addresses: both kinds at once, then the names of the search list.

Addresses of one kind don't wait for the other without end (RFC 8305, section 3): IPv6 ones are passed on nearly at
once, IPv4 ones after `RESOLUTION_DELAY`, and the rest when it comes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from actors.bus.loop import Loop, Timer
from actors.net.resolver_protocol import FAILED as FAILED_REPLY
from actors.net.resolver_protocol import FOUND as FOUND_REPLY
from actors.net.resolver_protocol import NEGATIVE, SOME
from actors.net.resolver_protocol import TIMED_OUT as TIMED_OUT_REPLY
from actors.resolver.fair_queue import Client
from actors.resolver.profiles import DnsProfile
from actors.resolver.questions import FAILED, FOUND, NO_NAME, TIMED_OUT, CachedResult, Questions
from actors.resolver.wire import AAAA, NotAName

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
