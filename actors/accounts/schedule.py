"""When an account may be used: windows of the week in a time zone, summer time included.

A window is `(days, start, end)`: days of the week on which it begins (0 is Monday), and minutes since midnight of that
day on the wall clock there. An end at or before the start is on the next day; 1440 is midnight at the end of the day.
A window from 02:30 exists on the day without 02:30, too: it begins when the clock jumps over that time. Where the
clock goes back, a time that occurs twice means the first at a window's start and the second at its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

Window = tuple[tuple[int, ...], int, int]
ScheduleData = tuple[str, tuple[Window, ...]]
"""The name of the time zone (IANA), and the windows."""

DAY = 1440
"""Minutes."""


class Schedule:
    """One schedule. Without windows it is never open."""

    def __init__(self, data: ScheduleData) -> None:
        """Raises `zoneinfo.ZoneInfoNotFoundError` for an unknown time zone."""
        self._zone = _zone(data[0])
        self._windows = data[1]

    def is_open(self, moment: float) -> bool:
        """Whether `moment` (Unix seconds) is in one of the windows."""
        return any(start <= moment < end for start, end in self._around(moment))

    def closes_at(self, moment: float) -> float | None:
        """When the windows that are open at `moment` end, adjoining ones taken together; None when it is closed.

        At most a week ahead: what is open beyond that is asked again then.
        """
        intervals = sorted(self._around(moment, 8))
        end: float | None = None
        for begin, stop in intervals:
            if begin <= (moment if end is None else end) < stop:
                end = stop
        return end

    def _around(self, moment: float, ahead: int = 1) -> Iterator[tuple[float, float]]:
        """The windows that begin on the day before `moment`, on its day, and on those `ahead`."""
        today = datetime.fromtimestamp(moment, self._zone).date()
        for days in range(-1, ahead):
            day = today + timedelta(days=days)
            for weekdays, start, end in self._windows:
                if day.weekday() in weekdays:
                    last = end if end > start else end + DAY
                    yield self._moment(day, start, 0), self._moment(day, last, 1)

    def _moment(self, day: date, minutes: int, fold: int) -> float:
        days, minute = divmod(minutes, DAY)
        wall = datetime.combine(day + timedelta(days=days), time(*divmod(minute, 60)), self._zone)
        return _existing(wall.replace(fold=fold))


def _existing(wall: datetime) -> float:
    """Unix seconds of this wall time; one that the clock jumps over is when it jumps."""
    moment = wall.timestamp()
    back = datetime.fromtimestamp(moment, UTC).astimezone(wall.tzinfo)
    if back.replace(tzinfo=None, fold=0) == wall.replace(tzinfo=None, fold=0):
        return moment
    # In a gap the two readings of the time lie on both sides of the jump: an hour before it, and an hour behind.
    first, second = sorted((wall.replace(fold=0).timestamp(), wall.replace(fold=1).timestamp()))
    low, high = int(first), int(second)
    before = datetime.fromtimestamp(low, wall.tzinfo).utcoffset()
    while high - low > 1:
        middle = (low + high) // 2
        if datetime.fromtimestamp(middle, wall.tzinfo).utcoffset() == before:
            low = middle
        else:
            high = middle
    return float(high)


@lru_cache(maxsize=64)
def _zone(name: str) -> ZoneInfo:
    from zoneinfo import ZoneInfo  # takes a megabyte, which only processes with a schedule pay

    return ZoneInfo(name)
