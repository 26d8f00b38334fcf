"""Which module may import which, and that the four top-level names are ours."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.kit.folders import ROOT

ORDER = ("config", "actors", "api", "supervisor")


def sources(name: str) -> list[Path]:
    folder = ROOT / name
    return sorted(folder.rglob("*.py")) if folder.is_dir() else [ROOT / f"{name}.py"]


IMPORTED = re.compile(r"^[ \t]*(?:from|import)[ \t]+([\w.]+)", re.MULTILINE)
"""The module of an import statement; to parse all files takes a hundred times as long."""
DOCUMENTED = re.compile(r"\s*(?:#.*\s+)*(?:\"|$)")


@cache
def text_of(file: Path) -> str:
    return file.read_text()


def imported(file: Path) -> list[str]:
    return IMPORTED.findall(text_of(file))


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
        if any(module.partition(".")[0] == "tests" for module in imported(file))
    ]
    assert wrong == []


def test_no_test_imports_from_a_module_of_tests() -> None:
    """What several modules need is in `tests.kit`, or in a module beside them without tests."""
    wrong = [
        f"{file.relative_to(ROOT)} imports {module}"
        for file in (ROOT / "tests").rglob("*.py")
        for module in imported(file)
        if module.startswith("tests.") and module.rpartition(".")[2].startswith(("test_", "conftest"))
    ]
    assert wrong == []


REFERS = {"account_kind": {"plan_kind"}}
"""The kinds that a kind refers to; `named_kind` declares none."""


def test_a_kind_of_object_imports_none_but_what_it_refers_to() -> None:
    wrong = [
        f"{file.relative_to(ROOT)} imports {module}"
        for file in (ROOT / "api/objects").rglob("*_kind.py")
        for module in imported(file)
        if (other := module.rpartition(".")[2]).endswith("_kind")
        and other not in {file.stem, "named_kind", *REFERS.get(file.stem, ())}
    ]
    assert wrong == []


@pytest.mark.parametrize("name", ORDER)
def test_the_name_is_ours_and_no_other_distributions(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__file__ is not None
    assert Path(module.__file__).resolve().is_relative_to(ROOT)


def test_every_source_file_says_what_it_is() -> None:
    files = [file for name in ORDER for file in sources(name)]
    assert [str(file.relative_to(ROOT)) for file in files if not DOCUMENTED.match(text_of(file))] == []
