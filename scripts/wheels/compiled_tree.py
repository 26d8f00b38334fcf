"""A copy of this checkout with compiled modules: compiled_tree.py [FOLDER]; prints where it is.

Nothing is compiled into the checkout, where it would win over a source that was edited since. The copy lies in
`.cache/compiled`, and its name is made of all that is in it: an edited file gives another copy. The compiled modules
are kept apart from it, by what the compiler reads for them, so an edit elsewhere compiles nothing. Two of each stay.
FOLDER gets the wheel that they were taken from, if they had to be compiled.

Says in one line why nothing can be compiled, and ends with 3 where the machine has nothing to do it with, else with 4;
`failure.log` there has the output of the build then.
"""

from __future__ import annotations

import ast
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NoReturn

from build_wheel import ROOT, CannotBuild, build, obstacle, reason_of

CACHE = ROOT / ".cache" / "compiled"
COMPILED_FROM = ("actors/compiled.txt", "scripts/wheels/compile_modules.py", "scripts/wheels/hook.py")
CACHED_TREES = 2
LEFT_OUT = {".git", ".venv", ".cache", "data", "dist", "build", "node_modules", "__pycache__", "test-results"} | {
    *(".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis"),
}


def files() -> list[str]:
    """What the checkout has, but for what git ignores; all but environments and caches without git."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    if (ROOT / ".git").exists() and shutil.which("git"):
        names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    else:
        paths = (path.relative_to(ROOT) for path in ROOT.rglob("*"))
        names = [str(path) for path in paths if not LEFT_OUT & set(path.parts)]
    return sorted(name for name in set(names) if name and (ROOT / name).is_file())


def fingerprint(folder: Path, names: Iterable[str]) -> str:
    """Of these files and the interpreter."""
    digest = hashlib.sha256(f"{sys.version} {sys.executable} {os.environ.get('MYPYC_OPT_LEVEL')}".encode())
    for name in names:
        content = (folder / name).read_bytes()
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]


def compiled_from(folder: Path) -> list[str]:
    """What the compiler reads: the listed modules, and what they import of this checkout, directly or not."""
    found: set[str] = set()
    left = (folder / COMPILED_FROM[0]).read_text(encoding="utf-8").split()
    while left:
        name = left.pop()
        if name not in found and (folder / name).is_file():
            found.add(name)
            left += imported(folder / name)
    return sorted(found.union(COMPILED_FROM))


def imported(file: Path) -> Iterator[str]:
    """The files that a module may mean by its imports, and those of the packages around them."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            dotted = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            dotted = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in dotted:
            parts = name.split(".")
            for count in range(1, len(parts) + 1):
                path = "/".join(parts[:count])
                yield from (f"{path}.py", f"{path}/__init__.py")


def tree(wheels: Path | None = None) -> Path:
    """The copy of the checkout as it is now; see the module for `wheels`. Raises `CannotBuild`."""
    names = files()
    target = CACHE / f"tree-{fingerprint(ROOT, names)}"
    if not target.exists():
        with TemporaryDirectory() as folder:
            copy = Path(folder, "all")
            for name in names:
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, copy / name, follow_symlinks=False)
            target = CACHE / f"tree-{fingerprint(copy, names)}"  # the checkout may have changed meanwhile
            shutil.copytree(modules(copy, wheels), copy, dirs_exist_ok=True)
            (copy / ".cache").symlink_to(ROOT / ".cache")
            put_in_place(copy, target)
    target.touch()
    return target


def modules(copy: Path, wheels: Path | None) -> Path:
    """The folder of the compiled modules, made if need be. Raises `CannotBuild`."""
    target = CACHE / f"modules-{fingerprint(copy, compiled_from(copy))}"
    if not target.exists():
        print("Compiling the forwarding path, which takes some minutes ...", file=sys.stderr)
        with TemporaryDirectory() as folder:
            put_in_place(compile_into(Path(folder), copy, wheels), target)
    target.touch()
    return target


def compile_into(folder: Path, source: Path, wheels: Path | None) -> Path:
    """A folder in this one with what a compiled wheel has beside its sources."""
    with zipfile.ZipFile(build(wheels or folder, compiled=True, source=source, documented=False)) as wheel:
        wheel.extractall(folder / "all", [name for name in wheel.namelist() if name.endswith(".so")])
    return folder / "all"


def put_in_place(made: Path, target: Path) -> None:
    """As a whole or not at all; another process may have made it meanwhile."""
    CACHE.mkdir(parents=True, exist_ok=True)
    hidden = CACHE / f".{target.name}.{os.getpid()}"
    shutil.copytree(made, hidden, symlinks=True)
    try:
        hidden.rename(target)
    except OSError:
        shutil.rmtree(hidden)
        if not target.exists():
            raise


def prune(kind: str) -> None:
    """The newest few stay."""
    found = sorted(CACHE.glob(f"{kind}-*"), key=lambda each: each.stat().st_mtime, reverse=True)
    for each in found[CACHED_TREES:]:
        shutil.rmtree(each, ignore_errors=True)


def main() -> None:
    if reason := obstacle():
        give_up(reason, 3)
    try:
        made = tree(Path(sys.argv[1]) if sys.argv[1:] else None)
    except CannotBuild as error:
        CACHE.mkdir(parents=True, exist_ok=True)
        (CACHE / "failure.log").write_text(str(error), encoding="utf-8")
        give_up(f"compiling failed ({reason_of(str(error))})", 4)
    prune("modules")
    prune("tree")
    print(made)


def give_up(reason: str, status: int) -> NoReturn:
    print(f"{reason[:1].upper()}{reason[1:]}: the pure version runs", file=sys.stderr)
    sys.exit(status)


if __name__ == "__main__":
    main()
