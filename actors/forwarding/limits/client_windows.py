"""The requests per minute of each client. What no longer counts is forgotten a little at a time.

Clients are in the order of their last request, so those that are idle are at the front. Each new one makes room for
itself by forgetting up to two of those, and a timer forgets the rest when no new ones come: no turn of the loop walks
over all of them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from actors.bus.loop import Loop
from actors.forwarding.limits.sliding_window import MINUTE, FormerWindows, Key, SlidingWindow
from actors.net.client_key import client_key

if TYPE_CHECKING:
    from actors.forwarding.limits.elsewhere import Elsewhere

CLIENT: Final = "client"
"""Begins the key of a client's window."""
CLIENTS_MAX = 131_072
"""Beyond that, the client whose last request is the longest ago is forgotten though its requests still count."""
FORGOTTEN_AT_ONCE = 512
"""By the timer, in one turn."""
SOON = 0.05
PERIOD = 10.0


class ClientWindows:
    """By `client_key`. There is a timer only while there are clients."""

    def __init__(self, loop: Loop, former: FormerWindows | None = None) -> None:
        self._loop = loop
        self._former = former or FormerWindows(loop)
        self._windows: OrderedDict[str, SlidingWindow] = OrderedDict()  # a dict is slow to find its oldest key
        self._timed = False
        self._elsewhere: Elsewhere | None = None
        self._own: OrderedDict[str, SlidingWindow] = OrderedDict()
        """What was counted before other workers were there, each until its client sends a request."""

    def share(self, elsewhere: Elsewhere) -> None:
        """Count together with other workers from now on."""
        self._elsewhere = elsewhere
        if self._windows:
            self._own, self._windows = self._windows, OrderedDict()
            self._loop.call_later(MINUTE, self._own.clear)

    def __len__(self) -> int:
        return len(self._windows)

    def window(self, client_ip: str) -> SlidingWindow:
        """Where to count a request of the client at this address."""
        key = client_key(client_ip)
        window = self._windows.get(key)
        if window is None:
            return self._add(key)
        self._windows.move_to_end(key)
        return window

    def windows(self) -> Iterator[tuple[Key, SlidingWindow]]:
        """All of them, by key."""
        for key, window in self._windows.items():
            yield (CLIENT, key), window

    def _add(self, key: str) -> SlidingWindow:
        self._forget_idle(2)
        if len(self._windows) >= CLIENTS_MAX:
            self._windows.popitem(last=False)
        window = self._windows[key] = self._new(key)
        if not self._timed:
            self._timed = True
            self._loop.call_later(MINUTE + PERIOD, self._on_timer)
        return window

    def _new(self, key: str) -> SlidingWindow:
        window = self._former.new(CLIENT, key)
        if self._elsewhere is None:
            return window
        before = self._own.pop(key, None) if self._own else None
        return self._elsewhere.key(CLIENT, key).window(window if before is None else before)

    def _on_timer(self) -> None:
        more = self._forget_idle(FORGOTTEN_AT_ONCE)
        self._timed = bool(self._windows)
        if self._timed:
            self._loop.call_later(SOON if more else PERIOD, self._on_timer)

    def _forget_idle(self, most: int) -> bool:
        """Forget up to `most` clients; True when that many were idle, so there may be more."""
        windows, now = self._windows, self._loop.now
        for _ in range(most):
            if not windows or not windows[next(iter(windows))].idle(now):
                return False
            windows.popitem(last=False)
        return True

    def __repr__(self) -> str:
        return f"<ClientWindows: {len(self._windows)}>"
