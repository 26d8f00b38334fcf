"""What may only become less: docs/dev/contributing.md, "Rules for every change". Who gets below a ceiling lowers it."""

from __future__ import annotations

import counted_lines as counted
import pytest

from tests.kit.folders import ROOT
from tests.kit.slow_tests import CEILING, SLOW_TESTS

CEILINGS = {
    "code lines of the product": 85_140,
    "files of the product": 625,
    "code lines of the tests": 95_534,
    "code lines of scripts": 6_425,
    "files under 60 lines that one module imports": 4,
    "class names that stand twice": 0,
    "modules of the longest folder": 15,
    "dependencies": 26,
    "tests that take longer than the ceiling": 23,
    "seconds of a test": 5,
}


def lines(*folders: str) -> int:
    return sum(counted.code_lines(file) for folder in folders for file in counted.files(ROOT / folder))


@pytest.fixture(scope="module")
def now() -> dict[str, float]:
    return {
        "code lines of the product": sum(map(counted.code_lines, counted.product_files())),
        "files of the product": len(counted.product_files()),
        "code lines of the tests": lines("tests"),
        "code lines of scripts": lines("scripts"),
        "files under 60 lines that one module imports": len(counted.small_files_with_one_importer()),
        "class names that stand twice": len(counted.repeated_class_names()),
        "modules of the longest folder": counted.largest_folders()[0][1],
        "dependencies": len(counted.dependencies()),
        "tests that take longer than the ceiling": len(SLOW_TESTS),
        "seconds of a test": CEILING,
    }


def test_nothing_is_above_its_ceiling(now: dict[str, float]) -> None:
    above = [f"{what}: {now[what]}, at most {most}" for what, most in CEILINGS.items() if now[what] > most]
    assert above == []


def test_ceilings_follow_what_has_become_less(now: dict[str, float]) -> None:
    below = [f"{what}: {now[what]} of {most}: lower it" for what, most in CEILINGS.items() if now[what] < most * 0.98]
    assert below == []


def test_each_exception_from_the_seconds_of_a_test_names_a_test() -> None:
    tests = "".join(file.read_text() for file in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name in SLOW_TESTS if f"def {name}(" not in tests] == []
