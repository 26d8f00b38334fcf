from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.actor.pools.checking import Checking
from tests.kit.upstream_farm import Farm


@pytest.fixture
def farm() -> Iterator[Farm]:
    with Farm(3) as farm:
        yield farm


@pytest.fixture
def checking(tmp_path: Path) -> Iterator[Checking]:
    checking = Checking(tmp_path)
    yield checking
    checking.close()
