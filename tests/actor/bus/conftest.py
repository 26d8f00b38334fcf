"""A short run directory, a loop and a context for tests of the bus; everything is closed at the end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kit.bus import Bench


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.close()
