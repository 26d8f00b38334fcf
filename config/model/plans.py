"""Plans in requests, and their stored model: rules that accounts inherit.

What an account may say itself, or else inherits from its plan; for both in requests, and in the store.

In both, null is nothing said: an account inherits it, a plan leaves it open. 0, `[]` and `{"bytes": 0}` say "none".
A policy of the account is the exception: it is asked before that of the plan, which holds as well.

Schedules in requests, and their stored model: windows of the week in a time zone.

A window that ends at or before the time at which it begins ends on the next day; `24:00` is midnight at the end of the
day. A schedule without windows is never.
"""

from __future__ import annotations

import re
import secrets
from typing import Annotated, Any, Literal, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, StrictBool, StrictStr

from config.model import json_patterns
from config.model.accounts import Bandwidth, ClientNumber, ClientsWindow, Number, Quota
from config.model.declaration import Given, Group, Instant, Storable, gives, update
from config.model.fields import NULLABLE, Body, Distinct, InvalidResource, Name, Text, each_entry, example
from config.model.object_fields import Description, ObjectName
from config.model.proxy_parts import Egress, refuse_foreign
from config.net.entries import read_entry
from config.net.names import in_a_labels

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


DESTINATIONS_MAX = 1_000
"""Entries in one list."""

RuleDestinations = Annotated[
    list[str],
    Field(max_length=DESTINATIONS_MAX),
    BeforeValidator(each_entry(read_entry, in_a_labels)),
    json_patterns.texts(json_patterns.WRITTEN_DESTINATION, DESTINATIONS_MAX),
]


class RuleLimits(Group):
    """Limits over all proxies, 0 for none; null says nothing. Bandwidth in bytes per second; `in` is of clients.

    `clients` is how many client addresses (with IPv6 their /64) may use an account within `clients_window` seconds,
    600 where nothing says it.
    """

    bandwidth_in: Annotated[int | None, Given(Bandwidth), NULLABLE] = None
    bandwidth_out: Annotated[int | None, Given(Bandwidth), NULLABLE] = None
    connections: Annotated[int | None, Given(Number), NULLABLE] = None
    requests_per_minute: Annotated[int | None, Given(Number), NULLABLE] = None
    clients: Annotated[int | None, Given(ClientNumber), NULLABLE] = None
    clients_window: Annotated[int | None, Given(ClientsWindow), NULLABLE] = None

    def view(self) -> dict[str, Any]:
        """Null says nothing."""
        return self.model_dump()


class RuleQuota(Quota):
    """The quota: bytes in both directions together in each period, over all proxies; 0 for none."""


class StoredRules(BaseModel):
    """The rules of an account or a plan, as they are stored."""

    limits: Annotated[RuleLimits, NULLABLE] = RuleLimits()
    quota: Annotated[RuleQuota | None, NULLABLE] = None
    allow_destinations: Annotated[list[str] | None, Given(RuleDestinations), NULLABLE] = None
    deny_destinations: Annotated[list[str] | None, Given(RuleDestinations), NULLABLE] = None
    schedule: Annotated[Schedule | None, Given(ScheduleInput), NULLABLE] = None
    policy: Annotated[str | None, Given(ObjectName), NULLABLE] = None


def refuse_no_quota(stored: StoredRules, body: Any) -> None:
    """Raise `InvalidResource` for a part of a quota where there is none."""
    if stored.quota is None and body.quota is not None and body.quota.bytes is None:
        raise InvalidResource("quota.bytes", "is required")


READ_ONLY_FIELDS = frozenset({"id", "accounts", "created_at", "updated_at"})


class SelfService(Group):
    """What holders of the plan's accounts may do themselves."""

    password: Annotated[bool, Given(StrictBool)] = False
    credentials: Annotated[bool, Given(StrictBool)] = False


class Plan(StoredRules):
    """A document of the collection `plans`. Times are Unix seconds."""

    id: str
    name: Annotated[str, Given(Name)]
    description: Annotated[str, Given(Description)] = ""
    self_service: SelfService = SelfService()
    egress: Annotated[list[str] | None, Given(Egress), NULLABLE] = None
    disclose: Annotated[bool, Given(StrictBool)] = True
    """Whether clients get to know which policy, rule and list refuse a request."""
    created_at: Instant
    updated_at: Instant


@gives(Plan)
class PlanUpdate(Body):
    """A change of a plan: what is not given stays."""

    model_config = example({"limits": {"connections": 20}, "quota": {"bytes": 50_000_000_000, "period": "month"}})


class PlanCreate(PlanUpdate):
    """A new plan."""

    model_config = example(
        {
            "name": "basic",
            "description": "ten gigabytes a month",
            "limits": {"bandwidth_out": 1_000_000, "connections": 10, "clients": 3},
            "quota": {"bytes": 10_000_000_000, "period": "month"},
            "deny_destinations": ["*.example.net"],
            "schedule": {
                "timezone": "Europe/Berlin",
                "windows": [{"days": ["mon", "tue", "wed", "thu", "fri"], "from": "08:00", "to": "18:00"}],
            },
            "egress": ["2001:db8:7::/48"],
            "self_service": {"password": True},
        }
    )

    name: Name


def new_plan(body: PlanCreate, now: float) -> Plan:
    """The plan that `body` describes. Raises `InvalidResource`."""
    blank = Plan(id="pln_" + secrets.token_hex(8), name=body.name, created_at=now, updated_at=now)
    return change_plan(blank, body, now)


def change_plan(plan: Plan, body: PlanUpdate, now: float) -> Plan:
    """`plan` with the changes of `body`. Raises `InvalidResource`."""
    refuse_no_quota(plan, body)
    changed = update(plan, body)
    refuse_foreign(changed.get("egress") or (), "egress")
    return plan.model_copy(update={**changed, "updated_at": now})
