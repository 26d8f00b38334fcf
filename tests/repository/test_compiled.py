"""What compiled modules can't do, found in the sources, so that no build is needed to see it: docs/dev/testing.md."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from actors.compiled import LIST, listed
from tests.kit.folders import ROOT

LISTED = frozenset(listed())
NOT_NATIVE = {"Protocol", "Enum", "StrEnum", "IntEnum", "IntFlag", "NamedTuple", "TypedDict"}
"""Classes with these bases stay classes of Python when they are compiled."""


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def sources(pattern: str, *folders: str) -> list[Path]:
    """Files that have it; to parse all takes long."""
    files = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return [path for path in files if re.search(pattern, path.read_text(encoding="utf-8"))]


@cache
def contents(module: str) -> dict[str, ast.stmt]:
    """The statements of a listed module by the name that each defines."""
    found: dict[str, ast.stmt] = {}
    for each in parsed((ROOT / module.replace(".", "/")).with_suffix(".py")).body:
        if isinstance(each, ast.FunctionDef | ast.ClassDef):
            found[each.name] = each
        elif isinstance(each, ast.Assign | ast.AnnAssign):
            targets = each.targets if isinstance(each, ast.Assign) else [each.target]
            found.update(
                {node.id: each for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}
            )
    return found


def imported(tree: ast.Module) -> dict[str, str]:
    """What each name of a file stands for, with dots."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.update({each.asname or each.name: f"{node.module}.{each.name}" for each in node.names})
        elif isinstance(node, ast.Import):
            names.update({each.asname: each.name for each in node.names if each.asname})
    return names


def in_list(dotted: str) -> tuple[str, str] | None:
    """The listed module that a name belongs to, and the rest of it."""
    parts = dotted.split(".")
    heads = (".".join(parts[:count]) for count in range(len(parts), 1, -1))
    module = next((each for each in heads if each in LISTED), None)
    return None if module is None else (module, dotted[len(module) + 1 :])


def text(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ast.unparse(node)


def replaced(tree: ast.Module) -> Iterator[str]:
    """What the tests of a file replace, by its full name as far as that can be seen."""
    names = imported(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "setattr":
            owner, *rest = [text(each) for each in node.args[:-1]]
            head, _, tail = owner.partition(".")
            yield ".".join(filter(None, (names.get(head, head), tail, *rest)))


def test_the_list_has_files_in_order() -> None:
    lines = LIST.read_text().split()
    assert lines == sorted(set(lines))
    assert [line for line in lines if not (ROOT / line).is_file()] == []


def test_nothing_is_replaced_that_compiled_code_calls_or_inlines() -> None:
    wrong = []
    for path in sources("setattr", "tests"):
        for name in replaced(parsed(path)):
            module, rest = in_list(name) or ("", "")
            if module and not is_variable(contents(module).get(rest)):
                wrong.append(f"{path.relative_to(ROOT)}: {name}")
    assert wrong == []


def is_variable(statement: ast.stmt | None) -> bool:
    """Whether it is one of the module that is looked up at each use."""
    if isinstance(statement, ast.AnnAssign):
        return "Final" not in ast.unparse(statement.annotation)
    return isinstance(statement, ast.Assign)


def test_no_generator_expression_is_handed_on() -> None:
    """mypyc makes a list of it at once; a caller that takes its elements one by one wants a generator function."""
    wrong = [
        f"{line}:{node.lineno}"
        for line in LIST.read_text().split()
        for node in ast.walk(parsed(ROOT / line))
        if isinstance(node, ast.Return | ast.YieldFrom) and isinstance(node.value, ast.GeneratorExp)
    ]
    assert wrong == []


def test_no_class_of_python_has_a_compiled_one_as_its_base() -> None:
    native = {name for module in LISTED for name in contents(module) if is_native(f"{module}.{name}")}
    files = sources(rf"class \w+\([^)]*\b({'|'.join(native)})\b", "actors", "api", "tests")
    wrong = []
    for path in files:
        names = imported(parsed(path))
        for node in ast.walk(parsed(path)):
            for base in node.bases if isinstance(node, ast.ClassDef) else ():
                head = base.value if isinstance(base, ast.Subscript) else base
                if is_native(names.get(ast.unparse(head), "")):
                    wrong.append(f"{path.relative_to(ROOT)}: {ast.unparse(base)}")
    compiled = tuple(LIST.read_text().split())
    assert [each for each in wrong if not each.startswith(compiled)] == []


def is_native(name: str) -> bool:
    module, rest = in_list(name) or ("", "")
    found = contents(module).get(rest) if module else None
    return isinstance(found, ast.ClassDef) and not NOT_NATIVE & {ast.unparse(base) for base in found.bases}
