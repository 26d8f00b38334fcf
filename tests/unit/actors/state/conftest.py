"""A clock and the machine of `actors.state`, as each test has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.clocks import Clock
from tests.kit.live_state import Machine


@pytest.fixture
def clock() -> Clock:
    return Clock(1000.0)


@pytest.fixture
def machine(tmp_path: Path, clock: Clock) -> Machine:
    return Machine(tmp_path / "state", clock)
