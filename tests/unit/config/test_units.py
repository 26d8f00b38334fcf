"""Numbers as people read them."""

from __future__ import annotations

import pytest

from config.text.formatting import size_text, timestamp_text, uptime_text
from tests.kit.tables import table


@table(
    ("seconds", "text"),
    [(0, "0m"), (59, "0m"), (60, "1m"), (3600, "1h 0m"), (86_400, "1d 0h 0m"), (189_090, "2d 4h 31m"), (-5, "0m")],
)
def test_uptimes(seconds: float, text: str) -> None:
    assert uptime_text(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0.00 B"), (1023, "1023.00 B"), (1536 * 2**20, "1.50 GB"), (2**20 - 1, "1.00 MB")]
)
def test_sizes(count: int, text: str) -> None:
    assert size_text(count) == text


def test_timestamps_are_utc_with_milliseconds() -> None:
    assert timestamp_text(0.25) == "1970-01-01T00:00:00.250Z"
