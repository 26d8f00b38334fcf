"""Sizes, rates and spans of time, as people and programs read them, and as people type them."""

from __future__ import annotations

import pytest

from api.cli.errors import CommandError, Status
from api.cli.quantities import field_value, rate_of, seconds, size, size_of, span, with_decimal_units, with_unit
from api.cli.terminal import Column, cell_text
from tests.kit.tables import table
from tests.product.cli.shell import Shell


@table(
    ("count", "text"),
    [
        (0, "0 B"),
        (131, "131 B"),
        (999.6, "1 kB"),
        (1024, "1.02 kB"),
        (1_009_900, "1.01 MB"),
        (5_000_000, "5 MB"),
        (50_000_000_000, "50 GB"),
        (999_949, "1 MB"),
        (99_960, "100 kB"),
        (10 * 2**30, "10.7 GB"),
        (2 * 10**21, "2000 EB"),
    ],
)
def test_sizes_are_decimal_with_three_digits(count: float, text: str) -> None:
    assert size(count).text == text
    assert size(count, per_second=True).text == f"{text}/s"


@table(
    ("typed", "text"),
    [
        ("50GB", "50 GB"),
        ("20GiB", "20 GiB"),
        ("1.5GiB", "1.5 GiB"),
        ("1234567", "1.23 MB"),
        ("999", "999 B"),
        ("0", "0 B"),
    ],
)
def test_a_quota_reads_as_it_was_typed(typed: str, text: str) -> None:
    assert size(size_of(typed), is_setting=True).text == text


@table(
    ("typed", "text"),
    [
        ("20Mbit/s", "20 Mbit/s"),
        ("5MB/s", "5 MB/s"),
        ("1.25Gbit/s", "1.25 Gbit/s"),
        ("300kB/s", "300 kB/s"),
        ("1MiB/s", "1 MiB/s"),
        ("1234567", "1.23 MB/s"),
        ("999", "999 B/s"),
    ],
)
def test_a_limit_of_bandwidth_reads_as_it_was_typed(typed: str, text: str) -> None:
    assert size(rate_of(typed), per_second=True, is_setting=True).text == text


@table(("seconds", "text"), [(0, "0s"), (-1, "0s"), (59.9, "59s"), (60, "1m"), (3_700, "1h 1m")])
def test_a_span_under_a_minute_is_in_seconds(seconds: float, text: str) -> None:
    assert span(seconds).text == text


@table(
    ("typed", "length"),
    [("90", 90), ("0", 0), ("0.5", 0.5), ("90s", 90), ("15m", 900), ("1.5h", 5400), ("2d", 172_800), (" 1w", 604_800)],
)
def test_a_span_is_read_with_and_without_a_unit(typed: str, length: float) -> None:
    assert seconds(typed, "--wait") == length
    assert isinstance(seconds(typed, "--wait"), type(length)), "the API takes whole numbers alone"


@table(
    ("typed", "said"),
    [
        ("soon", "--ttl 'soon': is not a span of time"),
        ("-5", "--ttl '-5': is not a span of time"),
        ("5x", "--ttl '5x': is not a span of time"),
        ("", "--ttl '': is not a span of time"),
        ("5", "--ttl '5': must be from 1m to 7d"),
        ("59.9s", "--ttl '59.9s': must be from 1m to 7d"),
        ("8d", "--ttl '8d': must be from 1m to 7d"),
    ],
)
def test_a_span_that_is_none_or_out_of_bounds_is_refused_with_units(typed: str, said: str) -> None:
    with pytest.raises(CommandError) as refused:
        seconds(typed, "--ttl", 60, 7 * 86_400)
    assert (str(refused.value), refused.value.status) == (said, Status.USAGE)


def test_programs_get_numbers_where_people_get_units() -> None:
    column = Column("IN", lambda row: [size(row["in"]), span(7)])
    assert column.cell({"in": 2048}) == "2.05 kB, 7s"
    assert column.cell({"in": 2048}, plain=True) == "2048, 7"
    assert cell_text(size(1.6, per_second=True), plain=True) == "2"


@table(
    ("text", "count"),
    [
        ("0", 0),
        ("5000000", 5_000_000),
        ("5MB", 5_000_000),
        ("5 mb", 5_000_000),
        ("5MiB", 5 * 2**20),
        ("1.5GiB", 3 * 2**29),
        ("2 kB", 2_000),
        ("100 bytes", 100),
        ("7B", 7),
    ],
)
def test_a_size_is_read_with_and_without_a_unit(text: str, count: int) -> None:
    assert size_of(text) == count


@table(
    ("text", "rate"),
    [
        ("125000", 125_000),
        ("1Mbit/s", 125_000),
        ("1 Mbps", 125_000),
        ("1Mibit/s", 2**17),
        ("125kB/s", 125_000),
        ("1MiB/s", 2**20),
        ("1MB", 1_000_000),
    ],
)
def test_a_rate_is_read_in_bytes_or_bits(text: str, rate: int) -> None:
    assert rate_of(text) == rate


@table("text", ["", "MB", "5 XB", "5M", "-1", "1e6", "5MB/s", "5Mbit", "1,5MB", "٣MB"])
def test_what_is_no_size_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match="must be a size in bytes: 5000000, 5MB, 5MiB"):
        size_of(text)


@table("text", ["5Mb", "5Mb/s", "1kb"])
def test_a_unit_that_could_be_bits_or_bytes_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"could be bits or bytes: write [Mk]B or [Mk]bit"):
        rate_of(text)


def test_fields_that_hold_sizes_and_rates_are_known_by_their_names() -> None:
    assert field_value("limits.bandwidth_in", "1Mbit/s") == 125_000
    assert field_value("quota.bytes", "20GiB") == 20 * 2**30
    assert field_value("name", "5MB") is None
    assert (with_unit("quota.bytes", 5), with_unit("settings.timeout", 5)) == (size(5, is_setting=True), 5)


def test_texts_of_the_api_get_decimal_units() -> None:
    assert with_decimal_units("45.0%, 7.75 GB of 15.50 GB, 131.00 B") == "45.0%, 8.32 GB of 16.6 GB, 131 B"


@table(
    "line",
    [
        ["accounts", "create", "p", "u", "--quota", "5Mb"],
        ["proxies", "update", "p", "--set", "limits.bandwidth_in=1 furlong"],
    ],
)
def test_a_bad_size_or_rate_on_the_line_is_refused_before_anything_is_asked(stranger: Shell, line: list[str]) -> None:
    refused = stranger(*line)
    assert refused.status == 2, refused.err
    assert "must be " in refused.err or "write " in refused.err


def test_the_error_is_that_of_a_wrong_line() -> None:
    from api.cli.documents import body_of

    with pytest.raises(CommandError, match=r"limits\.bandwidth_in=x: must be a rate"):
        body_of({"set_": ["limits.bandwidth_in=x"]})
    assert body_of({"set_": ["limits.bandwidth_in=1Mbit/s", "quota.bytes=5MB", "name=5MB"]}) == {
        "limits": {"bandwidth_in": 125_000},
        "quota": {"bytes": 5_000_000},
        "name": "5MB",
    }
