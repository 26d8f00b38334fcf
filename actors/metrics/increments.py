"""What was counted in some stretch of time: a sum that can be added up, taken apart and spread over more time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Self, TypeVar

import msgpack

from actors.counters import COUNTERS, NAMES

_Key = TypeVar("_Key")

BUCKET_PLACES = tuple(place for place, row in enumerate(COUNTERS) if row.in_buckets)
COUNTED = (*(NAMES[place] for place in BUCKET_PLACES), "answered")
RESIDENT_SAMPLES = "told"
"""The name of the column in the series on disk."""
FIELDS = (*COUNTED, "active", "resident", RESIDENT_SAMPLES)
"""`answered` are the requests that `response_seconds` is the sum of. `active` is a sum, too: of the connections that
were open, second by second. So is `resident`: of the bytes of memory in `RESIDENT_SAMPLES` reports."""
PLACE = {name: place for place, name in enumerate(FIELDS)}


class Increments:
    """`values` stand in the order of `FIELDS`; `latency` is a histogram (`actors.histogram`)."""

    __slots__ = ("latency", "values")

    def __init__(self, values: list[float] | None = None, latency: dict[int, int] | None = None) -> None:
        self.values: list[float] = [0] * len(FIELDS) if values is None else values
        self.latency: dict[int, int] = {} if latency is None else latency

    @classmethod
    def of_active(cls, connections: int) -> Self:
        """One sample of the connections that are open."""
        made = cls()
        made.values[PLACE["active"]] = connections
        return made

    @classmethod
    def of_resident(cls, size: int) -> Self:
        """One sample of the memory of a process."""
        made = cls()
        made.values[PLACE["resident"]], made.values[PLACE[RESIDENT_SAMPLES]] = size, 1
        return made

    def __getitem__(self, name: str) -> float:
        return self.values[PLACE[name]]

    def __bool__(self) -> bool:
        return any(self.values)

    def __repr__(self) -> str:
        return f"<Increments {dict(zip(FIELDS, self.values, strict=True))}>"

    def add(self, other: Increments, sign: int = 1) -> Self:
        """Sum `other` up; with a `sign` of -1 take it away again."""
        mine = self.values
        for place, value in enumerate(other.values):
            if value:
                mine[place] += sign * value
        add_counts(self.latency, other.latency, sign)
        return self

    def spread(self, parts: int) -> Iterator[Increments]:
        """As so many parts of about the same size, which add up to exactly this one."""
        for part in range(parts):
            values = [_share(value, part, parts) for value in self.values]
            latency = {number: int(_share(count, part, parts)) for number, count in self.latency.items()}
            yield Increments(values, {number: count for number, count in latency.items() if count})


def sum_of(several: Iterable[Increments]) -> Increments:
    """All of them together."""
    total = Increments()
    for each in several:
        total.add(each)
    return total


def add_counts(counts: dict[_Key, int], other: Mapping[_Key, int], sign: int = 1) -> None:
    """Add `other` to `counts`, key by key; with a `sign` of -1 subtract it."""
    for key, count in other.items():
        counts[key] = counts.get(key, 0) + sign * count


def pack_latency(latency: dict[int, int]) -> bytes | None:
    """A histogram as it stands on disk."""
    return bytes(msgpack.packb([each for pair in sorted(latency.items()) for each in pair])) if latency else None


def unpack_latency(packed: bytes | None) -> dict[int, int]:
    """The opposite of `pack_latency`."""
    flat = msgpack.unpackb(packed) if packed else []
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _share(value: float, part: int, parts: int) -> float:
    if isinstance(value, int):
        return value * (part + 1) // parts - value * part // parts
    return value / parts
