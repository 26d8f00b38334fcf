"""Measures with simulated nodes, which have no product: 50 that follow, and ten that report usage."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from functools import partial
from uuid import uuid4

from actors.cluster.database import Database
from actors.cluster.doorbell import Doorbell
from actors.cluster.errors import DatabaseBusy
from actors.cluster.usage_report import LedgerReport, LedgerRow, ReportedAccount, ReportReply, UsageTable
from api.cluster.following.follower import CHANNEL
from api.cluster.following.heartbeat import PERIOD, Heartbeat
from api.cluster.migration_runner import migrate
from api.cluster.shared_ledger import SharedLedger
from api.engine.commit import Engine
from api.store import Write
from benchmarks.cluster.fleets import SETTINGS, at_once, effort_of, part
from benchmarks.ours import OURS
from benchmarks.processes import BenchError, cpu_seconds
from benchmarks.rounds import Bench, Results
from config.files.paths import open_data_dir
from config.files.secret_box import secret_box_of
from config.model.proxies import ProxyCreate, new_record
from tests.kit.fleet_database import create_fleet
from tests.kit.postgresql_server import Server

CHANGES_EACH_SECOND = 5
ATTEMPTS = 5
WARM_UP = 30.0
"""Seconds until each page has the room that its updates need."""


# --- followers ---


class SimulatedFollower:
    """Listens, reads each commit that is announced, and beats; what it reads it throws away."""

    def __init__(self, dsn: str, node: str, fleet: SharedLedger, database: Database, at: int) -> None:
        self._database = database
        self._ledger = fleet
        self._doorbell = Doorbell(dsn, database.place, [CHANNEL])
        self._beats = Heartbeat(database, node, node, lambda: (self.at, None))
        self._changed = threading.Condition()
        self._ended = False
        self.at = at
        """The last commit that it has."""
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._follow, self._beat)]

    def start(self) -> None:
        """Begin."""
        for each in self._threads:
            each.start()

    def wait_for(self, number: int) -> float:
        """Wait until it has this commit; the moment."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.at >= number, 30):
                raise BenchError(f"a follower has no commit {number}")
            return time.monotonic()

    def close(self) -> None:
        """End."""
        self._ended = True
        self._doorbell.wake()
        self._threads[0].join()
        self._doorbell.close()
        self._database.close()

    def _follow(self) -> None:
        while not self._ended:
            if CHANNEL in self._doorbell.wait(30, lambda: None):
                for each in self._ledger.changes(self.at):
                    with self._changed:
                        self.at = each.commit.number
                        self._changed.notify_all()

    def _beat(self) -> None:
        time.sleep(random.uniform(0, PERIOD))
        while not self._ended:
            self._beats.beat_now()
            time.sleep(PERIOD)


def followers(bench: Bench) -> Results:
    """ms from a change until the last of many nodes has read it, and the database's share of a core."""
    effort = effort_of(bench)
    with ExitStack() as stack:
        server = stack.enter_context(Server(durable=True, **SETTINGS))
        database = stack.enter_context(closing(Database(server.dsn())))
        migrate(database, "writer")
        fleet = uuid4()
        stamp = create_fleet(database, fleet, "writer")
        data = open_data_dir(bench.own("writer"))
        writer = stack.enter_context(closing(Engine(data, secret_box_of(data))))
        writer.follow_ledger(SharedLedger(database, fleet, "writer"), stamp)
        found = []
        for number in range(effort.followers):
            node = f"nod_{number:016x}"
            own = Database(server.dsn())
            each = SimulatedFollower(server.dsn(), node, SharedLedger(own, fleet, node), own, 0)
            stack.callback(each.close)
            each.start()
            found.append(each)
        _changed(writer, found, 2 * CHANGES_EACH_SECOND)
        before, began = cpu_seconds([server.process.pid, *server.backends()]), time.monotonic()
        took = _changed(writer, found, int(effort.seconds * CHANGES_EACH_SECOND))
        spent = cpu_seconds([server.process.pid, *server.backends()]) - before
        share = spent / (time.monotonic() - began) * 100
    return {OURS: {"p50": part(took, 0.5), "p99": part(took, 0.99), "share": share}}


def _changed(writer: Engine, followers: Sequence[SimulatedFollower], changes: int) -> list[float]:
    took, began = [], time.monotonic()
    for number in range(changes):
        time.sleep(max(0.0, began + number / CHANGES_EACH_SECOND - time.monotonic()))
        body = ProxyCreate(name=f"p-{number}", port=1024 + number % 60_000, protocol="http")
        record = new_record(body, f"prx_{time.monotonic_ns():016x}", time.time(), 30)
        at = writer.commit([Write("proxies", record.id, record.model_dump(mode="json"), 0)])
        done = time.monotonic()
        took.append((max(each.wait_for(at) for each in followers) - done) * 1e3)
    return took


# --- reports of usage ---


class SimulatedReporter:
    """A node on which these accounts are used all the time, on one proxy, with quotas that they don't reach."""

    def __init__(self, database: Database, node: str, accounts: range) -> None:
        self._table = UsageTable(database, node)
        self._ledger = f"{node}-ledger"
        self._accounts = [f"acc_{number:016x}" for number in accounts]
        self._bytes = 0
        self._number = 0

    def report(self) -> float:
        """All accounts have used more; ms of the report, which is made again where it waited too long for others."""
        self._bytes += 100_000
        now, hour = time.time(), int(time.time() // 3600)
        first, self._number = self._number, self._number + len(self._accounts)
        rows = [
            LedgerRow(first + place, hour, account, "prx_0000000000000001", 500, self._bytes, self._bytes // 1000, 1, 0)
            for place, account in enumerate(self._accounts, 1)
        ]
        accounts = [
            ReportedAccount(account, 0, 1 << 50, "month", True, now, "192.0.2.1", account) for account in self._accounts
        ]
        report = LedgerReport(first, self._number, 0, rows, accounts)
        began = time.perf_counter()
        reply = None
        for _ in range(ATTEMPTS):
            with suppress(DatabaseBusy):
                reply = self._table.report(self._ledger, report, 0.8)
                break
        took = (time.perf_counter() - began) * 1e3
        if not isinstance(reply, ReportReply) or reply.totals is None or len(reply.totals) != len(self._accounts):
            raise BenchError(f"a report was not taken: {reply}")
        return took


def reports(bench: Bench) -> Results:
    """ms of a report, updates that stay on their page in percent, and by how many percent a table grows.

    First each node has accounts of its own, then all have the same: these wait for each other.
    """
    effort = effort_of(bench)
    with Server(durable=True, **SETTINGS) as server, ExitStack() as stack:
        databases = [stack.enter_context(closing(Database(server.dsn()))) for _ in range(effort.nodes)]
        migrate(databases[0], "first")

        def reporters(distance: int) -> list[SimulatedReporter]:
            """Those whose accounts begin so far from each other; each has reported once."""
            ranges = [range(each * distance, each * distance + effort.accounts) for each in range(effort.nodes)]
            found = [
                SimulatedReporter(database, f"nod_{number:016x}", accounts)
                for number, (database, accounts) in enumerate(zip(databases, ranges, strict=True))
            ]
            for each in found:
                each.report()
            return found

        own = reporters(effort.accounts)
        at_once([partial(_reported, each, min(WARM_UP, effort.reports / 2)) for each in own])
        updates, sizes = _updates(server), _sizes(server)
        spent, began = cpu_seconds([server.process.pid, *server.backends()]), time.monotonic()
        took = _took(own, effort.reports)
        spent = cpu_seconds([server.process.pid, *server.backends()]) - spent
        share = spent / (time.monotonic() - began) * 100
        hot = [now - before for now, before in zip(_updates(server), updates, strict=True)]
        growth = max((size / sizes[name] - 1) * 100 for name, size in _sizes(server).items() if name in sizes)
        shared = _took(reporters(0), effort.seconds)
    figure = {"p50": part(took, 0.5), "p99": part(took, 0.99), "hot": hot[1] / hot[0] * 100}
    return {
        OURS: {
            **figure,
            "growth": growth,
            "share": share,
            "same p50": part(shared, 0.5),
            "same p99": part(shared, 0.99),
        }
    }


def _took(reporters: Sequence[SimulatedReporter], seconds: float) -> list[float]:
    return [each for one in at_once([partial(_reported, each, seconds) for each in reporters]) for each in one]


def _reported(reporter: SimulatedReporter, seconds: float) -> list[float]:
    """One each second, as nodes do, at a moment of its own."""
    began, took = time.monotonic() + random.uniform(0, min(1.0, seconds / 4)), []
    for number in range(max(1, int(seconds))):
        time.sleep(max(0.0, began + number - time.monotonic()))
        took.append(reporter.report())
    return took


_TABLES = "relname IN ('usage_totals', 'leases', 'usage_ledgers') OR relname LIKE 'usage\\_hours\\_%'"


def _updates(server: Server) -> list[int]:
    """All updates of the tables of usage, and those that stayed on their page."""
    time.sleep(1.0)  # backends report what they have done each second at most
    columns = "coalesce(sum(n_tup_upd), 0)::bigint, coalesce(sum(n_tup_hot_upd), 0)::bigint"
    [row] = server.execute(f"SELECT {columns} FROM pg_stat_user_tables WHERE {_TABLES}")
    return [int(str(each)) for each in row]


def _sizes(server: Server) -> dict[str, int]:
    """Bytes of these tables without their indexes, of those that have any."""
    rows = server.execute(
        f"SELECT relname::text, pg_relation_size(oid)::bigint FROM pg_class WHERE relkind = 'r' AND ({_TABLES})"
    )
    return {str(name): int(str(size)) for name, size in rows if size}
