"""Which modules run: those of the run of compiled modules are compiled, and all of the list or none is."""

from __future__ import annotations

import os
from importlib import import_module

from actors.compiled import listed, runs_compiled
from tests.kit.tables import table


def test_the_run_of_compiled_modules_has_compiled_ones() -> None:
    if "COMPILED" in os.environ:
        assert runs_compiled()
    else:
        assert not runs_compiled(), "a compiled file lies beside its source: it wins over it, whatever is edited there"


@table("name", listed())
def test_all_listed_modules_are_what_the_first_is(name: str) -> None:
    file = import_module(name).__file__ or ""
    assert file.endswith(".py") is not runs_compiled()
