"""For tests that see a difference between compiled modules and Python: see docs/dev/testing.md."""

from __future__ import annotations

import shutil
import sys
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from actors.compiled import runs_compiled
from tests.kit.folders import ROOT

COUNTS_CALLS = pytest.mark.skipif(runs_compiled(), reason="counts calls of Python functions, of which there are none")


def interpreted(name: str) -> ModuleType:
    """Another copy of a module, from its source: its classes may have subclasses in Python."""
    source = Path(__file__, "../../..", *name.split(".")).resolve().with_suffix(".py")
    spec = spec_from_file_location(f"{name}_from_source", source)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def attributes(thing: object) -> list[str]:
    """The names of what an object without `__dict__` has, whether Python made its class or the compiler."""
    return _attributes(type(thing))


@cache
def _attributes(kind: type) -> list[str]:
    names = [
        name for each in kind.__mro__ for of in ("__slots__", "__mypyc_attrs__") for name in vars(each).get(of, ())
    ]
    return [name for name in dict.fromkeys(names) if name != "__dict__"]


CHECKOUT = (ROOT / ".cache").resolve().parent
"""What this is, or what it is a copy of with compiled modules (`scripts/wheels/compiled_tree.py`)."""


def share_bytecode() -> None:
    """In such a copy: what Python and pytest have compiled of the checkout, which each worker would do again. Of other
    sources, by time and size, it is not used.
    """
    if CHECKOUT == ROOT:
        return
    for folder in {each.parent for each in ROOT.rglob("*.py")}:
        for each in (CHECKOUT / folder.relative_to(ROOT) / "__pycache__").glob("*.pyc"):
            copy = folder / "__pycache__" / each.name
            if not copy.exists():
                copy.parent.mkdir(exist_ok=True)
                shutil.copy2(each, copy)
