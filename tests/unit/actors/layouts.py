"""What is measured of addresses, in a process for each: they hang on all that a process has made and freed before.

A module without test libraries, so that those processes start soon.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

from actors.function_layout import gather_functions
from actors.memory_layout import called_code, fill_gaps, gather_code
from tests.kit.folders import ROOT

PAGE = 4096

_SOURCE = """
def function_{0}(number):
    def inner(plus=number):
        return [each + plus for each in range(number)]
    return inner(), "a text that only this function has: {0}"
"""
_SHORT_SOURCE = """
def function_{0}(number):
    return number + {0}
"""


def alone(call: str) -> None:
    """Run a function of this module in a process of its own. Raises `AssertionError`."""
    program = f"from tests.unit.actors import layouts; layouts.{call}"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def scattered(count: int) -> list[Callable[[int], Any]]:
    """Functions whose code lies between that of others, nine for each."""
    made: dict[str, Any] = {}
    for number in range(10 * count):
        exec(_SOURCE.format(number), made)
    return [made[f"function_{number}"] for number in range(0, 10 * count, 10)]


def code_of(function: Callable[..., Any]) -> CodeType:
    assert isinstance(function, FunctionType)
    return function.__code__


def pages(addresses: list[int]) -> int:
    """On so many pages objects with these addresses begin."""
    return len({each // PAGE for each in addresses})


def code_is_gathered() -> None:
    """The pages that code is on become fewer."""
    functions = scattered(60)

    def results() -> list[Any]:
        return [each(number) for number, each in enumerate(functions)]

    before, before_pages = results(), pages([id(code_of(each)) for each in functions])
    gather_code(called_code(results))
    after = pages([id(code_of(each)) for each in functions])
    assert after < before_pages / 3, (before_pages, after)
    assert results() == before


def new_objects_lie_together(size: int) -> None:
    """After the gaps are filled."""
    kept = [bytes(size - 33) for _ in range(2_000)][::2]  # the others leave gaps
    fill_gaps()
    new = [bytes(size - 33) for _ in range(1_000)]
    assert len(kept) == 1_000
    found, fewest = pages([id(each) for each in new]), 1_000 * size / PAGE
    assert found < fewest * 1.2, (found, fewest)


def functions_lie_side_by_side() -> None:
    """The pages that functions are on become fewer."""
    module: dict[str, Any] = {}
    for number in range(2_000):
        exec(_SHORT_SOURCE.format(number), module)
    before = pages([id(each) for each in _every_tenth(module)])
    gather_functions(_every_tenth(module))
    moved = _every_tenth(module)
    after = pages([id(each) for each in moved])
    assert after < before / 3, (before, after)
    assert [each(1) for each in moved] == list(range(1, 2001, 10))


def _every_tenth(module: dict[str, Any]) -> list[FunctionType]:
    return [each for name, each in module.items() if name.startswith("function_") and name.endswith("0")]
