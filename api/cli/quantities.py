"""Sizes, rates and spans of time: with a unit at a terminal, plain numbers in a pipe, and read with a unit.

The management API writes `4.77 MB` for 1024-based units. The command line takes the API's plain numbers and uses the
standard names: `KiB` and `MiB` are 1024-based, `kB` and `MB` 1000-based.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Protocol, runtime_checkable

from config.text.formatting import uptime_text


@runtime_checkable
class Quantity(Protocol):
    """A value that is printed differently for people and for programs."""

    @property
    def text(self) -> str:
        """For people."""

    @property
    def plain(self) -> str:
        """For programs: a number in the base unit."""


@dataclass(frozen=True, slots=True)
class Size:
    """A number of bytes, or of bytes per second."""

    count: float
    per_second: bool = False

    @property
    def text(self) -> str:
        """`131 B`, `4.77 MiB`, `1.5 KiB/s`."""
        return binary(self.count) + ("/s" if self.per_second else "")

    @property
    def plain(self) -> str:
        """`5000000`; of a rate, whole bytes per second."""
        return str(round(self.count))


@dataclass(frozen=True, slots=True)
class Span:
    """A number of seconds."""

    seconds: float

    @property
    def text(self) -> str:
        """`2d 4h 31m`; less than a minute is `42s`."""
        return uptime_text(self.seconds) if self.seconds >= 60 else f"{max(0, int(self.seconds))}s"

    @property
    def plain(self) -> str:
        """`42`."""
        return str(max(0, int(self.seconds)))


_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def binary(count: float) -> str:
    """`count` bytes in 1024-based units; bytes themselves have no decimals, and no trailing zeros are written."""
    value, power = float(count), 0
    while abs(round(value, 2 if power else 0)) >= 1024 and power < len(_BINARY) - 1:
        value, power = value / 1024, power + 1
    digits = f"{value:.2f}".rstrip("0").rstrip(".") if power else f"{value:.0f}"
    return f"{digits} {_BINARY[power]}"


def with_binary_units(text: str) -> str:
    """A text of the API with the standard names of its units: `1.50 GB` becomes `1.50 GiB`."""
    return _OF_THE_API.sub(lambda found: f"{found[1]} {found[2]}iB" if found[2] else f"{found[1][:-3]} B", text)


_OF_THE_API = re.compile(r"(?<![0-9])([0-9]+\.[0-9]{2}) ([KMGTP]?)B\b", re.ASCII)

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
        return Size(value, per_second=last in RATES)
    return value
