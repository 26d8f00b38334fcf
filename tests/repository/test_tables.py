"""A test that is a table lists every row that fails, and fails when there is none."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest

from tests.kit.tables import table


def failure_of(whole: Callable[..., None], **fixtures: object) -> str:
    with pytest.raises(pytest.fail.Exception) as raised:
        whole(**fixtures)
    return str(raised.value)


def test_every_failing_row_is_listed_by_its_name_with_the_values_of_its_assertion() -> None:
    @table(("given", "wanted"), [(1, 2), (2, 2), pytest.param("a", "b", id="letters")])
    def each(given: object, wanted: object) -> None:
        assert given == wanted

    listed = failure_of(each)
    assert listed.startswith("2 of 3 rows failed:\n\n1, 2\n")
    assert "test_tables.py" in listed
    assert "assert given == wanted" in listed
    assert "assert 1 == 2" in listed
    assert "\nletters\n" in listed
    assert "'a' == 'b'" in listed
    assert "2, 2" not in listed


@table("error", [ValueError, KeyError, OSError, pytest.fail, pytest.skip])
def test_whatever_a_row_raises_is_its_failure(error: Callable[[str], BaseException]) -> None:
    @table("row", ["only"])
    def each(row: str) -> None:
        raised = error(row)
        raise raised

    assert failure_of(each).startswith("1 of 1 rows failed:\n\n'only'\n")


def test_an_interrupt_ends_the_table() -> None:
    @table("row", [1, 2])
    def each(row: int) -> None:
        assert row == 1
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        each()


@table("rows", [[], list])
def test_a_table_without_rows_fails(rows: list[int]) -> None:
    @table("row", rows)
    def each(row: int) -> None:
        assert row

    assert failure_of(each) == "the table has no rows"


@table("row", [(), (1,), (1, 2, 3)])
def test_a_row_has_a_value_for_each_column(row: tuple[int, ...]) -> None:
    @table("one, other", [row])
    def each(one: int, other: int) -> None:
        assert one != other

    with pytest.raises(AssertionError, match="values for 2 columns"):
        each()


def test_all_other_parameters_are_fixtures_for_every_row() -> None:
    seen = []

    @table("small", [1, 2], ids=["one", "two"])
    @table("large", lambda: [10, 20], ids=hex)
    def each(small: int, folder: str, large: int) -> None:
        seen.append((folder, small + large))
        assert large == 10

    assert list(inspect.signature(each).parameters) == ["folder"]
    listed = failure_of(each, folder="f")
    assert seen == [("f", 11), ("f", 21), ("f", 12), ("f", 22)]
    assert "\none\n1 of 2 rows failed:\n\n0x14\n" in listed
