"""A run of the suite: which tests it has, in which order and on which worker, how far it is, and what it took.

A part of the suite (`--part`, of `scripts/test` and `.ci/run`):

    quick      what needs neither Chromium, systemd, a wheel nor schemathesis
    all        everything
    pure       everything but what runs on compiled modules
    compiled   what runs on compiled modules: the forwarding path, and the product around it

A worker gets the tests of a module one after the other, so that what they share is started once, and those of several
modules in `TOGETHER` likewise. The longest come first, by the seconds of the last run here or else by `SECONDS`.

What each test took goes into the folder `TEST_RECORDS` if it is set, and the closing lines are of all that is in it:
`.ci/run` runs pytest twice and has one summary.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from xdist.scheduler.loadscope import LoadScopeScheduling
from xdist.workermanage import WorkerController

from tests.kit.folders import ROOT
from tests.kit.slow_tests import CEILING, SLOW_TESTS, TIMES_ON_SLOW_MACHINES

NOT_QUICK = (
    "tests/product/dashboard",
    "tests/product/systemd",
    "tests/packaging",
    "tests/repository/test_wheels.py",
    "tests/conformance/test_conformance.py",
)
ON_COMPILED_MODULES = (
    "tests/unit/actors/forwarding",
    "tests/unit/actors/accounts",
    "tests/unit/actors/pools",
    "tests/unit/actors/state",
    "tests/actor/bus",
    "tests/actor/forwarding",
    "tests/actor/pools",
    "tests/actor/supervision",
    "tests/conformance/test_compiled_and_pure.py",
    "tests/conformance/test_corpus.py",
    "tests/conformance/test_client_hellos.py",
    "tests/conformance/test_differential.py",
    "tests/product/e2e",
)
COUNTS_CALLS = "tests/unit/actors/forwarding/test_resource_bounds.py"
"""Counts calls of Python functions, of which compiled modules have none."""
WITH_PRODUCTS = ("tests/product", "tests/packaging", "tests/conformance/test_conformance.py")
"""Start the whole product, or machines with it."""
TOGETHER = (
    ("tests/product/dashboard/test_every_screen.py",),
    ("tests/product/dashboard/test_tables.py",),
    ("tests/product/dashboard",),
    ("tests/product/systemd",),
    ("tests/packaging",),
    tuple(f"tests/product/e2e/test_{each}.py" for each in ("durability", "observers_faults", "logs")),
    tuple(
        f"tests/product/e2e/test_{each}.py"
        for each in ("api_tls", "api_guard", "names", "own_listeners", "session_cookie")
    ),
    tuple(f"tests/product/e2e/test_{each}.py" for each in ("refusals", "live_from_elsewhere")),
)
"""Files and folders that one worker gets, for what they share: two screens with a product of their own, the page's
other tests, one systemd, one wheel; a disk that is full, the API behind TLS, a strict product. The first that fits
counts."""
SECONDS = {
    "tests/conformance/test_conformance.py": 50.0,
    "tests/conformance/test_compiled_and_pure.py": 37.0,
    "tests/product/systemd": 12.0,
    "tests/product/dashboard/test_every_screen.py": 6.0,
    "tests/product/dashboard/test_tables.py": 4.0,
    "tests/product/dashboard": 2.5,
    "tests/product/cli": 0.4,
    "tests/product/cluster": 30.0,
    "tests/product/e2e/test_cluster": 30.0,
    "tests/product/e2e/test_recovery.py": 30.0,
    "tests/product/e2e/test_upgrade.py": 12.0,
    "tests/product/e2e/test_usage_exact.py": 8.0,
    "tests/product/e2e/test_clock.py": 20.0,
    "tests/product/e2e/test_durability.py": 6.0,
    "tests/product/e2e": 1.5,
    "tests/packaging": 3.0,
    "tests/actor/api": 2.0,
    "tests/actor/supervision": 3.0,
    "tests/actor": 0.4,
    "tests/unit/api/cluster/test_killed_at_every_statement.py": 7.0,
    "tests/unit/api/cluster": 1.2,
    "tests/unit/api": 0.15,
    "tests/unit": 0.05,
}
"""Of a test there, about: before the first run here has said it. Others take 1."""
LAST_RUN = ROOT / ".cache" / "test-seconds.json"
EVERY = 15.0
"""Seconds from one line on the progress to the next."""


def is_in(path: str, folders: Iterable[str]) -> bool:
    """Whether a test's path or node id is one of these files, or lies below one of these folders."""
    return any(path == folder or path.startswith((f"{folder}/", f"{folder}::")) for folder in folders)


def belongs(path: str, part: str) -> bool:
    """Whether a file belongs to a part of the suite; a folder does where one of its files may."""
    match part:
        case "quick":
            return not is_in(path, NOT_QUICK)
        case "pure":
            return path == COUNTS_CALLS or COUNTS_CALLS.startswith(f"{path}/") or not is_in(path, ON_COMPILED_MODULES)
        case "compiled":
            leads_there = any(each.startswith(f"{path}/") for each in ON_COMPILED_MODULES)
            return path != COUNTS_CALLS and (leads_there or is_in(path, ON_COMPILED_MODULES) or path == "tests")
    return True


def scope_of(nodeid: str) -> str:
    """What a worker gets at once: the module of a test, or the first of those that stay together with it."""
    return _scope_of_module(nodeid.partition("::")[0])


@cache
def _scope_of_module(path: str) -> str:
    return next((group[0] for group in TOGETHER if is_in(path, group)), path)


def name_of(nodeid: str) -> str:
    """The function of a test, without its parameters."""
    return nodeid.rpartition("::")[2].partition("[")[0]


def folder_of(nodeid: str) -> str:
    """The part of the tree that a test is counted to: `tests/unit/api`."""
    return "/".join(nodeid.partition("::")[0].split("/")[:3])


class Scopes(LoadScopeScheduling):
    """Of pytest-xdist: a worker gets a scope at a time, in the order of collection.

    Every second worker gets what needs no product, while there is some. So there is always one that computes while
    others wait for processes, and fewer products are started.
    """

    def __init__(self, config: pytest.Config, log: Any) -> None:
        config.option.loadscopereorder = False  # by the number of tests, of which the longest scope may have one
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        wants_product = int(node.gateway.id.removeprefix("gw")) % 2 == 0
        wanted = (scope for scope in self.workqueue if is_in(scope, WITH_PRODUCTS) == wants_product)
        self.workqueue.move_to_end(next(wanted, next(iter(self.workqueue))), last=False)
        super()._assign_work_unit(node)

    def _reschedule(self, node: WorkerController) -> None:
        """Hand out as late as can be: what a worker has it keeps, though others may be done long before.

        It begins a test once it knows of another one.
        """
        if not self.workqueue or self._pending_of(self.assigned_work[node]) < 2:
            super()._reschedule(node)


class Expected:
    """How long each scope will take."""

    def __init__(self, nodeids: Iterable[str]) -> None:
        last = json.loads(LAST_RUN.read_text()) if LAST_RUN.exists() else {}
        self.tests = Counter(map(scope_of, nodeids))
        self.seconds = {scope: last.get(scope) or count * self._of_one(scope) for scope, count in self.tests.items()}

    def of_a_test(self, nodeid: str) -> float:
        """Seconds of one test, on the average of its scope."""
        scope = scope_of(nodeid)
        return self.seconds[scope] / self.tests[scope]

    @staticmethod
    def _of_one(scope: str) -> float:
        return next((seconds for folder, seconds in SECONDS.items() if scope.startswith(folder)), 1.0)


class Run:
    """In the process that hands out the tests: progress, and the closing lines."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._workers = int(config.getoption("numprocesses", 0) or 1)
        self._began = self._shown = time.monotonic()
        self._processors = _processors()
        self._took: dict[str, float] = defaultdict(float)
        self._call: dict[str, float] = {}
        self._expected: Expected | None = None
        self._total = self._done = 0.0
        self._count = self._failed = 0
        records = os.environ.setdefault("TEST_RECORDS", mkdtemp(prefix="pf-records-"))
        self._records = Path(records)
        os.environ["PRODUCT_STARTS"] = str(self._records / "starts")

    def collected(self, nodeids: list[str]) -> None:
        """Say how many tests there are, and how long they will take."""
        self._expected = Expected(nodeids)
        self._total = sum(self._expected.seconds.values())
        self._count = len(nodeids)
        self._began = self._shown = time.monotonic()
        self._line(f"{self._count:,} tests, about {_minutes(self._total / self._workers)} min")

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._took[report.nodeid] += report.duration
        self._failed += report.failed
        if report.when == "call":
            self._call[report.nodeid] = report.duration
        if report.when == "teardown" and self._expected is not None:
            self._done += self._expected.of_a_test(report.nodeid)
            if time.monotonic() >= self._shown + EVERY:
                self._shown = time.monotonic()
                self._line(self._progress())

    def _progress(self) -> str:
        gone = time.monotonic() - self._began
        rest = self._total - self._done
        left = rest * gone / self._done if self._done > self._total / 20 else rest / self._workers
        failed = f", {self._failed} failed" if self._failed else ""
        tests = f"{len(self._took):,} of {self._count:,} tests{failed}"
        return f"{tests}; {_minutes(gone)} min gone, about {_minutes(left)} left"

    def _line(self, text: str) -> None:
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        reporter.ensure_newline()
        reporter.write_line(text)

    @pytest.hookimpl
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._took and not hasattr(session.config, "workerinput"):
            self._remember()
            if self.too_slow() and not session.exitstatus:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _remember(self) -> None:
        scopes: dict[str, float] = defaultdict(float)
        for nodeid, seconds in self._took.items():
            scopes[scope_of(nodeid)] += seconds
        known = json.loads(LAST_RUN.read_text()) if LAST_RUN.exists() else {}
        LAST_RUN.parent.mkdir(exist_ok=True)
        LAST_RUN.write_text(json.dumps({**known, **scopes}, indent=0))
        with (self._records / "tests").open("a") as file:
            file.writelines(json.dumps(each) + "\n" for each in self._took.items())

    def too_slow(self) -> list[str]:
        """Tests far above the ceiling that have no reason in `SLOW_TESTS`: even a slow machine is no excuse."""
        most = CEILING * TIMES_ON_SLOW_MACHINES
        return [
            f"{nodeid} took {seconds:.1f} s, {CEILING:.0f} being allowed: tests/kit/slow_tests.py"
            for nodeid, seconds in self._call.items()
            if seconds > most and name_of(nodeid) not in SLOW_TESTS and "CI" in os.environ
        ]

    @pytest.hookimpl
    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        file = self._records / "tests"
        if not file.exists():
            return
        took = [json.loads(line) for line in file.read_text().splitlines()]
        if len(took) < 100 and not self.too_slow():
            return
        folders: dict[str, float] = defaultdict(float)
        for nodeid, seconds in took:
            folders[folder_of(nodeid)] += seconds
        terminalreporter.section("what it took")
        for seconds, nodeid in sorted(((each[1], each[0]) for each in took), reverse=True)[:20]:
            terminalreporter.write_line(f"{seconds:7.1f} s  {nodeid}")
        terminalreporter.write_line("seconds of the tests by folder:")
        for folder, seconds in sorted(folders.items(), key=lambda each: -each[1]):
            terminalreporter.write_line(f"{seconds:7.0f} s  {folder}")
        parts = self._records / "parts"
        if parts.exists():
            terminalreporter.write_line("seconds by part:")
            for line in parts.read_text().splitlines():
                terminalreporter.write_line(line)
        starts = self._records / "starts"
        lines = starts.read_text().splitlines() if starts.exists() else []
        terminalreporter.write_line(f"products started: {len(lines)}")
        busy, passed = (now - before for now, before in zip(_processors(), self._processors, strict=True))
        terminalreporter.write_line(f"processors of the machine busy: {busy / max(passed, 1):.0%} of this run")
        for line in self.too_slow():
            terminalreporter.write_line(line)


def _processors() -> tuple[int, int]:
    """How long all processors were busy, and how long they were there, in ticks (proc_stat(5))."""
    with open("/proc/stat") as file:
        ticks = [int(each) for each in file.readline().split()[1:9]]
    idle = ticks[3] + ticks[4]
    return sum(ticks) - idle, sum(ticks)


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"
