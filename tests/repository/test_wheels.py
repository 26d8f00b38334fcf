"""The wheel and the compiled copy of a checkout, where something is missing for them, without compiling anything."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from types import ModuleType

import pytest

from tests.kit.environments import needed
from tests.kit.folders import ROOT


@pytest.fixture
def wheel(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module `build_wheel`, which others import by this name."""
    return load(monkeypatch, "build_wheel")


def load(monkeypatch: pytest.MonkeyPatch, name: str) -> ModuleType:
    found = importlib.util.spec_from_file_location(name, ROOT / "scripts" / "wheels" / f"{name}.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    monkeypatch.setitem(sys.modules, name, module)
    found.loader.exec_module(module)
    return module


def test_without_a_compiler_the_pure_wheel_is_built_and_one_line_says_so(
    wheel: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    built: list[bool] = []
    monkeypatch.setenv("CC", "/nonexistent/cc")
    monkeypatch.setattr(wheel, "build", lambda out, *, compiled: built.append(compiled) or out)
    assert wheel.build_best(tmp_path) == tmp_path
    assert built == [False]
    assert capsys.readouterr().err == "No C compiler: the pure version is built\n"


def test_when_compiling_fails_the_pure_wheel_is_built_and_one_line_says_why(
    wheel: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:

    def build(out: Path, *, compiled: bool) -> Path:
        if compiled:
            raise wheel.CannotBuild("much\n  actors/a.py:3: error: no such thing\nand more")
        return out

    monkeypatch.setattr(wheel, "obstacle", lambda: "")
    monkeypatch.setattr(wheel, "build", build)
    assert wheel.build_best(tmp_path) == tmp_path
    said = "Compiling failed (actors/a.py:3: error: no such thing): the pure version is built\n"
    assert capsys.readouterr().err == said


def test_an_edited_source_has_another_copy_and_only_what_compiled_modules_import_is_compiled_anew(
    wheel: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tree = load(monkeypatch, "compiled_tree")
    root = tmp_path / "checkout"
    texts = {
        "actors/compiled.txt": "actors/bus/loop.py\n",
        "actors/bus/__init__.py": "",
        "actors/bus/loop.py": "def run():\n    from config import limits\n",
        "actors/logs.py": "one = 1\n",
        "config/limits.py": "from actors.bus import names\n",
        "actors/bus/names.py": "import api.app\n",
        "api/app.py": "one = 1\n",
        "api/page.py": "one = 1\n",
        **dict.fromkeys(tree.COMPILED_FROM[1:], ""),
    }
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    compiled: list[Path] = []

    def put(folder: Path, *_others: Path | None) -> Path:
        compiled.append(folder)
        (folder / "actors" / "bus").mkdir(parents=True)
        (folder / "actors" / "bus" / "loop.so").write_text("machine code")
        return folder

    monkeypatch.setattr(tree, "ROOT", root)
    monkeypatch.setattr(tree, "CACHE", root / ".cache" / "compiled")
    monkeypatch.setattr(tree, "compile_into", put)
    made = [tree.tree()]
    assert (made[0] / "actors" / "bus" / "loop.so").read_text() == "machine code"
    assert tree.tree() == made[0]
    anew = {}
    for name in texts:
        before = len(compiled)
        with (root / name).open("a") as file:
            file.write("# edited\n" if name.endswith(".py") else "\n")
        made.append(tree.tree())
        anew[name] = len(compiled) > before
    assert len(set(made)) == len(texts) + 1
    assert [name for name, again in anew.items() if not again] == ["actors/logs.py", "api/page.py"]
    assert not list(root.glob("actors/**/*.so"))
    tree.prune("tree")
    assert len(list((root / ".cache" / "compiled").glob("tree-*"))) == 2


def test_a_pure_wheel_needs_no_more_than_it_asks_for() -> None:
    """Nothing else is there when what its build runs is imported. That of `.ci/run` is compiled, and has more."""
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]
    asked = {"proxyfleet"}.union(*map(needed, build["requires"]))
    packages = packages_distributions().items()
    absent = [name for name, of in packages if asked.isdisjoint(each.lower().replace("_", "-") for each in of)]
    code = f"import sys; sys.modules |= dict.fromkeys({absent!r}); import scripts.wheels.hook, scripts.wheels.man_page"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=300)
