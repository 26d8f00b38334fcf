"""From the host of a listener to its address, without letting a resolver hold up the supervisor's loop.

An address needs no resolver. A name of this machine is in `/etc/hosts`; where a resolver is queried and is silent, the
name is given up after `PATIENCE` seconds and not queried again for a while, however many listeners have it.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from typing import Any

PATIENCE = 1.0
"""Seconds that a name may block the loop; silent actors are killed only after ten."""
GIVEN_UP_FOR = 30.0

Found = tuple[int, Any]
"""An address family and an address as `bind` takes it."""
Query = Callable[..., list[Any]]


class HostnameResolver:
    """`query` is `socket.getaddrinfo`, `clock` monotonic."""

    def __init__(self, query: Query = socket.getaddrinfo, clock: Callable[[], float] = time.monotonic) -> None:
        self._query = query
        self._clock = clock
        self._given_up: dict[str, float] = {}

    def resolve(self, host: str, port: int, patience: float = PATIENCE) -> Found:
        """The first address of `host`. Raises `OSError` and `UnicodeError`; `TimeoutError` when it takes too long."""
        try:
            return self._first(host, port, socket.AI_NUMERICHOST)
        except socket.gaierror:
            return self._with_patience(host, port, patience)

    def _first(self, host: str, port: int, flags: int) -> Found:
        family, _kind, _protocol, _name, address = self._query(
            host, port, type=socket.SOCK_STREAM, flags=flags | socket.AI_PASSIVE
        )[0]
        return family, address

    def _with_patience(self, host: str, port: int, patience: float) -> Found:
        if self._given_up.get(host, 0.0) > self._clock():
            raise _too_late()
        results: list[Found | Exception] = []

        def query() -> None:
            try:
                results.append(self._first(host, port, 0))
            except (OSError, UnicodeError) as error:
                results.append(error)

        thread = threading.Thread(target=query, name="listener-name", daemon=True)
        thread.start()
        thread.join(patience)
        if not results:
            self._given_up[host] = self._clock() + GIVEN_UP_FOR
            raise _too_late()
        if isinstance(results[0], Exception):
            raise results[0]
        return results[0]


def _too_late() -> TimeoutError:
    return TimeoutError(None, "no answer in time; use an address, or a name in /etc/hosts")
