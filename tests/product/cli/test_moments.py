"""Times as people type them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from api.cli.errors import CommandError, Status
from api.cli.quantities import moment_of, moment_option
from tests.kit.tables import table

NOW = datetime(2026, 3, 1, 10, 0, tzinfo=UTC)


@table(
    ("text", "direction", "meant"),
    [
        ("15m", -1, "2026-03-01T09:45:00"),
        ("1d", 1, "2026-03-02T10:00:00"),
        ("9:30", -1, "2026-03-01T09:30:00"),
        ("23:50", -1, "2026-02-28T23:50:00"),
        ("10:00", -1, "2026-03-01T10:00:00"),
        ("23:50:30", 1, "2026-03-01T23:50:30"),
        ("10:00", 1, "2026-03-02T10:00:00"),
        ("today", -1, "2026-03-01T00:00:00"),
        ("Yesterday", -1, "2026-02-28T00:00:00"),
        ("yesterday 12:30", -1, "2026-02-28T12:30:00"),
        ("tomorrow", 1, "2026-03-02T00:00:00"),
        ("2026-02-03", -1, "2026-02-03T00:00:00"),
        ("2026-02-03 4:05", -1, "2026-02-03T04:05:00"),
    ],
)
def test_a_short_form_is_a_moment_in_utc(text: str, direction: int, meant: str) -> None:
    assert moment_of(text, direction, NOW) == datetime.fromisoformat(meant).replace(tzinfo=UTC)


def test_iso_8601_is_left_to_the_api_s_own_reading() -> None:
    assert moment_of("2030-01-31T12:00:00+02:00", -1, NOW) is None
    parsed = moment_option("--since", "").parsed
    assert parsed("2030-01-31T12:00:00+02:00") == "2030-01-31T10:00:00.000Z"


@table("text", [" ", "25:00", "12:60", "2026-02-30", "yesterday noon", "yesterday 1:2:3:4", "7", "999999y"])
def test_what_is_no_time_is_refused_with_the_option(text: str) -> None:
    with pytest.raises(CommandError, match=r"--expires ") as refused:
        moment_option("--expires", "", 1).parsed(text)
    assert refused.value.status is Status.USAGE
