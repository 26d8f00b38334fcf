from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.actor.resolver.resolving import Resolving


@pytest.fixture
def resolving(tmp_path: Path) -> Iterator[Resolving]:
    resolving = Resolving(tmp_path)
    yield resolving
    resolving.close()
