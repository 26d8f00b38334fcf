"""Numbers as people read them: `2d 4h 31m`, `1.50 GB`, and ISO 8601 in UTC."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(:\d\d(\.\d+)?)?([Zz]|[+-]\d\d:?\d\d)?", re.ASCII)
_SIZES = ("B", "KB", "MB", "GB", "TB", "PB")


def uptime_text(seconds: float) -> str:
    """`2d 4h 31m`; leading zero parts are left out, and less than a minute is `0m`."""
    minutes = max(0, int(seconds)) // 60
    days, minutes = divmod(minutes, 24 * 60)
    hours, minutes = divmod(minutes, 60)
    parts = [(days, "d"), (hours, "h"), (minutes, "m")]
    while len(parts) > 1 and parts[0][0] == 0:
        parts.pop(0)
    return " ".join(f"{number}{unit}" for number, unit in parts)


def size_text(count: float) -> str:
    """`1.50 GB`: 1024-based with two decimals, as the contract wants; bytes keep the decimals too."""
    value = float(count)
    for unit in _SIZES[:-1]:
        if abs(round(value, 2)) < 1024:
            return f"{value:.2f} {unit}"
        value /= 1024
    return f"{value:.2f} {_SIZES[-1]}"


def timestamp_text(epoch_seconds: float) -> str:
    """`2026-01-31T12:00:00.123Z` of Unix seconds."""
    moment = datetime.fromtimestamp(epoch_seconds, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_moment(value: Any) -> float:
    """Unix seconds of an ISO 8601 date and time; without an offset it is UTC. Raises `ValueError`."""
    if not isinstance(value, str) or not _MOMENT.fullmatch(value):
        raise ValueError("must be an ISO 8601 date and time, such as 2030-01-31T12:00:00Z")
    moment = datetime.fromisoformat(value.upper())
    if not 1970 <= moment.year <= 9000:
        raise ValueError("must be a year from 1970 to 9000")
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
