"""The database of a fleet as a ledger, against one machine as its model: the same changes, the same answers."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.engine import commit
from api.engine.commit import Engine
from config.files.paths import open_data_dir
from config.files.secret_box import SecretBox, secret_box_of
from tests.kit.folders import FOLDERS
from tests.kit.ledgers import Fleets
from tests.kit.postgresql import needs_postgresql
from tests.unit.api.store.replicas import STEPS, answers, make

pytestmark = needs_postgresql


@contextmanager
def one_of_each() -> Iterator[tuple[Engine, Engine, SecretBox]]:
    """An engine that stands alone, one that is a node, and their key; for both it is always the same moment."""
    with tempfile.TemporaryDirectory(prefix="pf-", dir=FOLDERS) as folder, ExitStack() as stack:
        alone, node = (open_data_dir(Path(folder) / name) for name in ("a", "b"))
        seal = secret_box_of(alone)
        fleets = stack.enter_context(closing(Fleets()))
        engines = Engine(alone, seal), fleets.engine(node, seal)
        for each in engines:
            stack.enter_context(closing(each))
            each.trail._clock = lambda: 0.0
        yield *engines, seal


@settings(max_examples=15)
@given(STEPS, st.booleans())
def test_a_node_answers_as_a_machine_alone_to_everything_that_can_be_read(
    steps: list[tuple[str, Any]], imports_are_large: bool
) -> None:
    with one_of_each() as (*engines, seal), pytest.MonkeyPatch.context() as patch:
        if imports_are_large:
            patch.setattr(commit, "LARGEST", 0)
        for each in engines:
            for step in steps:
                if step[0] != "a batch ends":
                    make(each, step)
        wanted, found = (answers(each, seal) for each in engines)
        revisions, total = found["revisions"]
        assert {each.node for each in revisions} <= {"a"}
        found["revisions"] = [replace(each, node=None) for each in revisions], total
        for name, answer in wanted.items():
            assert found[name] == answer, name
