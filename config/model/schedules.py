"""Schedules in requests, and their stored model: windows of the week in a time zone.

A window that ends at or before the time at which it begins ends on the next day; `24:00` is midnight at the end of the
day. A schedule without windows is never.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, BaseModel, Field, StrictStr

from config.model import json_patterns
from config.model.declaration import Storable
from config.model.fields import Body, Distinct, Text

Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
DAYS: tuple[Day, ...] = get_args(Day)
WINDOWS_MAX = 100

_TIME = re.compile(json_patterns.TIME_OF_DAY, re.ASCII)
_END = re.compile(json_patterns.END_OF_WINDOW, re.ASCII)
_ZONE = re.compile(json_patterns.TIME_ZONE, re.ASCII)


def _time(text: str) -> str:
    if not _TIME.fullmatch(text):
        raise ValueError("must be a time of day from 00:00 to 23:59")
    return text


def _end(text: str) -> str:
    if not _END.fullmatch(text):
        raise ValueError("must be a time of day from 00:00 to 24:00")
    return text


def _zone(name: str) -> str:
    if not _ZONE.fullmatch(name) or not _exists(name):
        raise ValueError("must be a time zone of the IANA database, such as Europe/Berlin or UTC")
    return name


def _exists(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):  # OSError: the name of a folder
        return False
    return True


Days = Annotated[list[Day], Field(min_length=1, max_length=len(DAYS)), Distinct("day")]
TimeOfDay = Annotated[StrictStr, AfterValidator(_time), json_patterns.text(json_patterns.TIME_OF_DAY)]
EndOfWindow = Annotated[StrictStr, AfterValidator(_end), json_patterns.text(json_patterns.END_OF_WINDOW)]
TimeZone = Annotated[StrictStr, Text(0, 64, _zone, pattern=json_patterns.TIME_ZONE, minLength=1)]


class Schedule(BaseModel):
    """A stored schedule. A window has `days`, `from` and `to`, as in a request."""

    timezone: str
    windows: list[dict[str, Any]] = []


class WindowInput(Body):
    """A window: it begins on each of the days."""

    days: Days
    start: TimeOfDay = Field(alias="from")
    end: EndOfWindow = Field(alias="to")


class ScheduleInput(Storable):
    """When an account may be used. Without windows it is never."""

    timezone: TimeZone
    windows: Annotated[list[WindowInput], Field(max_length=WINDOWS_MAX)]

    def stored(self) -> Schedule:
        """As it is stored."""
        return Schedule.model_validate(self.model_dump(by_alias=True))


def schedule_data(schedule: dict[str, Any]) -> tuple[str, tuple[tuple[tuple[int, ...], int, int], ...]]:
    """A stored schedule as `actors.accounts.records.ScheduleData`."""
    windows = (
        (tuple(DAYS.index(day) for day in each["days"]), _minutes(each["from"]), _minutes(each["to"]))
        for each in schedule["windows"]
    )
    return schedule["timezone"], tuple(windows)


def _minutes(text: str) -> int:
    return int(text[:2]) * 60 + int(text[3:])
