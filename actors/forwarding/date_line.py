"""The `Date` line of the responses that a proxy makes itself (RFC 9110 6.6.1), written anew once a second at most."""

from __future__ import annotations

import time
from collections.abc import Callable

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def http_date(wall: float) -> str:
    """Unix seconds as an IMF-fixdate (RFC 9110 5.6.7), in English whatever the locale."""
    at = time.gmtime(wall)
    day = f"{_DAYS[at.tm_wday]}, {at.tm_mday:02} {_MONTHS[at.tm_mon - 1]} {at.tm_year:04}"
    return f"{day} {at.tm_hour:02}:{at.tm_min:02}:{at.tm_sec:02} GMT"


class DateLine:
    """Called with the time of a monotonic clock, returns the field's line with its CRLF. `wall` is Unix time."""

    __slots__ = ("_line", "_until", "_wall")

    def __init__(self, wall: Callable[[], float] = time.time) -> None:
        self._wall = wall
        self._line = b""
        self._until = float("-inf")

    def __call__(self, now: float) -> bytes:
        if now >= self._until:
            wall = self._wall()
            self._until = now + 1.0 - wall % 1.0
            self._line = f"Date: {http_date(wall)}\r\n".encode("ascii")
        return self._line
