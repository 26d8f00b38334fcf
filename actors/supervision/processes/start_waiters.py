"""Replies that wait for the start of a proxy, for a bounded time."""

from __future__ import annotations

from collections.abc import Callable

from actors.bus.loop import Loop
from actors.supervision.callbacks import call_once


class StartWaiters:
    """`is_starting` returns whether the proxy with an id is starting."""

    def __init__(self, loop: Loop, is_starting: Callable[[str], bool]) -> None:
        self._loop = loop
        self._is_starting = is_starting
        self._waiting: dict[str, list[Callable[[], None]]] = {}

    def wait(self, proxy_id: str, seconds: float, then: Callable[[], None]) -> None:
        """Call `then` once: now unless the proxy is starting, else when that is over, or after `seconds`."""
        if not self._is_starting(proxy_id):
            then()
            return
        call = call_once(then)
        waiting = self._waiting.setdefault(proxy_id, [])
        waiting.append(call)

        def late() -> None:
            if call in waiting:
                waiting.remove(call)
            if not waiting and self._waiting.get(proxy_id) is waiting:
                del self._waiting[proxy_id]
            call()

        self._loop.call_later(seconds, late)

    def update(self, proxy_id: str) -> None:
        """The state of the proxy may have changed."""
        if proxy_id in self._waiting and not self._is_starting(proxy_id):
            for call in self._waiting.pop(proxy_id):
                call()
