"""For all tests: where pytest's `tmp_path` lies, the root logger, hypothesis, and the hooks of `tests.kit.suite`.

Hypothesis judges no time: a test on a slow or busy machine is no worse a test.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.kit import suite
from tests.kit.compiled import CHECKOUT, share_bytecode
from tests.kit.folders import FOLDERS

os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", FOLDERS)  # asked for by pytest after this, and handed to its workers
# The characters of Unicode and the constants of our sources, which take each process seconds to collect.
os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", str(CHECKOUT / ".hypothesis"))

settings.register_profile(
    "any machine",
    deadline=None,
    max_examples=int(os.environ.get("EXAMPLES", "25")),
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="CI" in os.environ,
)
settings.load_profile("any machine")
"""A change is judged by the same examples each time; by hand each run tries others."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--part", choices=["quick", "all", "pure", "compiled"], default="all", help="see tests/kit/suite.py"
    )
    parser.addoption(
        "--ledger",
        choices=["embedded", "shared", "both", "chosen"],
        default="embedded",
        help="see tests/kit/ledgers.py",
    )


def pytest_configure(config: pytest.Config) -> None:
    gc.disable()  # nothing of what is collected becomes garbage; to look for it takes a quarter of the time
    for each in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(each) is signal.SIG_IGN:  # as `nohup` and `&` have it, which commands under test inherit
            signal.signal(each, signal.default_int_handler if each == signal.SIGINT else signal.SIG_DFL)
    if not hasattr(config, "workerinput"):
        share_bytecode()
        config.pluginmanager.register(suite.Run(config), "run of the suite")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """What doesn't belong to the part that was asked for."""
    path = collection_path.relative_to(config.rootpath).as_posix() if collection_path != config.rootpath else ""
    return True if path and not suite.belongs(path, config.getoption("part")) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest scopes come first, so that no worker is alone with one at the end."""
    seconds = suite.Expected(item.nodeid for item in items).seconds
    items.sort(key=lambda item: -seconds[suite.scope_of(item.nodeid)])


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> suite.Scopes:
    return suite.Scopes(config, log)


def pytest_xdist_node_collection_finished(node: Any, ids: list[str]) -> None:
    run = node.config.pluginmanager.get_plugin("run of the suite")
    if node.gateway.id == "gw0":
        run.collected(ids)


def pytest_collection_finish(session: pytest.Session) -> None:
    gc.freeze()  # a million objects, which each whole collection of a test would look through
    gc.enable()
    run = session.config.pluginmanager.get_plugin("run of the suite")
    if run is not None and session.items:
        run.collected([item.nodeid for item in session.items])


@pytest.fixture(autouse=True)
def _root_logger_is_restored() -> Iterator[None]:
    """The product sets level and handlers of its process; in a worker they would hold for all tests to come."""
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    yield
    root.setLevel(level)
    root.handlers[:] = handlers
