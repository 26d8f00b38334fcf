"""From a name to addresses, off the loop, with a small memory that also remembers failure for a while.

`getaddrinfo` tells no time to live, so answers are kept for a short fixed time. Lookups of one name at the same time
are one lookup.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass

from actors.bus.loop import Loop
from actors.forwarding.errors import Failure, dns_failed
from actors.workers import Workers

KEPT = 30.0
FAILURE_KEPT = 3.0
MEMORY_SIZE = 4096


@dataclass(frozen=True, slots=True)
class Found:
    """The addresses of a name in the order to try them."""

    addresses: tuple[str, ...]


Answer = Found | Failure
OnAnswer = Callable[[Answer], None]
Lookup = Callable[[str], Answer]


def look_up(host: str) -> Answer:
    """Ask the system's resolver; blocks."""
    try:
        entries = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as error:
        reason = error.strerror if isinstance(error, socket.gaierror) and error.strerror else "not a name"
        return dns_failed(f"{host} does not resolve: {reason}")
    except OSError as error:  # EAI_SYSTEM, for one when no descriptor is left
        return dns_failed(f"{host} can't be resolved: {error.strerror or error}")
    return Found(tuple(dict.fromkeys(str(entry[4][0]) for entry in entries)))


class Resolver:
    """Names to addresses for one actor."""

    def __init__(self, loop: Loop, workers: Workers, lookup: Lookup = look_up) -> None:
        self._loop = loop
        self._workers = workers
        self._lookup = lookup
        self._memory: dict[str, tuple[float, Answer]] = {}
        self._asked: dict[str, list[OnAnswer]] = {}

    def resolve(self, host: str, done: OnAnswer) -> None:
        """Call `done` with the answer, in this very call when it is remembered."""
        known = self._memory.get(host)
        if known is not None and known[0] > self._loop.now:
            done(known[1])
        elif host in self._asked:
            self._asked[host].append(done)
        else:
            self._asked[host] = [done]
            self._workers.submit(lambda: self._lookup(host), lambda answer: self._answered(host, answer))

    def _answered(self, host: str, told: Answer | None) -> None:
        answer = told or dns_failed(f"{host} can't be resolved")
        if len(self._memory) >= MEMORY_SIZE:
            self._memory.clear()
        kept = KEPT if isinstance(answer, Found) else FAILURE_KEPT
        self._memory[host] = (self._loop.now + kept, answer)
        for done in self._asked.pop(host):
            done(answer)
