"""The event of tunnels that were refused for the name in their TLS handshake: one for each user of a proxy in a minute.

The first refusal is an event at once. What follows within a minute, in whatever process of the proxy, is one event at
the end of it. What waits when the collector dies is lost; it is in counters and records.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from actors.bounded import PART
from actors.bus.events import new_event
from actors.bus.loop import Loop
from actors.bus.messages.accounts import DeniedNames, ReportDeniedNames
from actors.bus.messages.events import Event
from config.text.formatting import timestamp_text

DENIED: Final = "account.tls_name_denied"
WINDOW: Final = 60.0
"""Seconds from one event of a user to the next."""
CHECKED_EACH: Final = 1.0
WINDOWS_MAX: Final = 10_000
"""Users whose events are joined at the same time; the windows of the oldest end early for those of new ones."""

Key = tuple[str, str]
"""The id of the proxy and the user name."""


class DeniedNameNotices:
    """Takes the reports of all processes. `name_of` gives the name of a proxy, "" of one that is gone."""

    def __init__(
        self,
        loop: Loop,
        publish: Callable[[Event], None],
        name_of: Callable[[str], str],
        published_after: float = 0.0,
        windows_max: int = WINDOWS_MAX,
    ) -> None:
        """Nothing is published in the first `published_after` seconds."""
        self._loop = loop
        self._publish = publish
        self._name_of = name_of
        self._begins = loop.now + published_after
        self._most = windows_max
        self._windows: dict[Key, tuple[float, DeniedNames | None]] = {}
        """Until when the next event waits, and what it has to say; in the order of the ends."""
        loop.call_every(CHECKED_EACH, self._end_windows)

    def receive(self, message: ReportDeniedNames) -> None:
        """Take a report."""
        for denied in message.users:
            key = message.proxy_id, denied.username
            until, before = self._windows.get(key, (self._begins, None))
            if before is None and self._loop.now >= until:
                self._open(key, denied)
            else:
                self._keep(key, until, denied if before is None else before.joined(denied))

    def close(self) -> None:
        """Publish what waits."""
        self._end_first(len(self._windows))

    def _open(self, key: Key, denied: DeniedNames) -> None:
        """Publish an event and begin a new window."""
        self._publish_event(key, denied)
        self._windows.pop(key, None)
        self._keep(key, self._loop.now + WINDOW, None)

    def _keep(self, key: Key, until: float, denied: DeniedNames | None) -> None:
        if key not in self._windows and len(self._windows) >= self._most:
            self._end_first(max(1, self._most // PART))
        self._windows[key] = until, denied

    def _end_windows(self) -> None:
        over = [(key, denied) for key, (until, denied) in self._windows.items() if until <= self._loop.now]
        for key, denied in over:
            del self._windows[key]
            if denied is not None:
                self._open(key, denied)

    def _end_first(self, count: int) -> None:
        """End these windows, without others in their place."""
        for key in tuple(self._windows)[:count]:
            denied = self._windows.pop(key)[1]
            if denied is not None:
                self._publish_event(key, denied)

    def _publish_event(self, key: Key, denied: DeniedNames) -> None:
        tunnels: list[dict[str, Any]] = [
            {"target": each.target, "tls_name": each.tls_name or None, "kind": each.kind} for each in denied.tunnels
        ]
        data = {
            "account_id": denied.account_id or None,
            "username": denied.username or None,
            "proxy_id": key[0],
            "proxy": self._name_of(key[0]),
            "count": denied.count,
            "since": timestamp_text(denied.since),
            "tunnels": tunnels,
        }
        self._publish(new_event(DENIED, data))
