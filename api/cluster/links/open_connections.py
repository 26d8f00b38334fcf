"""Connections to one other node, which stay open between requests. Thread-safe.

A request of which nothing but a reply follows may go over one that is open. If that fails before its time is over, the
other side had ended the connection, and the request is sent once more over a new one. What acts on the other node is
never sent twice, so it has a new one always. The other side looks up in each request whether we may still ask.
"""

from __future__ import annotations

import select
import ssl
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from api.cluster.links.certificates import OwnCertificate
from api.cluster.links.internal_api import NodeUnreachable, Place, exchange, opened

OPEN = 2
"""Connections to a node that stay open; the other side has a bound over all nodes."""
IDLE = 30.0
"""Seconds for which one stays open without a request; the other side closes it after twice of it."""


class NodeConnections:
    """To one node."""

    def __init__(self, own: OwnCertificate) -> None:
        self._own = own
        self._lock = threading.Lock()
        self._place: Place | None = None
        self._idle: list[tuple[float, ssl.SSLSocket]] = []

    def ask(self, place: Place, path: str, body: Mapping[str, Any], within: float, may_repeat: bool) -> dict[str, Any]:
        """The reply of the node within so many seconds.

        Raises `NodeCertificateError` when another one is there, `NodeRefused`, `NodeUnreachable`.
        """
        until = time.monotonic() + within
        known = self._taken(place) if may_repeat else None
        if known is not None:
            try:
                return self._exchange(place, known, path, body, until, within)
            except NodeUnreachable:
                if time.monotonic() >= until:
                    raise
        return self._exchange(place, opened(*place, until, within, self._own), path, body, until, within)

    def close(self) -> None:
        """Close those that are open."""
        with self._lock:
            self._close()

    def _exchange(
        self, place: Place, secured: ssl.SSLSocket, path: str, body: Mapping[str, Any], until: float, within: float
    ) -> dict[str, Any]:
        goes_on = False
        try:
            reply, goes_on = exchange(secured, path, body, until, within)
        finally:
            self._give_back(place, secured, goes_on)
        return reply

    def _taken(self, place: Place) -> ssl.SSLSocket | None:
        """One that is open, and has nothing to be read: that would be its end."""
        with self._lock:
            if self._place != place:
                self._close()
                self._place = place
            while self._idle:
                since, secured = self._idle.pop()
                if time.monotonic() - since < IDLE and not _has_ended(secured):
                    return secured
                secured.close()
        return None

    def _give_back(self, place: Place, secured: ssl.SSLSocket, goes_on: bool) -> None:
        with self._lock:
            if goes_on and self._place == place and len(self._idle) < OPEN:
                self._idle.append((time.monotonic(), secured))
                return
        with suppress(OSError):
            secured.close()

    def _close(self) -> None:
        self._place = None
        for _since, secured in self._idle:
            with suppress(OSError):
                secured.close()
        self._idle.clear()


def _has_ended(secured: ssl.SSLSocket) -> bool:
    poll = select.poll()
    poll.register(secured, select.POLLIN)
    return bool(poll.poll(0))
