"""Fixtures of the API's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from config import passwords
from tests.api.support import Api


@pytest.fixture(autouse=True)
def _cheap_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """bcrypt at its lowest cost: what is tested here is who may, not how dear it is to guess."""
    monkeypatch.setattr(passwords.hash_password, "__defaults__", (4,))


@pytest.fixture
def api() -> Iterator[Api]:
    made = Api()
    yield made
    made.close()
