"""Counts files and lines of code, without comments, docstrings and blank lines."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = ("config", "actors", "api")
PAGE = ROOT / "api" / "ui" / "source"
SMALL = 60
"""Lines of code below which a file is small."""
_LEFT_OUT = {"node_modules", "dist", "__pycache__", "schema.d.ts"}
"""What is made by programs."""


@cache
def code_lines(path: Path) -> int:
    """The lines of one file of Python, shell, TypeScript or Svelte."""
    text = path.read_text()
    if path.suffix in {".ts", ".svelte", ".css", ".c", ".go", ".java", ".mjs"}:
        text = re.sub(r"<!--.*?-->|(?m:^\s*)/\*.*?\*/", "", text, flags=re.DOTALL)
        return sum(not line.lstrip().startswith("//") for line in text.splitlines() if line.strip())
    is_python = path.suffix == ".py" or "python" in text.partition("\n")[0]
    left_out = parsed(path).docstrings if is_python else ()
    lines = enumerate(map(str.strip, text.splitlines()), 1)
    return sum(number not in left_out for number, line in lines if line and not line.startswith("#"))


class Parsed(NamedTuple):
    """What is counted of a module of Python: a tree takes a thousand times the room."""

    docstrings: set[int]
    """Lines, those of attributes' docstrings as well."""
    imports: list[tuple[str, tuple[str, ...]]]
    """A module, and the names that are imported from it."""
    classes: list[str]
    """Those at the top."""


@cache
def parsed(path: Path) -> Parsed:
    """Reads a module once."""
    tree = ast.parse(path.read_text())
    found = Parsed(set(), [], [each.name for each in tree.body if isinstance(each, ast.ClassDef)])
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = getattr(node, name, ())
            waiting += inner if isinstance(inner, list) else ()
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            found.docstrings.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        elif isinstance(node, ast.Import):
            found.imports.extend((each.name, ()) for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.imports.append((node.module, tuple(each.name for each in node.names)))
    return found


def files(folder: Path) -> list[Path]:
    """The files with code below `folder`; of `scripts` those without a suffix as well."""
    suffixes = {".py", ".sh", ".ts", ".svelte", ".css", ".c", ".go", ".java", ".mjs"}
    found = [each for each in folder.rglob("*") if each.is_file() and not _LEFT_OUT & set(each.relative_to(ROOT).parts)]
    scripts = folder.is_relative_to(ROOT / "scripts")
    return sorted(each for each in found if each.suffix in suffixes or (scripts and not each.suffix))


@cache
def product_files() -> list[Path]:
    """The product's modules of Python."""
    found = [each for name in PRODUCT for each in files(ROOT / name) if each.suffix == ".py"]
    return [*(each for each in found if not each.is_relative_to(PAGE)), ROOT / "supervisor.py"]


def module(path: Path) -> str:
    """The name by which `path` is imported."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@cache
def importers() -> dict[str, set[str]]:
    """For each module of the product those of the product that import it; a package counts by its `__init__` alone."""
    names = {module(path): path for path in product_files()}
    found: dict[str, set[str]] = {name: set() for name in names}
    for name, path in names.items():
        for source, inner in parsed(path).imports:
            wanted = [each if each in names else source for each in (f"{source}.{one}" for one in inner)] or [source]
            for each in wanted:
                if each in found and each != name:
                    found[each].add(name)
    return found


def small_files() -> list[Path]:
    """The product's files with fewer lines than `SMALL`, without `__init__.py`."""
    return [each for each in product_files() if each.name != "__init__.py" and code_lines(each) < SMALL]


def small_files_with_one_importer() -> list[str]:
    """Those of them that a single module imports, as `path <- module`."""
    readers = importers()
    named = ((each, readers[module(each)]) for each in small_files())
    return [f"{each.relative_to(ROOT)} <- {next(iter(by))}" for each, by in named if len(by) == 1]


def repeated_class_names() -> dict[str, list[str]]:
    """The product's top-level classes whose name stands in more than one module, with these modules."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in product_files():
        for name in parsed(path).classes:
            found[name].append(module(path))
    return {name: modules for name, modules in sorted(found.items()) if len(modules) > 1}


def largest_folders() -> list[tuple[str, int]]:
    """The product's folders with the number of modules that lie in each, without `__init__.py`; the largest first."""
    counted: dict[str, int] = defaultdict(int)
    for path in product_files():
        counted[str(path.parent.relative_to(ROOT))] += path.name != "__init__.py"
    return sorted(counted.items(), key=lambda each: (-each[1], each[0]))


def dependencies() -> list[str]:
    """What is installed with the product."""
    return list(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"])
