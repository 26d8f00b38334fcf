"""What the tests of the configuration share."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("PROXYFLEET_")]:
        monkeypatch.delenv(name)
