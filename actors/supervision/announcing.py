"""What the supervisor says of proxies on the events plane: down, up, in trouble, recovered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from actors.bus.events import Forwarder, event_topic, new_event
from actors.bus.messages import Recovered, Trouble
from actors.supervision.states import Life


class Announcer:
    """`name_of` gives the name of a proxy by its id; a proxy that has none is nobody's any more."""

    def __init__(self, events: Forwarder, name_of: Callable[[str], str | None]) -> None:
        self._events = events
        self._name_of = name_of
        self._down: set[str] = set()

    def down(self, proxy_id: str, life: Life) -> None:
        """It should run and doesn't: said once until it is up again."""
        if proxy_id not in self._down:
            self._down.add(proxy_id)
            self._publish("proxy.down", proxy_id, error=life.error or "", restarts=life.restarts)

    def up(self, proxy_id: str, life: Life) -> None:
        """It runs; said if it was down."""
        if proxy_id in self._down:
            self._down.discard(proxy_id)
            self._publish("proxy.up", proxy_id, restarts=life.restarts)

    def forget(self, proxy_id: str) -> None:
        """It is not to run any more, so it isn't down."""
        self._down.discard(proxy_id)

    def trouble(self, proxy_id: str, message: Trouble) -> None:
        """It reports an error that it outlives."""
        if self._name_of(proxy_id) is not None:
            self._publish("proxy.error", proxy_id, error=message.what, detail=message.detail)

    def recovered(self, proxy_id: str, message: Recovered) -> None:
        """That is over."""
        if self._name_of(proxy_id) is not None:
            self._publish("proxy.recovered", proxy_id, error=message.what, detail=message.detail)

    def _publish(self, kind: str, proxy_id: str, **data: Any) -> None:
        event = new_event(kind, {"proxy_id": proxy_id, "name": self._name_of(proxy_id) or "", **data})
        self._events.publish(event_topic(event), event)
