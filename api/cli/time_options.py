"""Times on the command line: `15m`, `2h`, `7d`; `12:30`, `yesterday`, `yesterday 12:30`, a date; or ISO 8601.

Without an offset they are UTC, as in the API.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, date, datetime, timedelta
from typing import Annotated

import typer

from api.cli.errors import CommandError, Status
from config.text.formatting import parse_moment, timestamp_text

_SPAN = re.compile(r"([0-9]{1,6})([smhdwy])", re.ASCII)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400, "y": 365 * 86400}
_CLOCK = re.compile(r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?", re.ASCII)
_DAY = re.compile(r"(today|yesterday|tomorrow|[0-9]{4}-[0-9]{2}-[0-9]{2})(?: +([0-9:]+))?", re.ASCII | re.IGNORECASE)
_DAYS = {"today": 0, "yesterday": -1, "tomorrow": 1}

_NOT_BEFORE = (
    "Not before: 15m, 2h, 7d ago; 12:30, yesterday, 2030-01-31; or an ISO 8601 date and time. UTC; by default "
)
SinceOption = Annotated[str | None, typer.Option("--since", help=f"{_NOT_BEFORE}an hour ago.")]
SinceBeginOption = Annotated[str | None, typer.Option("--since", help=f"{_NOT_BEFORE}from the first on.")]
PERIOD = {"start_time": "--since", "end_time": "--until"}
"""The options by the API's fields."""

UntilOption = Annotated[str | None, typer.Option("--until", help="Not after: the same; by default now.")]


def ago(text: str, option: str = "--since") -> str:
    """The moment so long ago, or the given one, as ISO 8601. Raises `CommandError`."""
    return _moment(text, -1, option)


def from_now(text: str, option: str = "--expires") -> str:
    """The moment so far ahead, or the given one, as ISO 8601. Raises `CommandError`."""
    return _moment(text, 1, option)


def seconds(text: str, option: str) -> int:
    """The seconds of a span such as `15m`. Raises `CommandError`."""
    span = _SPAN.fullmatch(text)
    if span is None:
        raise CommandError(f"{option} {text!r}: is not a span of time", "Such as 15m, 2h, 7d", Status.USAGE)
    return int(span[1]) * _SECONDS[span[2]]


def _moment(text: str, direction: int, option: str) -> str:
    now = datetime.fromtimestamp(time.time(), UTC)
    try:
        found = moment_of(text.strip(), direction, now)
        return timestamp_text(parse_moment(text) if found is None else found.timestamp())
    except ValueError as error:
        hint = "Such as 15m, 2h, 7d, 12:30, yesterday, 2030-01-31, or 2030-01-31T12:00:00Z; all in UTC"
        raise CommandError(f"{option} {text!r}: is neither a span of time nor a date", hint, Status.USAGE) from error
    except OverflowError as error:
        raise CommandError(f"{option} {text!r}: is too far away", status=Status.USAGE) from error


def moment_of(text: str, direction: int, now: datetime) -> datetime | None:
    """The moment of `text` at `now`; None if it is not one of the short forms. Raises `ValueError`, `OverflowError`.

    A time of day is the nearest in `direction`: the last one that has passed, or the next one.
    """
    if span := _SPAN.fullmatch(text):
        return now + timedelta(seconds=direction * int(span[1]) * _SECONDS[span[2]])
    if _CLOCK.fullmatch(text):
        found = _at(now.date(), text)
        beyond = found > now if direction < 0 else found <= now
        return found + timedelta(days=direction) if beyond else found
    if day := _DAY.fullmatch(text):
        return _at(_day(day[1].lower(), now), day[2] or "0:00")
    return None


def _day(word: str, now: datetime) -> date:
    return now.date() + timedelta(days=_DAYS[word]) if word in _DAYS else date.fromisoformat(word)


def _at(day: date, clock: str) -> datetime:
    found = _CLOCK.fullmatch(clock)
    if found is None:
        raise ValueError("must be a time of day")
    hour, minute, second = (int(each or 0) for each in found.groups())
    return datetime(day.year, day.month, day.day, hour, minute, second, tzinfo=UTC)
