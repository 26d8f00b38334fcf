"""Functions that are moved lie side by side, wherever they are held, and work as before."""

from __future__ import annotations

import weakref
from types import SimpleNamespace
from typing import Any

import pytest

from actors.function_layout import _describe, gather_functions
from tests.unit.actors.layouts import alone

_CLASSES = """
class First:
    def text(self, *, end="."):
        "The text."
        return "first" + end

class Second(First):
    def text(self, *, end="!"):
        return super().text(end=end)

    __call__ = text

def counter():
    count = 0

    def add(number: int) -> int:
        nonlocal count
        count += number
        return count

    def read():
        return count

    return {"add": add, "read": read}

pair = counter()
counter.label = "counts"
alias = counter
"""


@pytest.fixture
def module() -> dict[str, Any]:
    made: dict[str, Any] = {"__name__": "made"}
    exec(_CLASSES, made)
    return made


def test_functions_of_a_module_lie_side_by_side() -> None:
    alone("functions_lie_side_by_side()")


def test_methods_are_replaced_in_their_classes(module: dict[str, Any]) -> None:
    second = module["Second"]()
    assert (second.text(), second()) == ("first!", "first!")
    gather_functions([vars(module["First"])["text"], vars(module["Second"])["text"]])
    assert (second.text(), second(), second.text(end="?")) == ("first!", "first!", "first?")
    assert second.__call__.__func__ is module["Second"].text
    assert module["First"].text.__doc__ == "The text."
    assert module["First"].text.__qualname__ == "First.text"


def test_all_that_is_known_of_a_function_goes_with_it(module: dict[str, Any]) -> None:
    before = id(module["counter"])
    gather_functions([module["counter"]])
    moved = module["counter"]
    assert id(moved) != before
    assert (moved.label, moved.__module__, module["alias"] is moved) == ("counts", "made", True)
    gather_functions([module["pair"]["add"]])
    assert module["pair"]["add"].__annotations__ == {"number": "int", "return": "int"}


def test_annotations_that_can_be_made_only_later_are_left_for_later(module: dict[str, Any]) -> None:
    """As functions of Python 3.14 have them."""

    class Lazy:
        def __getattr__(self, name: str) -> Any:
            return getattr(module["counter"], name)

        @property
        def __annotations__(self) -> dict[str, Any]:  # type: ignore[override]
            raise NameError("a name for type checkers alone")

        def __annotate__(self, _form: int) -> dict[str, Any]:
            return {"made": "later"}

    copy: Any = SimpleNamespace()
    _describe(copy, Lazy())  # type: ignore[arg-type]
    assert copy.__annotate__(1) == {"made": "later"}
    assert not hasattr(copy, "__annotations__")


@pytest.mark.parametrize("names", [("add",), ("read",), ("add", "read")])
def test_closures_go_on_sharing_what_they_share(module: dict[str, Any], names: tuple[str, ...]) -> None:
    pair = module["pair"]
    pair["add"](2)
    gather_functions([pair[name] for name in names])
    assert (pair["add"](3), pair["read"]()) == (5, 5)


def test_what_is_held_elsewhere_too_stays(module: dict[str, Any]) -> None:
    first, counter = module["First"], module["counter"]
    held = (vars(first)["text"],)
    reference = weakref.ref(counter)
    del counter
    gather_functions([vars(first)["text"], module["counter"]])
    assert held[0] is vars(first)["text"]
    assert reference() is module["counter"]
