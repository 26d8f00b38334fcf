"""The import direction, config ← actors ← api ← supervisor.py, and that the four names are ours."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ORDER = ("config", "actors", "api", "supervisor")


def sources(name: str) -> list[Path]:
    folder = ROOT / name
    return sorted(folder.rglob("*.py")) if folder.is_dir() else [ROOT / f"{name}.py"]


def imported(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").partition(".")[0]


@pytest.mark.parametrize("name", ORDER)
def test_a_package_imports_from_those_below_it_alone(name: str) -> None:
    above = set(ORDER[ORDER.index(name) + 1 :]) | {"tests"}
    found = sources(name)
    assert found
    wrong = [
        f"{file.relative_to(ROOT)} imports {other}" for file in found for other in imported(file) if other in above
    ]
    assert wrong == []


@pytest.mark.parametrize("name", ORDER)
def test_the_name_is_ours_and_no_other_distributions(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__file__ is not None
    assert Path(module.__file__).resolve().is_relative_to(ROOT)


def test_every_source_file_says_what_it_is() -> None:
    silent = [
        str(file.relative_to(ROOT))
        for name in ORDER
        for file in sources(name)
        if file.read_text().strip() and not ast.get_docstring(ast.parse(file.read_text()))
    ]
    assert silent == []
