"""Sizes, rates, spans of time and moments: with a unit at a terminal, plain numbers in a pipe, and read with a unit.

Units are decimal, `kB` and `MB`, as in bills and in the page, whose `lib/quantities.ts` has the same rules. Settings
read as they were typed: `20 GiB`, `20 Mbit/s`. The management API's own texts have 1024-based units.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

from api.cli.errors import CommandError, Status
from api.cli.options import Option, option, text
from config.text.formatting import parse_moment, timestamp_text, uptime_text


class Quantity(NamedTuple):
    """A value that is printed differently for people and for programs."""

    text: str
    """For people."""
    plain: str
    """For programs: a number in the base unit."""


def size(count: float, per_second: bool = False, is_setting: bool = False) -> Quantity:
    """A number of bytes, or of bytes per second: `131 B`, `5 MB`, `1.54 kB/s`; whole bytes for programs.

    Of a setting, which a person chose and nothing counted, it is as typed: `20 GiB` and `20 Mbit/s`, too.
    """
    text = _as_typed(count, per_second) if is_setting else decimal(count)
    return Quantity(f"{text}/s" if per_second else text, str(round(count)))


def span(length: float) -> Quantity:
    """A number of seconds: `2d 4h 31m`; less than a minute is `42s`."""
    whole = max(0, int(length))
    return Quantity(uptime_text(length) if length >= 60 else f"{whole}s", str(whole))


class _Units(NamedTuple):
    """Names of units, each `base` times the one before; `per_byte` of the first are a byte."""

    names: tuple[str, ...]
    base: int
    per_byte: int = 1


_DECIMAL = _Units(("B", "kB", "MB", "GB", "TB", "PB", "EB"), 1000)
_BITS = _Units(("bit", "kbit", "Mbit", "Gbit", "Tbit"), 1000, 8)
_BINARY = _Units(("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"), 1024)
_TYPED = {False: (_DECIMAL, _BINARY), True: (_DECIMAL, _BITS, _BINARY)}
"""Units in which sizes are typed, and those of rates."""


def decimal(count: float) -> str:
    """`count` bytes with three significant digits, and no zeros behind them: `131 B`, `1.01 MB`, `50 GB`."""
    return _text(*_fitting(count, _DECIMAL))


def _as_typed(count: float, per_second: bool) -> str:
    """In the units that need the fewest digits, which are those in which people type."""
    fitting = [_fitting(count, units) for units in _TYPED[per_second]]
    return _text(*min(fitting, key=lambda each: len(f"{each[0]:.15g}".replace(".", "").rstrip("0"))))


def _fitting(count: float, units: _Units) -> tuple[float, str]:
    """The number in the largest unit of which there is one at least, and that unit."""
    value, power = float(count) * units.per_byte, 0
    while power < len(units.names) - 1 and abs(round(value, _decimals(value, power > 0))) >= units.base:
        value, power = value / units.base, power + 1
    return value, units.names[power]


def _text(value: float, unit: str) -> str:
    text = f"{value:.{_decimals(value, unit not in ('B', 'bit'))}f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} {unit}"


def _decimals(value: float, has_parts: bool) -> int:
    return 0 if not has_parts else 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0


def with_decimal_units(text: str) -> str:
    """A text of the API, whose units are 1024-based, with decimal ones: `1.50 GB` becomes `1.61 GB`."""
    return _OF_THE_API.sub(lambda found: decimal(float(found[1]) * 1024 ** _POWERS[found[2].lower()]), text)


_OF_THE_API = re.compile(r"(?<![0-9])([0-9]{1,19}\.[0-9]{2}) ([KMGTP]?)B\b", re.ASCII)

_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_SIZE = re.compile(
    r"([0-9]{1,19}(?:\.[0-9]{1,9})?)\s*(?:([kmgtp]?)(i?)(bytes?|bits?|bps|b))?(/s)?", re.ASCII | re.IGNORECASE
)
_AMBIGUOUS = frozenset("KMGTPk")
"""Prefixes of `b`: `Mb` is a megabit to one reader and a megabyte to another."""

SIZE_EXAMPLES = "5000000, 5MB, 5MiB"
RATE_EXAMPLES = "125000, 125kB/s, 1Mbit/s, 1MiB/s"


def size_of(text: str) -> int:
    """Bytes of `5000000`, `5MB` or `5MiB`. Raises `ValueError` with what is allowed."""
    return _parsed(text, rate=False)


def bytes_of(quota: str) -> int:
    """The value of `--quota`. Raises `CommandError`."""
    try:
        return size_of(quota)
    except ValueError as error:
        raise CommandError(f"--quota {quota!r}: {error}", status=Status.USAGE) from error


def rate_of(text: str) -> int:
    """Bytes per second of `125000`, `125kB/s`, `1Mbit/s` or `1MiB/s`. Raises `ValueError`."""
    return _parsed(text, rate=True)


def _parsed(text: str, rate: bool) -> int:
    examples = RATE_EXAMPLES if rate else SIZE_EXAMPLES
    found = _SIZE.fullmatch(text.strip())
    number, prefix, binary_, unit, per_second = found.groups() if found else (None,) * 5
    bits = unit is not None and unit.lower() in ("bit", "bits", "bps")
    if number is None or ((per_second or bits) and not rate):
        raise ValueError(f"must be {'a rate in bytes or bits per second' if rate else 'a size in bytes'}: {examples}")
    if unit == "b" and prefix and prefix in _AMBIGUOUS:
        raise ValueError(f"could be bits or bytes: write {prefix}B{f' or {prefix}bit' if rate else ''}")
    base = 1024 if binary_ else 1000
    value = Decimal(number) * base ** _POWERS[(prefix or "").lower()]
    return int(value / 8 if bits else value)


SIZES = frozenset({"bytes"})
RATES = frozenset({"bandwidth_in", "bandwidth_out"})
"""Fields of the API that hold bytes, and bytes per second; by the last part of their dotted names."""


def field_value(name: str, text: str) -> int | None:
    """The number in `text` if the field `name` is a size or a rate, else None. Raises `ValueError`."""
    last = name.rpartition(".")[2]
    if last in SIZES:
        return size_of(text)
    return rate_of(text) if last in RATES else None


def with_unit(name: str, value: Any) -> Any:
    """`value` as a `Quantity` if the field `name` is a size or a rate."""
    last = name.rpartition(".")[2]
    if last in SIZES | RATES and isinstance(value, (int, float)) and not isinstance(value, bool):
        return size(value, per_second=last in RATES, is_setting=True)
    return value


# --- moments: `15m`, `2h`, `7d`; `12:30`, `yesterday`, `yesterday 12:30`, a date; or ISO 8601; UTC, as in the API ---

_SPAN = re.compile(r"([0-9]{1,6})([smhdwy])", re.ASCII)
SPANS = "As 90s, 15m, 2h; a number is of seconds."
_LENGTH = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)([smhdwy]?)", re.ASCII)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400, "y": 365 * 86400}
_CLOCK = re.compile(r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?", re.ASCII)
_DAY = re.compile(r"(today|yesterday|tomorrow|[0-9]{4}-[0-9]{2}-[0-9]{2})(?: +([0-9:]+))?", re.ASCII | re.IGNORECASE)
_DAYS = {"today": 0, "yesterday": -1, "tomorrow": 1}

_NOT_BEFORE = (
    "Not before: 15m, 2h, 7d ago; 12:30, yesterday, 2030-01-31; or an ISO 8601 date and time. UTC; by default "
)


def seconds(text: str, option: str, least: float = 0, most: float | None = None) -> float:
    """The seconds of a span such as `15m`, or of a number without a unit. Raises `CommandError`."""
    found = _LENGTH.fullmatch(text.strip())
    if found is None:
        hint = "Such as 90s, 15m, 2h, 7d; a number without a unit is of seconds"
        raise CommandError(f"{option} {text!r}: is not a span of time", hint, Status.USAGE)
    value = float(found[1]) * _SECONDS[found[2] or "s"]
    if value < least or (most is not None and value > most):
        limits = f"at least {_short(least)}" if most is None else f"from {_short(least)} to {_short(most)}"
        raise CommandError(f"{option} {text!r}: must be {limits}", status=Status.USAGE)
    return int(value) if value.is_integer() else value


def _short(length: float) -> str:
    """In the largest unit of which it is a whole number."""
    unit = next((each for each in "dhm" if length and length % _SECONDS[each] == 0), "s")
    return f"{length / _SECONDS[unit]:g}{unit}"


def span_option(
    names: str, about: str, default: str | None = None, least: float = 0, most: float | None = None, **settings: Any
) -> Option:
    """An option that takes a span of time; its value is in seconds."""
    return option(
        str | None if default is None else str,
        names,
        f"{about} {SPANS}",
        parse=lambda given: seconds(given, names, least, most),
        default=default,
        metavar="SPAN",
        **settings,
    )


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
    if _SPAN.fullmatch(text):
        return now + timedelta(seconds=direction * seconds(text, ""))
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


def moment_option(names: str, about: str, direction: int = -1) -> Option:
    """An option that takes a moment, so long ago (-1) or ahead (1); an empty one counts as not given."""
    return text(names, about, parse=lambda given: _moment(given, direction, names) if given else None)


SINCE = {"start_time": moment_option("--since", f"{_NOT_BEFORE}an hour ago.")}
SINCE_BEGIN = {"start_time": moment_option("--since", f"{_NOT_BEFORE}from the first on.")}
UNTIL = {"end_time": moment_option("--until", "Not after: the same; by default now.")}
