"""One question to the name servers of a profile, until one of them responds.

The first in order is asked; when it is silent for longer than it takes usually, the next one is asked as well, and the
first response counts. A server that fails is followed by the next at once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from actors.bus.loop import Loop, Timer
from actors.resolver.profiles import Profile
from actors.resolver.servers import Cancel, NameServer
from actors.resolver.wire import NOERROR, NXDOMAIN, RCODES, Response

AGAIN_AFTER = 1.0
"""Seconds after which a question is sent again to a server that has it already, or to a silent one; doubled each
time."""
ROUNDS_MORE = 2
"""Rounds beside those that are configured: they are sent sooner than by the system's resolver, and datagrams get lost.
"""


class Exchange:
    """`done` is called once, later, with the response, or with why there is none and whether time ran out.

    It does at `until`, by the loop's clock.
    """

    def __init__(
        self,
        loop: Loop,
        profile: Profile,
        name: str,
        kind: int,
        until: float,
        done: Callable[[Response | str, bool], None],
    ) -> None:
        self._loop = loop
        self._question = name, kind
        self._done: Callable[[Response | str, bool], None] | None = done
        servers, probed = profile.in_order()
        self._untried = [server for _round in range(profile.rounds + ROUNDS_MORE) for server in servers]
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

    def _on_result(self, number: int, result: Response | str) -> None:
        server, _began, _cancel = self._running.pop(number)
        if isinstance(result, Response) and result.code in (NOERROR, NXDOMAIN):
            for other, began, _ in self._running.values():
                if other is not server:
                    other.was_late(self._loop.now - began)
            self._end(result, False)
            return
        if isinstance(result, Response):
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

    def _end(self, result: Response | str, timed_out: bool) -> None:
        done = self._done
        self.cancel()
        if done is not None:
            done(result, timed_out)
