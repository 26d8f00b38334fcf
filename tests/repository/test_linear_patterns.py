"""No regular expression of the product takes more than linear time, whatever it is given.

They are all found: those in modules, classes, defaults and tables, and those that are written where they are used or
described. Each is pumped with texts derived from itself (`tests.kit.pumping`).
"""

from __future__ import annotations

import ast
import functools
import gc
import importlib
import pkgutil
import re
import types
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

import supervisor
from api import app
from tests.kit import pumping
from tests.kit.openapi_document import document
from tests.kit.pumping import SIZE, Bounded, slow_text

PACKAGES: Final = ("config", "actors", "api")
METHODS: Final = {
    "match": "match", "fullmatch": "fullmatch", "search": "search", "findall": "findall",
    "finditer": "findall", "sub": "findall", "subn": "findall", "split": "findall",
}  # fmt: skip
"""Methods of a pattern, and the one that is measured for each."""
ALL: Final = frozenset(METHODS.values())
MADE: Final[dict[str, Callable[[], Iterable[re.Pattern[str]]]]] = {
    "api.app._any_name": lambda: [app._any_name(each.path) for each in app.OPERATIONS if app.ANY_NAME in each.path],
}
"""Functions that put expressions together, and all those that they make."""
CONTAINERS: Final = (
    dict, list, tuple, set, frozenset, types.MappingProxyType, types.CellType, types.BuiltinMethodType,
    types.MethodType, functools.partial, property, staticmethod, classmethod,
)  # fmt: skip

Found = dict[re.Pattern[Any], tuple[str, set[str]]]
"""Where a pattern is, and the methods that it is used by."""
Texts = dict[str, tuple[str, int]]
"""Of a pattern that is a text: where it is, and how long a text is that it is for."""


def test_no_pattern_takes_more_than_linear_time() -> None:
    found, texts, unread = patterns()
    slow = []
    with Bounded():
        for pattern, (place, methods) in found.items():
            text = slow_text(pattern, sorted(methods))
            if text is not None:
                slow.append(f"{place}: {pattern.pattern!r}: {text}")
        for source, (place, most) in {**texts, **described()}.items():
            text = slow_text(re.compile(source), ["search"], min(most, SIZE))
            if text is not None:
                slow.append(f"{place}: {source!r}: {text}")
    assert (slow, unread) == ([], [])


def test_slow_patterns_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pumping, "ENDLESS", 0.05)
    slow: tuple[tuple[Any, str], ...] = (
        (rb'(?:[^",]|"(?:[^"\\]|\\.)*")+', "findall"),
        (r"[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*", "fullmatch"),
        (r"(?:[0-9]+[smhdw]?)+", "fullmatch"),
        (r'"(?:[^"\\]|\\.)*"', "findall"),
        (r"x=(?:a|a)*$", "match"),
        (r"[\x21-\x7e]([\x20-\x7e\t]*[\x21-\x7e]\t*)*", "fullmatch"),
    )
    with Bounded():
        assert [source for source, method in slow if slow_text(re.compile(source), [method]) is None] == []


def test_patterns_are_found_wherever_they_are() -> None:
    places = {place for place, _ in patterns()[0].values()}
    assert {
        "actors.forwarding.protocols.http.targets._URL",
        "actors.lists.reading._TTL",
        "config.passwords._HASH",
    } <= places
    assert len(places) > 150


# --- finding them ---


@functools.cache
def patterns() -> tuple[Found, Texts, list[str]]:
    """All compiled patterns of the product, those that are given as texts, and places of calls whose pattern is not
    known."""
    found: Found = {}
    texts: Texts = {}
    unread: list[str] = []
    for module in modules():
        for place, pattern in patterns_in(module):
            found.setdefault(pattern, (place, set()))
    for module in modules():
        _read(module, found, texts, unread)
    for place, make in MADE.items():
        for pattern in make():
            found.setdefault(pattern, (place, set(ALL)))
    return {pattern: (place, methods or set(ALL)) for pattern, (place, methods) in found.items()}, texts, unread


@functools.cache
def modules() -> list[types.ModuleType]:
    names = [
        each.name
        for package in PACKAGES
        for each in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}.")
    ]
    return [importlib.import_module(name) for name in names] + [supervisor]


def is_own(name: object) -> bool:
    return isinstance(name, str) and name.partition(".")[0] in (*PACKAGES, "supervisor")


def patterns_in(module: types.ModuleType) -> Iterator[tuple[str, re.Pattern[Any]]]:
    """The patterns that can be reached from a module without leaving the product."""
    seen: set[int] = set()
    for name, value in vars(module).items():
        waiting: list[Any] = [] if name.startswith("__") else [value]
        while waiting:
            each = waiting.pop()
            if id(each) in seen:
                continue
            seen.add(id(each))
            if isinstance(each, re.Pattern):
                yield f"{module.__name__}.{name}", each
            elif isinstance(each, types.FunctionType) and each.__module__ == module.__name__:
                waiting += [each.__defaults__, each.__kwdefaults__, each.__closure__, each.__dict__]
            elif isinstance(each, CONTAINERS) or _is_of(each, module):
                waiting += [] if isinstance(each, types.ModuleType) else gc.get_referents(each)


def _is_of(each: Any, module: types.ModuleType) -> bool:
    if isinstance(each, type):
        return each.__module__ == module.__name__
    return not isinstance(each, types.FunctionType | types.ModuleType) and is_own(type(each).__module__)


def _read(module: types.ModuleType, found: Found, texts: Texts, unread: list[str]) -> None:
    """Add what the source of a module has: patterns that are written in place, and how those with a name are used."""
    assert module.__file__ is not None
    nodes = list(_nodes(ast.parse(Path(module.__file__).read_text(encoding="utf-8"))))
    calls = [each.value for each, _ in nodes if isinstance(each, ast.Attribute) and each.attr in METHODS]
    used = {id(part) for each in calls for part in ast.walk(each)}
    for node, function in nodes:
        if not isinstance(node, ast.Call | ast.Attribute | ast.Name | ast.Dict):
            continue
        place = f"{module.__name__}:{node.lineno}"
        for given in _given(node):
            text = _value(given, module)
            if isinstance(text, str):
                texts.setdefault(text, (place, SIZE))
        if isinstance(node, ast.Call) and _is_call_of_re(node, module):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            source, flags = _value(node.args[0], module), _value(_flags(node), module) or 0
            if isinstance(source, (str, bytes)):
                methods = {METHODS[name]} if name in METHODS else set()
                found.setdefault(re.compile(source, flags), (place, set()))[1].update(methods)
            elif function and not isinstance(source, re.Pattern) and f"{module.__name__}.{function}" not in MADE:
                unread.append(f"{place}: the pattern is not constant")
        elif isinstance(node, ast.Attribute) and node.attr in METHODS:
            for each in (_value(part, module) for part in ast.walk(node.value)):
                if isinstance(each, re.Pattern) and each in found:
                    found[each][1].add(METHODS[node.attr])
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and id(node) not in used:
            pattern = _value(node, module)
            if isinstance(pattern, re.Pattern) and pattern in found:
                found[pattern][1].update(ALL)


def _nodes(tree: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """All nodes, each with the name of the function that it is in."""
    waiting = [(tree, "")]
    while waiting:
        node, function = waiting.pop()
        inner = node.name if isinstance(node, ast.FunctionDef) and not function else function
        for child in ast.iter_child_nodes(node):
            yield child, inner
            waiting.append((child, inner))


def _is_call_of_re(node: ast.Call, module: types.ModuleType) -> bool:
    called = node.func
    if isinstance(called, ast.Attribute):
        known = called.attr in (*METHODS, "compile")
        return known and isinstance(called.value, ast.Name) and _value(called.value, module) is re
    return getattr(_value(called, module), "__module__", None) == "re" if isinstance(called, ast.Name) else False


def _flags(node: ast.Call) -> ast.AST:
    given = [each.value for each in node.keywords if each.arg == "flags"]
    named = isinstance(node.func, ast.Attribute) and node.func.attr
    last = {"compile": 1, "sub": 4, "subn": 4, "split": 3}.get(str(named), 2)
    return given[0] if given else node.args[last] if len(node.args) > last else ast.Constant(0)


def _value(node: ast.AST, module: types.ModuleType) -> Any:
    """The value of an expression of constants and names of the module; None for any other."""
    if isinstance(node, ast.Name):
        return vars(module).get(node.id)
    calls = any(isinstance(each, ast.Call | ast.Await | ast.NamedExpr) for each in ast.walk(node))
    if calls or not isinstance(node, ast.expr):
        return None
    try:
        return eval(compile(ast.Expression(node), "", "eval"), vars(module))
    except (NameError, AttributeError, TypeError, ValueError, LookupError, SyntaxError):
        return None  # names of a function, or a part that is no value by itself


def described() -> Texts:
    """Patterns of schemas, which clients match."""
    made: Texts = {}
    waiting: list[Any] = [document()]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict) and isinstance(each.get("pattern"), str):
            most = max(each.get("maxLength", SIZE), made.get(each["pattern"], ("", 0))[1])
            made[each["pattern"]] = "the description of the API", most
        waiting += each.values() if isinstance(each, dict) else each if isinstance(each, list) else []
    return made


def _given(node: ast.AST) -> Iterator[ast.AST]:
    """The values of `pattern` in a call or a dictionary."""
    if isinstance(node, ast.Call):
        yield from (each.value for each in node.keywords if each.arg in ("pattern", "regex"))
    elif isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and key.value == "pattern":
                yield value
