"""What a forwarding actor counts, and the rows of its records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from actors.bus.loop import Loop
from actors.bus.records import Row
from actors.forwarding.protocols.commands import Report
from actors.forwarding.stats import ConnectionStats
from actors.logs.record_schema import valid_rows
from config.text.access_fields import ACCESS_FIELDS
from tests.kit.tables import table


@pytest.fixture
def rows() -> list[Row]:
    return []


@pytest.fixture
def stats(rows: list[Row]) -> Iterator[ConnectionStats]:
    loop = Loop()
    yield ConnectionStats(loop, rows.append, "r-")
    loop.close()


def tunnel(**fields: Any) -> Report:
    return Report(b"CONNECT", "a.example:443", 200, "", "", 0.0, 0.0, 0, 0, **fields)


def test_the_record_of_a_tunnel_has_what_its_handshake_says(stats: ConnectionStats, rows: list[Row]) -> None:
    stats.exchange_ended(tunnel(tls_name="a.example", alpn="h2,http/1.1", tls_version="1.3"), "192.0.2.1", 3128)
    (record,) = (dict(zip(ACCESS_FIELDS, row, strict=True)) for row in rows)
    said = record["listen_port"], record["tls_name"], record["alpn"], record["tls_version"]
    assert said == (3128, "a.example", "h2,http/1.1", "1.3")
    assert valid_rows([list(row) for row in rows]) == [list(row) for row in rows]


def test_tunnels_are_counted_by_what_was_found_in_their_handshake(stats: ConnectionStats, rows: list[Row]) -> None:
    for kind in ("match", "timeout", "match"):
        stats.tls_name_checked(kind)
    assert stats.tls_names == {"match": 2, "timeout": 1}
    assert rows == [], "the record is written when the tunnel ends"


@table(
    ("status", "reason", "user", "level"),
    [
        (200, "", "", "info"),
        (200, "tls_name_denied", "", "warning"),
        (200, "policy_denied", "", "warning"),
        (200, "account_quota_reached", "", "warning"),
        (200, "reported:tls_name_denied", "", "info"),
        (200, "connection_terminated", "", "info"),
        (403, "tls_name_denied", "", "info"),
        (407, "http_request_denied", "", "info"),
        (407, "http_request_denied", "ada", "warning"),
        (502, "dns_error", "", "warning"),
    ],
)
def test_what_its_status_does_not_say_is_a_warning(
    stats: ConnectionStats, rows: list[Row], status: int, reason: str, user: str, level: str
) -> None:
    report = Report(b"CONNECT", "a.example:443", status, reason, "", 0.0, 0.0, 0, 0)
    report.user = user
    rows.clear()
    stats.exchange_ended(report, "192.0.2.1", 3128)
    assert rows[0][ACCESS_FIELDS.index("level")] == level
