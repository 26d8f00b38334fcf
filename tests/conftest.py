"""For all tests: where pytest's `tmp_path` lies, which tests begin, the root logger, and how hypothesis judges time.

Not at all: a test on a slow or busy machine is no worse a test.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.kit.folders import FOLDERS

os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", FOLDERS)  # asked for by pytest after this, and handed to its workers

settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize="CI" in os.environ
)
settings.load_profile("any machine")
"""A change is judged by the same examples each time; by hand each run tries others."""


SLOW_FOLDERS = (
    "tests/product/e2e/",
    "tests/conformance/",
    "tests/product/systemd/",
    "tests/actor/supervision/",
    "tests/product/cli/",
    "tests/packaging/",
)
"""Their tests wait for processes. Each worker begins with its part of them; the quick ones of all are left for the end,
so that no worker is alone with a slow test."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the tests for xdist's `worksteal`, which first gives each worker an equal slice of the list."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    modules: dict[str, list[pytest.Item]] = {}
    for item in items:
        modules.setdefault(item.nodeid.partition("::")[0], []).append(item)
    slow = [(name, module) for name, module in modules.items() if name.startswith(SLOW_FOLDERS)]
    quick = [item for name, module in modules.items() if not name.startswith(SLOW_FOLDERS) for item in module]
    slow.sort(key=lambda each: next(i for i, folder in enumerate(SLOW_FOLDERS) if each[0].startswith(folder)))
    slices: list[list[pytest.Item]] = [[] for _ in range(workers)]
    for number, (_name, module) in enumerate(slow):
        slices[number % workers] += module
    left = len(items)
    for place, part in enumerate(slices):
        size = left // (workers - place)
        left -= size
        wanted = max(0, size - len(part))
        part.extend(quick[:wanted])
        del quick[:wanted]
    items[:] = [item for part in slices for item in part] + quick


@pytest.fixture(autouse=True)
def _root_logger_is_restored() -> Iterator[None]:
    """The product sets level and handlers of its process; in a worker they would hold for all tests to come."""
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    yield
    root.setLevel(level)
    root.handlers[:] = handlers
