"""What forwarding needs of an account, a plan and a credential. Tuples, which the store packs and actors unpack.

A new field goes to the end and has a default: the rows that an earlier release has written lack it.

When an account may be used: windows of the week in a time zone, summer time included. A window is `(days, start, end)`:
days of the week on which it begins (0 is Monday), and minutes since midnight of that day on the wall clock there. An
end at or before the start is on the next day; 1440 is midnight at the end of the day. A window from 02:30 exists on the
day without 02:30, too: it begins when the clock jumps over that time. Where the clock goes back, a time that occurs
twice means the first at a window's start and the second at its end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import fields
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgpack

from actors.bus.messages.specs import AccountSpec, LimitsSpec

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

Window = tuple[tuple[int, ...], int, int]
ScheduleData = tuple[str, tuple[Window, ...]]
"""The name of the time zone (IANA), and the windows."""

DAY = 1440
"""Minutes."""


class WeekSchedule:
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

        At most a week later: what is open beyond that is asked again then.
        """
        intervals = sorted(self._around(moment, 8))
        end: float | None = None
        for begin, stop in intervals:
            if begin <= (moment if end is None else end) < stop:
                end = stop
        return end

    def _around(self, moment: float, following: int = 1) -> Iterator[tuple[float, float]]:
        """The windows that begin on the day before `moment`, on its day, and on the `following` - 1 after it."""
        today = datetime.fromtimestamp(moment, self._zone).date()
        for days in range(-1, following):
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


class InheritedRules(NamedTuple):
    """What an account may say itself, or else its plan: None inherits. Field by field, and limits key by key.

    Limits as in `LimitsSpec`; `quota` is bytes and period; destinations are entries of access rules
    (`config.net.entries`), an empty list stands against that of the plan. `policy` is the name of one: that of
    the account comes before that of the plan. `egress` are its addresses and networks (`config.net.entries`).
    """

    bandwidth_in: int | None = None
    bandwidth_out: int | None = None
    connections: int | None = None
    requests_per_minute: int | None = None
    quota: tuple[int, str] | None = None
    allow_destinations: tuple[str, ...] | None = None
    deny_destinations: tuple[str, ...] | None = None
    schedule: ScheduleData | None = None
    policy: str | None = None
    egress: tuple[str, ...] | None = None
    clients: int | None = None
    clients_window: int | None = None


class PlanRecord(NamedTuple):
    """One plan. `self_service_…`: what holders of its accounts may do themselves. `disclose`: see `AccountSpec`."""

    id: str
    name: str
    rules: InheritedRules = InheritedRules()
    self_service_password: bool = False
    self_service_credentials: bool = False
    disclose: bool = True


class AccountRecord(NamedTuple):
    """One account. It may use every proxy if `all_proxies`, else those named by an id or by one of the tags.

    `password_hash` None: it has no password. `expires_at` 0: never. `plan` is an id, empty for none. `certificates`
    are normal entries (`config.files.certificates`): a client with a matching certificate is this account.
    `renewal` is `config.passwords.renewal`'s, empty where the hash has taken the place of none.
    """

    id: str
    username: str
    password_hash: str | None = None
    enabled: bool = True
    expires_at: float = 0.0
    allow_clients: tuple[str, ...] = ()
    all_proxies: bool = True
    proxy_ids: tuple[str, ...] = ()
    proxy_tags: tuple[str, ...] = ()
    plan: str = ""
    socks4_by_name: bool = False
    tags: tuple[str, ...] = ()
    rules: InheritedRules = InheritedRules()
    certificates: tuple[str, ...] = ()
    renewal: str = ""

    def may_use(self, proxy_id: str, proxy_tags: Collection[str]) -> bool:
        """Whether the account is one of this proxy."""
        return self.all_proxies or proxy_id in self.proxy_ids or any(tag in proxy_tags for tag in self.proxy_tags)


class CredentialRecord(NamedTuple):
    """One credential of an account; it narrows what the account may do.

    `expires_at` is Unix seconds. `allow_destinations` None: as the account. `quota` is bytes in total, 0 for none, as
    `max_connections` and `clients`; `clients_window` is seconds, 0 for those of the account. `prefix` is the beginning
    of the secret, by which people recognize it.
    """

    id: str
    account_id: str
    name: str
    prefix: str
    expires_at: float
    allow_clients: tuple[str, ...] = ()
    allow_destinations: tuple[str, ...] | None = None
    quota: int = 0
    max_connections: int = 0
    clients: int = 0
    clients_window: int = 0


def packed(record: AccountRecord | PlanRecord | CredentialRecord) -> bytes:
    """A record as its row has it."""
    data = msgpack.packb(record)
    assert isinstance(data, bytes)
    return data


def account_of(data: bytes) -> AccountRecord:
    """The inverse of `packed`. Raises `ValueError` and `TypeError` for what is no such record, as the next two."""
    account = AccountRecord(*_unpacked(data))
    return account._replace(rules=InheritedRules(*account.rules))


def plan_of(data: bytes) -> PlanRecord:
    """As `account_of`."""
    plan = PlanRecord(*_unpacked(data))
    return plan._replace(rules=InheritedRules(*plan.rules))


def credential_of(data: bytes) -> CredentialRecord:
    """As `account_of`."""
    return CredentialRecord(*_unpacked(data))


def _unpacked(data: bytes) -> Any:
    return msgpack.unpackb(data, use_list=False)


LIMITS: Final = tuple(each.name for each in fields(LimitsSpec))


def effective(account: AccountRecord, plan: PlanRecord | None) -> AccountSpec:
    """The account with what it inherits of its plan. Pure."""
    rules = merged(account.rules, plan.rules if plan is not None else InheritedRules())
    quota, period = rules.quota or (0, "total")
    return AccountSpec(
        id=account.id,
        username=account.username,
        password_hash=account.password_hash,
        enabled=account.enabled,
        limits=LimitsSpec(**{name: value for name in LIMITS if (value := getattr(rules, name)) is not None}),
        quota=quota,
        period=period,
        expires_at=account.expires_at,
        allow_clients=account.allow_clients,
        allow_destinations=rules.allow_destinations or (),
        deny_destinations=rules.deny_destinations or (),
        schedule=rules.schedule,
        socks4_by_name=account.socks4_by_name,
        certificates=account.certificates,
        renewal=account.renewal,
        tags=account.tags,
        policies=tuple(dict.fromkeys(filter(None, (account.rules.policy, plan and plan.rules.policy)))),
        egress=rules.egress or (),
        disclose=plan is None or plan.disclose,
    )


def merged(own: InheritedRules, inherited: InheritedRules) -> InheritedRules:
    """`own` where it says something, else `inherited`."""
    return InheritedRules._make(
        mine if mine is not None else theirs for mine, theirs in zip(own, inherited, strict=True)
    )
