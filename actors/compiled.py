"""Whether the forwarding path runs as machine code or as Python.

`compiled.txt` beside this module lists the files that a compiled wheel has as extension modules as well
(`scripts/build-wheel`). Which of the two runs is decided when the wheel is made; nothing else differs.
"""

from __future__ import annotations

from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path
from typing import Final

LIST: Final = Path(__file__).with_suffix(".txt")

_WITNESS: Final = "actors.bus.loop"
"""A module of the list that every process imports."""


def listed() -> tuple[str, ...]:
    """The names of the modules on the list."""
    lines = LIST.read_text(encoding="utf-8").split()
    return tuple(line.removesuffix(".py").replace("/", ".") for line in lines)


@cache
def runs_compiled() -> bool:
    """Whether the modules on the list are compiled here."""
    spec = find_spec(_WITNESS)
    return spec is not None and (spec.origin or "").endswith(tuple(EXTENSION_SUFFIXES))
