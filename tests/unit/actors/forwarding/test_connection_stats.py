"""What a forwarding actor counts, and the rows of its records."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from actors.bus.loop import Loop
from actors.bus.records import Row
from actors.forwarding.stats import ConnectionStats


@pytest.fixture
def rows() -> list[Row]:
    return []


@pytest.fixture
def stats(rows: list[Row]) -> Iterator[ConnectionStats]:
    loop = Loop()
    yield ConnectionStats(loop, rows.append, "r-")
    loop.close()


def test_tunnels_are_counted_by_what_was_found_in_their_handshake(stats: ConnectionStats, rows: list[Row]) -> None:
    for kind in ("match", "timeout", "match"):
        stats.tls_name_checked(kind)
    assert stats.tls_names == {"match": 2, "timeout": 1}
    assert rows == [], "the record is written when the tunnel ends"
