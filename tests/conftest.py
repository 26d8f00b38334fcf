"""For all tests: where pytest's `tmp_path` lies, which tests begin, and how hypothesis judges time.

Not at all: a test on a slow or busy machine is no worse a test.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

from tests.kit.folders import FOLDERS

os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", FOLDERS)  # asked for by pytest after this, and handed to its workers

settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


LONGEST_FIRST = ("tests/conformance/", "tests/e2e/", "tests/systemd/", "tests/cli/", "tests/supervision/")
"""Folders whose tests wait for processes; quick ones come last, so that no worker is left alone with a long one."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests in the order of `LONGEST_FIRST`, those of other folders behind them."""
    order = {folder: place for place, folder in enumerate(LONGEST_FIRST)}

    def place(item: pytest.Item) -> int:
        return next((order[folder] for folder in LONGEST_FIRST if item.nodeid.startswith(folder)), len(order))

    items.sort(key=place)
