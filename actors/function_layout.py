"""Functions of Python that lie side by side in memory: copies take their places, wherever they are held.

A call writes to the count of references of the function, so a page with a single function that is called costs a
process as much as one with twenty-five. A function is moved only where all that refers to it is known: dictionaries,
as those of modules, classes, and cells of closures. Cells that only such functions have are moved with them.
"""

from __future__ import annotations

import gc
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from types import CellType, FunctionType
from typing import Any

_Put = Callable[[FunctionType], object]
"""Puts another function into the place of the present one."""

_HELD = 2
"""References that `sys.getrefcount` itself and its caller's list have."""


def gather_functions(functions: list[FunctionType]) -> None:
    """Replace these by copies that lie side by side in this order, but for those whose places are not all known."""
    places = _places_of(functions)
    moving = list(_alone_in(functions, places))
    cells = _cells_of(moving)
    copies = [_bare_copy(each, cells) for each in moving]
    for function, copy in zip(moving, copies, strict=True):
        _describe(copy, function)
        for put in places[id(function)]:
            put(copy)
    for former, cell in cells.values():
        cell.cell_contents = former.cell_contents


def _places_of(functions: Iterable[FunctionType]) -> dict[int, list[_Put]]:
    """Where each of them is held, by its address."""
    places: dict[int, list[_Put]] = {id(each): [] for each in functions}
    objects = gc.get_objects()
    classes = {id(gc.get_referents(vars(each))[0]): each for each in objects if isinstance(each, type)}
    for holder in objects:
        kind = type(holder)
        if kind is dict and not places.keys().isdisjoint(map(id, holder.values())):
            owner = classes.get(id(holder))
            for key, value in holder.items():
                if id(value) in places:
                    places[id(value)].append(_put_in(holder, owner, key))
        elif kind is CellType and id(content := _content(holder)) in places:
            places[id(content)].append(partial(setattr, holder, "cell_contents"))
    return places


def _put_in(holder: dict[Any, Any], owner: type | None, key: Any) -> _Put:
    """For a dictionary, which may be that of a class: the class has to know of each change."""
    return partial(holder.__setitem__, key) if owner is None else partial(type.__setattr__, owner, key)


def _content(cell: CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # it is empty
        return None


def _alone_in(functions: list[FunctionType], places: dict[int, list[_Put]]) -> Iterable[FunctionType]:
    """Those to which nothing refers but these places, and the list."""
    for index in range(len(functions)):
        held = sys.getrefcount(functions[index]) - _HELD
        if held == len(places[id(functions[index])]) and not weakref.getweakrefcount(functions[index]):
            yield functions[index]


def _cells_of(functions: Iterable[FunctionType]) -> dict[int, tuple[CellType, CellType]]:
    """Cells that no other function has, and no frame: each by its address, with a new one that is to replace it."""
    cells = [cell for function in functions for cell in function.__closure__ or ()]
    times = Counter(map(id, cells))  # in closures, and as often in the list
    alone = (index for index in range(len(cells)) if sys.getrefcount(cells[index]) == 2 * times[id(cells[index])] + 1)
    filled = (cells[index] for index in alone if _content(cells[index]) is not None)
    return {id(cell): (cell, CellType()) for cell in filled}


def _bare_copy(function: FunctionType, cells: dict[int, tuple[CellType, CellType]]) -> FunctionType:
    """What runs as `function` does. All that else is to know of it comes later, so that copies lie side by side."""
    closure = function.__closure__
    if closure is not None:
        closure = tuple(cells[id(each)][1] if id(each) in cells else each for each in closure)
    return FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__, closure)


def _describe(copy: FunctionType, function: FunctionType) -> None:
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__qualname__ = function.__qualname__
    copy.__module__ = function.__module__
    copy.__doc__ = function.__doc__
    annotate = getattr(function, "__annotate__", None)  # from Python 3.14 on: they are made when they are asked for
    if annotate is None:
        copy.__annotations__ = function.__annotations__
    else:
        copy.__annotate__ = annotate  # type: ignore[attr-defined]
    if vars(function):
        copy.__dict__ = vars(function)
