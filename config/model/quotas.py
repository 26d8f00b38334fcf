"""Periods of quotas, in UTC: a day, an ISO week from Monday, a calendar month, or all of time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Literal, get_args

Period = Literal["day", "week", "month", "total"]
PERIODS: tuple[Period, ...] = get_args(Period)


def period_at(kind: str, moment: float) -> tuple[float, float | None]:
    """When the period of this kind began that `moment` is in, and when the next begins; Unix seconds.

    `total` began at 0 and has no end.
    """
    if kind == "total":
        return 0.0, None
    midnight = datetime.fromtimestamp(moment, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if kind == "day":
        start, end = midnight, midnight + timedelta(days=1)
    elif kind == "week":
        start = midnight - timedelta(days=midnight.weekday())
        end = start + timedelta(days=7)
    elif kind == "month":
        start = midnight.replace(day=1)
        end = (start + timedelta(days=32)).replace(day=1)
    else:
        raise ValueError(f"{kind!r} is not one of {', '.join(PERIODS)}")
    return start.timestamp(), end.timestamp()
