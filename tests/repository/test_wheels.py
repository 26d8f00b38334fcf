"""The wheel and the compiled copy of a checkout, where something is missing for them, without compiling anything."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.kit.folders import ROOT


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> tuple[ModuleType, ModuleType]:
    """The modules `build_wheel` and `compiled_tree`."""
    return load(monkeypatch, "build_wheel"), load(monkeypatch, "compiled_tree")


def load(monkeypatch: pytest.MonkeyPatch, name: str) -> ModuleType:
    found = importlib.util.spec_from_file_location(name, ROOT / "scripts" / "wheels" / f"{name}.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    monkeypatch.setitem(sys.modules, name, module)
    found.loader.exec_module(module)
    return module


def test_without_a_compiler_the_pure_wheel_is_built_and_one_line_says_so(
    scripts: tuple[ModuleType, ModuleType],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    wheel, _ = scripts
    built: list[bool] = []
    monkeypatch.setenv("CC", "/nonexistent/cc")
    monkeypatch.setattr(wheel, "build", lambda out, *, compiled: built.append(compiled) or out)
    assert wheel.build_best(tmp_path) == tmp_path
    assert built == [False]
    assert capsys.readouterr().err == "No C compiler: the pure version is built\n"


def test_when_compiling_fails_the_pure_wheel_is_built_and_one_line_says_why(
    scripts: tuple[ModuleType, ModuleType],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    wheel, _ = scripts

    def build(out: Path, *, compiled: bool) -> Path:
        if compiled:
            raise wheel.CannotBuild("much\n  actors/a.py:3: error: no such thing\nand more")
        return out

    monkeypatch.setattr(wheel, "obstacle", lambda: "")
    monkeypatch.setattr(wheel, "build", build)
    assert wheel.build_best(tmp_path) == tmp_path
    said = "Compiling failed (actors/a.py:3: error: no such thing): the pure version is built\n"
    assert capsys.readouterr().err == said


def test_an_edited_source_has_another_copy_and_two_are_kept(
    scripts: tuple[ModuleType, ModuleType], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _, tree = scripts
    root = tmp_path / "checkout"
    for name in ("actors/bus/loop.py", "api/app.py"):
        (root / name).parent.mkdir(parents=True)
        (root / name).write_text("one = 1\n")
    compiled: list[Path] = []

    def put(folder: Path, _source: Path) -> Path:
        compiled.append(folder)
        (folder / "actors" / "bus").mkdir(parents=True)
        (folder / "actors" / "bus" / "loop.so").write_text("machine code")
        return folder

    monkeypatch.setattr(tree, "ROOT", root)
    monkeypatch.setattr(tree, "CACHE", root / ".cache" / "compiled")
    monkeypatch.setattr(tree, "compile_into", put)
    first = tree.tree()
    assert (first / "actors" / "bus" / "loop.so").read_text() == "machine code"
    assert tree.tree() == first
    (root / "api" / "app.py").write_text("one = 2\n")
    second = tree.tree()
    assert (second != first, len(compiled)) == (True, 1)
    (root / "actors" / "bus" / "loop.py").write_text("one = 2\n")
    third = tree.tree()
    assert len({first, second, third}) == 3
    assert len(compiled) == 2
    assert not list(root.glob("actors/**/*.so"))
    tree.prune("tree")
    assert len(list((root / ".cache" / "compiled").glob("tree-*"))) == 2
