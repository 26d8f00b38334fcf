"""From the host of a listener to its address, without letting a resolver hold up the supervisor's loop.

An address is none of the resolver's business. A name of this machine is told by `/etc/hosts` at once; where a resolver
has to be asked and is silent, the name is given up after `PATIENCE` and not asked for again for a while, whatever many
listeners have it.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from typing import Any

PATIENCE = 1.0
"""Seconds that the loop may stand still for a name; actors are only missed after ten."""
GIVEN_UP_FOR = 30.0

Found = tuple[int, Any]
"""An address family and an address as `bind` takes it."""
Ask = Callable[..., list[Any]]


class HostnameResolver:
    """Looks up. `ask` is `socket.getaddrinfo`, `clock` monotonic."""

    def __init__(self, ask: Ask = socket.getaddrinfo, clock: Callable[[], float] = time.monotonic) -> None:
        self._ask = ask
        self._clock = clock
        self._given_up: dict[str, float] = {}

    def look_up(self, host: str, port: int, patience: float = PATIENCE) -> Found:
        """The first address of `host`. Raises `OSError` and `UnicodeError`; `TimeoutError` when it takes too long."""
        try:
            return self._first(host, port, socket.AI_NUMERICHOST)
        except socket.gaierror:
            return self._with_patience(host, port, patience)

    def _first(self, host: str, port: int, flags: int) -> Found:
        family, _kind, _protocol, _name, address = self._ask(
            host, port, type=socket.SOCK_STREAM, flags=flags | socket.AI_PASSIVE
        )[0]
        return family, address

    def _with_patience(self, host: str, port: int, patience: float) -> Found:
        if self._given_up.get(host, 0.0) > self._clock():
            raise _too_late()
        answers: list[Found | Exception] = []

        def ask() -> None:
            try:
                answers.append(self._first(host, port, 0))
            except (OSError, UnicodeError) as error:
                answers.append(error)

        thread = threading.Thread(target=ask, name="listener-name", daemon=True)
        thread.start()
        thread.join(patience)
        if not answers:
            self._given_up[host] = self._clock() + GIVEN_UP_FOR
            raise _too_late()
        if isinstance(answers[0], Exception):
            raise answers[0]
        return answers[0]


def _too_late() -> TimeoutError:
    return TimeoutError(None, "no answer in time; use an address, or a name in /etc/hosts")
