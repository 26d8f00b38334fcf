"""A table is one test: `@table` stands where `pytest.mark.parametrize` would make a test of each row.

    @table(("text", "seconds"), [("1s", 1), pytest.param("2m", 120, id="minutes")])
    def test_a_duration_is_read(text: str, seconds: int) -> None:
        assert duration(text) == seconds

Every row runs, also after one that fails; then the test lists each failing row by its name, with the line and the
values of its assertion. The other parameters of the function are fixtures, made once for all rows: a row that needs
something fresh makes it. Tables may stand upon one another, and upon `parametrize`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType

import pytest
from _pytest.mark import ParameterSet

Test = Callable[..., None]
Ids = Iterable[str] | Callable[..., object]
NAME_LENGTH = 100


class Row:
    """Keeps the report of what is raised within it; an interrupt of the run goes on."""

    def __init__(self, name: str, reports: list[str]) -> None:
        self.name = name
        self.reports = reports

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _traceback: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception | pytest.fail.Exception | pytest.skip.Exception):
            return False
        whole = not isinstance(error, pytest.fail.Exception) or error.pytrace
        text = pytest.ExceptionInfo.from_exception(error).getrepr(style="short") if whole else error
        self.reports.append(f"{self.name}\n{text}")
        return True


def named_rows(rows: Iterable[object], width: int, ids: Ids | None) -> Iterator[tuple[str, tuple[object, ...]]]:
    """Name and values of each row: a bare value where the table has one column, else one value for each column."""
    given = iter(ids) if isinstance(ids, Iterable) else None
    shown = ids if callable(ids) else ascii
    for row in rows:
        name = next(given) if given else None
        if isinstance(row, ParameterSet):
            assert not row.marks, "a row has no marks of its own"
            values, name = tuple(row.values), str(row.id or "") or name
        elif width > 1 and isinstance(row, Iterable):
            values = tuple(row)
        else:
            values = (row,)
        assert len(values) == width, f"{row!r} has {len(values)} values for {width} columns"
        yield name or ", ".join(str(shown(value))[:NAME_LENGTH] for value in values), values


def table(
    columns: str | Sequence[str], rows: Iterable[object] | Callable[[], Iterable[object]], *, ids: Ids | None = None
) -> Callable[[Test], Test]:
    """Run a test for each row, as `pytest.mark.parametrize` names columns, rows and `ids`, in one test.

    `rows` may be a function that makes them when the test runs. A table without rows fails, and so does a row that
    skips.
    """
    names = [name.strip() for name in columns.split(",")] if isinstance(columns, str) else list(columns)
    made = (lambda given=list(rows): given) if isinstance(rows, Iterable) else rows

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def whole(*args: object, **fixtures: object) -> None:
            __tracebackhide__ = True
            reports: list[str] = []
            named = list(named_rows(made(), len(names), ids))
            for name, values in named:
                with Row(name, reports):
                    test(*args, **fixtures, **dict(zip(names, values, strict=True)))
            if not named:
                pytest.fail("the table has no rows", pytrace=False)
            if reports:
                failing = "\n\n".join(reports)
                pytest.fail(f"{len(reports)} of {len(named)} rows failed:\n\n{failing}", pytrace=False)

        signature = inspect.signature(test)
        fixtures = [each for name, each in signature.parameters.items() if name not in names]
        whole.__dict__["__signature__"] = signature.replace(parameters=fixtures)
        return whole

    return decorate
