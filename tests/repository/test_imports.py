"""Which module may import which, and that the four top-level names are ours."""

from __future__ import annotations

import ast
import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.folders import ROOT

ORDER = ("config", "actors", "api", "supervisor")


def sources(name: str) -> list[Path]:
    folder = ROOT / name
    return sorted(folder.rglob("*.py")) if folder.is_dir() else [ROOT / f"{name}.py"]


def modules(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def imported(file: Path) -> set[str]:
    return {module.partition(".")[0] for module in modules(file)}


def test_no_import_crosses_a_layer() -> None:
    """The contracts stand in pyproject.toml under `tool.importlinter`."""
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_product_file_imports_a_test() -> None:
    wrong = [
        f"{file.relative_to(ROOT)} imports tests"
        for name in ORDER
        for file in sources(name)
        if "tests" in imported(file)
    ]
    assert wrong == []


def test_no_test_imports_from_a_module_of_tests() -> None:
    """What several modules need is in `tests.kit`, or in a module beside them without tests."""
    wrong = [
        f"{file.relative_to(ROOT)} imports {module}"
        for file in (ROOT / "tests").rglob("*.py")
        for module in modules(file)
        if module.startswith("tests.") and module.rpartition(".")[2].startswith(("test_", "conftest"))
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
