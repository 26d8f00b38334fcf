"""The requests per minute of each client. What no longer counts is forgotten a little at a time.

Clients are in the order of their last request, so those that are idle are at the front. Each new one makes room for
itself by forgetting up to two of those, and a timer forgets the rest when no new ones come: no turn of the loop walks
over all of them.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from actors.bus.loop import Loop
from actors.net.client_key import client_key
from actors.state.counts import COUNTED, LiveState, SharedKey

CLIENT: Final = "client"
"""Begins the key of a client's requests."""
CLIENTS_MAX = 131_072
"""Beyond that, the client whose last request is the longest ago is forgotten though its requests still count."""
FORGOTTEN_AT_ONCE = 512
"""By the timer, in one turn."""
SOON = 0.05
PERIOD = 10.0


class ClientWindows:
    """By `client_key`. There is a timer only while there are clients."""

    def __init__(self, loop: Loop, state: LiveState) -> None:
        self._loop = loop
        self._state = state
        self._windows: OrderedDict[str, SharedKey] = OrderedDict()  # a dict is slow to find its oldest key
        self._timed = False

    def __len__(self) -> int:
        return len(self._windows)

    def window(self, client_ip: str) -> SharedKey:
        """Where to count a request of the client at this address."""
        key = client_key(client_ip)
        window = self._windows.get(key)
        if window is None:
            return self._add(key)
        self._windows.move_to_end(key)
        return window

    def _add(self, key: str) -> SharedKey:
        self._forget_idle(2)
        if len(self._windows) >= CLIENTS_MAX:
            self._forget_oldest()
        window = self._windows[key] = self._state.key(CLIENT, key)
        if not self._timed:
            self._timed = True
            self._loop.call_later(COUNTED + PERIOD, self._on_timer)
        return window

    def _on_timer(self) -> None:
        more = self._forget_idle(FORGOTTEN_AT_ONCE)
        self._timed = bool(self._windows)
        if self._timed:
            self._loop.call_later(SOON if more else PERIOD, self._on_timer)

    def _forget_idle(self, most: int) -> bool:
        """Forget up to `most` clients; True when that many were idle, so there may be more."""
        windows = self._windows
        for _ in range(most):
            if not windows or windows[next(iter(windows))].own_requests:
                return False
            self._forget_oldest()
        return True

    def _forget_oldest(self) -> None:
        _key, window = self._windows.popitem(last=False)
        window.release()

    def __repr__(self) -> str:
        return f"<ClientWindows: {len(self._windows)}>"
