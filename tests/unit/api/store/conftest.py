"""Where the stores of these tests lie."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.folders import FOLDERS


@pytest.fixture
def folder() -> Iterator[Path]:
    """That of a store, which is not there yet."""
    with tempfile.TemporaryDirectory(prefix="pf-", dir=FOLDERS) as made:
        yield Path(made) / "store"
