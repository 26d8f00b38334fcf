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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest test begins, so that no worker is left alone with it at the end."""
    items.sort(key=lambda item: not item.nodeid.startswith("tests/conformance/"))
