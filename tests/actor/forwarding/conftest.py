"""One proxy for all tests of a module, as new for each of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from actors.bus.messages.specs import LimitsSpec
from tests.kit.forwarding_rig import Rig


@pytest.fixture(scope="module")
def shared() -> Iterator[Rig]:
    with Rig() as rig:
        yield rig


@pytest.fixture
def rig(shared: Rig) -> Rig:
    """Without accounts and limits of the test before."""
    shared.configure(accounts=(), auth_required=False, limits=LimitsSpec(), timeout=30.0)
    shared.records.clear()
    return shared
