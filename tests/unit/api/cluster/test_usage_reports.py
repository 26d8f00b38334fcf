"""Usage in the fleet's database: sums are exact and leases bounded, whatever becomes of reports."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.cluster.database import Database
from actors.cluster.usage_report import (
    FleetTotal,
    LedgerReport,
    LedgerRow,
    ReportedAccount,
    ReportReply,
    TotalsCursor,
    UsageTable,
)
from tests.kit.postgresql import migrated_database, needs_postgresql
from tests.kit.tables import table
from tests.kit.wait import wait_until

pytestmark = needs_postgresql

ACCOUNTS = ("acc_a", "acc_b", "acc_c")
PROXIES = ("prx_1", "prx_2")
MIB = 1 << 20
KIB_256 = 256 * 1024
QUOTA = 8 * MIB
TABLES = ("usage_hours", "usage_days", "usage_ledgers", "usage_totals", "leases")


class FleetUsage:
    """The database, and what an operator does with it."""

    def __init__(self, dsn: str, database: Database) -> None:
        self.dsn, self.database = dsn, database
        copies = "; ".join(f"CREATE TABLE dump.{each} AS TABLE proxyfleet.{each}" for each in TABLES)
        self.execute(f"CREATE SCHEMA dump; {copies}")

    def execute(self, statement: str) -> list[Any]:
        with self.database.session() as session:
            return session.transaction(statement)

    def empty(self) -> None:
        self.execute("; ".join(f"DELETE FROM proxyfleet.{each}" for each in (*TABLES, "usage_clock")))
        self.execute("INSERT INTO proxyfleet.usage_clock (hour) VALUES (0)")

    def dump(self) -> None:
        self.execute(
            "; ".join(f"DELETE FROM dump.{each}; INSERT INTO dump.{each} TABLE proxyfleet.{each}" for each in TABLES)
        )

    def restore(self) -> None:
        self.empty()
        self.execute("; ".join(f"INSERT INTO proxyfleet.{each} SELECT * FROM dump.{each}" for each in TABLES))

    def total(self, account: str) -> int:
        found = self.execute(
            f"SELECT day_in + day_out, total_in + total_out FROM proxyfleet.usage_totals WHERE account = '{account}'"
        )
        assert all(day <= total for day, total in found)
        return sum(total for _, total in found)

    def sums(self) -> Counter[str]:
        """By account, the bytes of all hours and days."""
        rows = self.execute(
            "SELECT account, sum(bytes_in + bytes_out)::bigint FROM (SELECT account, bytes_in, bytes_out"
            " FROM proxyfleet.usage_hours WHERE node <> '' UNION ALL SELECT account, bytes_in, bytes_out"
            " FROM proxyfleet.usage_days) u GROUP BY account"
        )
        return Counter({account: sum_ for account, sum_ in rows if sum_})

    def tend(self) -> None:
        self.execute("SELECT proxyfleet.tend_usage()")
        while self.execute("SELECT proxyfleet.add_up_usage()") == [(True,)]:
            pass

    def left(self, account: str, quota: int = QUOTA) -> int:
        return max(0, quota - self.total(account))

    def leased(self, account: str) -> int:
        [(found,)] = self.execute(
            f"SELECT coalesce(sum(bytes), 0)::bigint FROM proxyfleet.leases WHERE account = '{account}'"
        )
        return int(found)


@pytest.fixture(scope="module")
def one_fleet() -> Iterator[FleetUsage]:
    with migrated_database() as dsn, closing(Database(dsn)) as opened:
        yield FleetUsage(dsn, opened)


@pytest.fixture
def fleet(one_fleet: FleetUsage) -> FleetUsage:
    one_fleet.empty()
    return one_fleet


class NodeLedger:
    """What a node's ledger does, in memory. `lease` is what it may use of each account beyond what it has reported."""

    def __init__(self, fleet: FleetUsage, name: str) -> None:
        self.name = name
        self._table = UsageTable(fleet.database, name)
        self._rows: dict[tuple[int, str, str], LedgerRow] = {}
        self._number = self._acknowledged = 0
        self.sent: list[LedgerReport] = []
        self.lease: Counter[str] = Counter()
        self.unreported: Counter[str] = Counter()
        self.generations: Counter[str] = Counter()
        self.totals: dict[str, FleetTotal] = {}

    def use(self, account: str, proxy: str, hours_ago: int, count: int) -> None:
        self._number += 1
        key = int(time.time() // 3600) - hours_ago, account, proxy
        old = self._rows.get(key, LedgerRow(0, *key, 0, 0, 0, 0, 0))
        self._rows[key] = LedgerRow(
            self._number, *key, old.bytes_in + count, old.bytes_out + 1, old.requests + 1, old.milliseconds, 0
        )
        self.unreported[account] += count + 1

    def report(self, lost: bool = False, wants: bool = True) -> ReportReply:
        rows = sorted(each for each in self._rows.values() if each.number > self._acknowledged)
        accounts = {each.account for each in rows} or set(ACCOUNTS)
        now = time.time()
        asked = [
            ReportedAccount(each, self.generations[each], QUOTA, "total", wants, now, "192.0.2.1", 'a"\\da')
            for each in sorted(accounts, reverse=True)
        ]
        report = LedgerReport(self._acknowledged, self._number, 0, rows, asked)
        self.sent.append(report)
        reply = self.send(report)
        if not lost:
            self._take(reply)
        return reply

    def send(self, report: LedgerReport) -> ReportReply:
        return self._table.report("l1", report, 0.8)

    def _take(self, reply: ReportReply) -> None:
        self._acknowledged = reply.number
        for each in reply.totals or ():
            self.lease[each.account] = each.lease or 0
            self.unreported[each.account] = 0
            self.generations[each.account] = each.generation
            self.totals[each.account] = each

    def settle(self) -> None:
        while self._acknowledged < self._number or not self.report().totals:
            self.report()


NODES = st.integers(0, 2)
STEPS = st.one_of(
    st.tuples(
        st.just("use"),
        NODES,
        st.sampled_from(ACCOUNTS),
        st.sampled_from(PROXIES),
        st.integers(0, 80),
        st.integers(0, 10**6),
    ),
    st.tuples(st.just("report"), NODES, st.booleans()),
    st.tuples(st.just("repeat"), NODES, st.integers(0, 100)),
    st.tuples(st.sampled_from(("dump", "restore", "tend"))),
)


def test_sums_are_exact_whatever_is_lost_repeated_late_or_restored(fleet: FleetUsage) -> None:
    @settings(max_examples=15)
    @given(st.lists(STEPS, max_size=30))
    def holds(steps: list[tuple[Any, ...]]) -> None:
        fleet.empty()
        fleet.dump()
        nodes, used = [NodeLedger(fleet, f"nod_{number}") for number in range(3)], Counter[str]()
        for kind, *rest in steps:
            if kind == "use":
                number, account, proxy, hours, count = rest
                nodes[number].use(account, proxy, hours, count)
                used[account] += count + 1
            elif kind == "report":
                nodes[rest[0]].report(lost=rest[1])
            elif kind == "repeat" and nodes[rest[0]].sent:
                sent = nodes[rest[0]].sent
                nodes[rest[0]].send(sent[rest[1] % len(sent)])
            elif kind == "dump":
                fleet.dump()
            elif kind == "restore":
                fleet.restore()
            elif kind == "tend":
                fleet.tend()
        for each in nodes:
            each.settle()
        assert {each: fleet.total(each) for each in used} == used
        assert fleet.sums() == used

    holds()


def test_leases_never_sum_to_more_than_is_left_and_no_one_goes_beyond_the_quota(fleet: FleetUsage) -> None:
    @settings(max_examples=15)
    @given(st.lists(st.tuples(NODES, st.floats(0, 1), st.booleans(), st.booleans()), max_size=30))
    def holds(steps: list[tuple[int, float, bool, bool]]) -> None:
        fleet.empty()
        nodes = [NodeLedger(fleet, f"nod_{number}") for number in range(3)]
        for number, part, lost, wants in steps:
            node = nodes[number]
            most = node.lease["acc_a"] - node.unreported["acc_a"]
            if most > 1 and not lost:
                node.use("acc_a", "prx_1", 0, int(part * most) - 1)
            node.report(wants=wants)
            assert fleet.leased("acc_a") <= fleet.left("acc_a")
            assert fleet.total("acc_a") <= QUOTA
            assert node.lease["acc_a"] <= max(KIB_256, QUOTA // 100, fleet.left("acc_a") // 2)

    holds()


def test_a_lease_is_at_least_a_little_while_that_is_left_and_what_is_left_at_the_end(fleet: FleetUsage) -> None:
    one, other = NodeLedger(fleet, "nod_1"), NodeLedger(fleet, "nod_2")
    leases = []
    while fleet.left("acc_a"):
        for each in (one, other):
            each.report()
            if each.lease["acc_a"]:
                leases.append(each.lease["acc_a"])
                each.use("acc_a", "prx_1", 0, each.lease["acc_a"] - 1)
    assert min(leases[:-4]) >= KIB_256
    assert fleet.total("acc_a") == QUOTA


@table(
    ("used", "left", "others", "lease"),
    [
        (0, 10_000, 0, 64), (10, 10_000, 0, 64), (20, 10_000, 0, 100), (2_000, 10_000, 0, 5_000),
        (20, 150, 0, 75), (20, 90, 0, 64), (20, 10_000, 9_900, 64), (20, 10_000, 9_990, 7.5),
    ],
)  # fmt: skip
def test_a_lease_lasts_for_five_seconds_of_its_nodes_use_where_that_leaves_half_to_others(
    fleet: FleetUsage, used: int, left: int, others: int, lease: float
) -> None:
    fleet.empty()
    account = ReportedAccount("acc_a", 0, (10_000 + left) * MIB, "total", True, 0, "", "")
    row = LedgerRow(1, int(time.time() // 3600), "acc_a", "prx_1", (10_000 - used) * MIB, 0, 0, 0, 0)
    one = NodeLedger(fleet, "nod_1")
    one.send(LedgerReport(0, 1, 0, [row], [account]))
    fleet.execute("UPDATE proxyfleet.leases SET at = at - 1, bytes = 0")
    if others:
        now = "extract(epoch FROM clock_timestamp())"
        fleet.execute(f"INSERT INTO proxyfleet.leases VALUES ('acc_a', 'nod_2', {others * MIB}, 0, {now})")
    row = row._replace(number=2, bytes_in=10_000 * MIB)
    [found] = one.send(LedgerReport(1, 2, 0, [row], [account])).totals or ()
    assert (found.lease or 0) / MIB == pytest.approx(lease, rel=0.1)


def test_who_uses_more_is_leased_more_and_who_gives_back_leaves_it_to_others(fleet: FleetUsage) -> None:
    one, other = NodeLedger(fleet, "nod_1"), NodeLedger(fleet, "nod_2")
    large = 1 << 40
    fast = ReportedAccount("acc_a", 0, large, "total", True, 0, "", "")
    row = LedgerRow(1, int(time.time() // 3600), "acc_a", "prx_1", large - 2000 * MIB, 0, 0, 0, 0)
    [first] = one.send(LedgerReport(0, 1, 0, [row], [fast])).totals or ()
    assert first.lease == 64 * MIB, "never more"
    row = row._replace(number=2, bytes_in=large - 100 * MIB)
    [first] = one.send(LedgerReport(1, 2, 0, [row], [fast])).totals or ()
    [second] = other.send(LedgerReport(0, 0, 0, [], [fast])).totals or ()
    assert first.lease == 64 * MIB
    assert second.lease == 36 * MIB // 4
    assert second.leased == first.lease + second.lease
    one.send(LedgerReport(2, 2, 0, [], [fast._replace(wants_lease=False)]))
    [second] = other.send(LedgerReport(0, 0, 0, [], [fast])).totals or ()
    assert second.leased == second.lease == 64 * MIB


def test_the_lease_of_a_silent_node_is_taken_back_after_a_minute(fleet: FleetUsage) -> None:
    one, other = NodeLedger(fleet, "nod_1"), NodeLedger(fleet, "nod_2")
    one.report()
    fleet.execute("UPDATE proxyfleet.leases SET at = at - 59")
    other.report()
    assert other.totals["acc_a"].leased == 2 * KIB_256
    fleet.execute("UPDATE proxyfleet.leases SET at = at - 2 WHERE node = 'nod_1'")
    other.report()
    assert other.totals["acc_a"].leased == KIB_256


def test_a_reset_begins_a_generation_and_what_belongs_to_the_former_one_counts_for_hours_alone(
    fleet: FleetUsage,
) -> None:
    one, other = NodeLedger(fleet, "nod_1"), NodeLedger(fleet, "nod_2")
    for each in (one, other):
        each.use("acc_a", "prx_1", 0, 99)
        each.report()
    one.use("acc_a", "prx_1", 0, 9)
    assert UsageTable(fleet.database, "x").reset(["acc_a", "acc_b"]) == {"acc_a": 1, "acc_b": 1}
    assert (fleet.total("acc_a"), one.generations["acc_a"]) == (0, 0)
    one.report()
    assert (fleet.total("acc_a"), one.generations["acc_a"]) == (0, 1), "it learns of that"
    one.use("acc_a", "prx_1", 0, 4)
    one.report()
    other.report()
    assert (fleet.total("acc_a"), other.generations["acc_a"]) == (5, 1)
    assert fleet.sums()["acc_a"] == 215


def test_a_reset_that_a_restored_database_does_not_know_holds_when_a_node_does(fleet: FleetUsage) -> None:
    one = NodeLedger(fleet, "nod_1")
    one.use("acc_a", "prx_1", 0, 99)
    one.report()
    fleet.dump()
    UsageTable(fleet.database, "x").reset(["acc_a"])
    one.report()
    fleet.restore()
    one.use("acc_a", "prx_1", 0, 4)
    one.settle()
    assert fleet.total("acc_a") == 5


def test_usage_counts_in_the_periods_that_its_hour_is_in(fleet: FleetUsage) -> None:
    one = NodeLedger(fleet, "nod_1")
    for hours in (0, 24, 24 * 7, 24 * 31):
        one.use("acc_a", "prx_1", hours, 0)
    one.report()
    day, week, month, total = (one.totals["acc_a"].sums[place : place + 3] for place in range(0, 12, 3))
    assert (day[2], total) == (1, (0, 0, 4))
    hours = [int(time.time() // 3600) - each for each in (0, 24, 24 * 7, 24 * 31)]
    for since, _, count in (day, week, month):
        assert count == sum(each * 3600 >= since for each in hours)


def test_what_a_period_before_had_is_gone_when_the_next_begins(fleet: FleetUsage) -> None:
    one = NodeLedger(fleet, "nod_1")
    one.use("acc_a", "prx_1", 0, 99)
    one.report()
    fleet.execute("UPDATE proxyfleet.usage_totals SET day = day - 24, week = week - 168, month = month - 700")
    one.use("acc_a", "prx_1", 0, 4)
    one.report()
    assert one.totals["acc_a"].sums[1::3] == (4, 4, 4, 103)


def test_a_clock_that_is_set_back_a_little_stays_in_its_hour(fleet: FleetUsage) -> None:
    now = int(time.time() // 3600)
    for last, expected in ((now + 20, now + 20), (now + 30, now), (now - 5, now)):
        fleet.execute(f"UPDATE proxyfleet.usage_clock SET hour = {last}")
        assert fleet.execute("SELECT hour FROM proxyfleet.usage_hour()") == [(expected,)]


def test_one_node_announces_that_a_quota_is_near_and_used_up(fleet: FleetUsage) -> None:
    one, other = NodeLedger(fleet, "nod_1"), NodeLedger(fleet, "nod_2")
    said = []
    for count in (7 * MIB, MIB):
        one.use("acc_a", "prx_1", 0, count)
        for each in (one, one, other):
            each.use("acc_a", "prx_1", 0, 0)
            each.report()
            total = each.totals["acc_a"]
            said.append((total.warns, total.reaches, total.warned, total.reached))
    assert said == [
        (True, False, 0, -1), (True, False, 0, -1), (False, False, 0, -1),
        (True, True, 0, 0), (True, True, 0, 0), (False, False, 0, 0),
    ]  # fmt: skip


def test_hours_are_added_up_after_a_week_days_keep_nodes_and_repeated_reports_add_nothing(fleet: FleetUsage) -> None:
    one, other = NodeLedger(fleet, "nod_1"), NodeLedger(fleet, "nod_2")
    for each in (one, other):
        for hours in (0, 24 * 7, 24 * 7 + 1, 24 * 30):
            each.use("acc_a", "prx_1", hours, 9)
    now = int(time.time() // 3600)
    reports = [LedgerReport(0, 4, now, sorted(each._rows.values()), []) for each in (one, other)]
    for each, report in zip((one, other), reports, strict=True):
        accounts = [ReportedAccount("acc_a", 0, 0, "total", False, 0, "", "")]
        each.send(report._replace(accounts=accounts))
    before = fleet.sums()
    for _ in range(2):
        fleet.tend()
        for each, report in zip((one, other), reports, strict=True):
            each.send(report._replace(accounts=accounts))
        assert fleet.sums() == before == {"acc_a": 80}
        assert fleet.total("acc_a") == 80
    rows = fleet.execute("SELECT hour - %s, node, bytes_in FROM proxyfleet.usage_hours ORDER BY 1, 2" % now)  # noqa: UP031
    assert rows == [
        (-720, "", 18),
        (-169, "", 18),
        (-168, "nod_1", 9),
        (-168, "nod_2", 9),
        (0, "nod_1", 9),
        (0, "nod_2", 9),
    ]
    days = fleet.execute("SELECT node, sum(bytes_in)::int FROM proxyfleet.usage_days GROUP BY node ORDER BY 1")
    assert days == [("nod_1", 18), ("nod_2", 18)]


def test_a_month_gets_a_partition_with_what_came_too_early_and_loses_it_after_400_days(fleet: FleetUsage) -> None:
    parts = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'proxyfleet.usage_hours'::regclass"
    assert fleet.execute(parts) == [(3,)]
    one = NodeLedger(fleet, "nod_1")
    one.use("acc_a", "prx_1", -24 * 70, 9)
    one.use("acc_a", "prx_1", 24 * 450, 9)
    one.report()
    fleet.execute("UPDATE proxyfleet.usage_clock SET hour = hour + 20")
    fleet.execute("SELECT proxyfleet.tend_usage()")
    [(kept,)] = fleet.execute(parts)  # one more where the next month begins in these 20 hours
    assert fleet.sums()["acc_a"] == 10
    month = "date_trunc('month', clock_timestamp() - interval '480 days')"
    [(name, first)] = fleet.execute(
        f"SELECT to_char({month}, '\"usage_hours_\"YYYY_MM'), (extract(epoch FROM {month}) / 3600)::int"
    )
    fleet.execute(
        f"CREATE TABLE proxyfleet.{name} PARTITION OF proxyfleet.usage_hours"
        f" FOR VALUES FROM ({first}) TO ({first + 24})"
    )
    assert fleet.execute(parts) == [(kept + 1,)]
    fleet.execute("SELECT proxyfleet.tend_usage()")
    assert fleet.execute(parts) == [(kept,)]


def test_the_upkeep_of_usage_keeps_no_report_waiting_but_of_the_node_whose_hours_are_added_up(
    fleet: FleetUsage,
) -> None:
    one, other = NodeLedger(fleet, "nod_1"), NodeLedger(fleet, "nod_2")
    for each in (one, other):
        each.use("acc_a", "prx_1", 24 * 8, 9)
        rows = [*each._rows.values()]
        each.send(LedgerReport(0, 1, int(time.time() // 3600), rows, []))
        each._acknowledged = 1
    for upkeep, reporting, days in (("tend_usage", one, 0), ("tend_usage", other, 0), ("add_up_usage", other, 1)):
        with fleet.database.session() as holder:
            holder.begin(f"SELECT proxyfleet.{upkeep}()")
            reporting.use("acc_a", "prx_1", 0, 9)
            reporting.report()
            assert holder.finish("SELECT count(*) FROM proxyfleet.usage_days") == [(days,)]


def test_totals_that_have_changed_are_read_from_where_the_last_ones_ended(
    fleet: FleetUsage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("actors.cluster.usage_report.TOTALS_AT_ONCE", 2)
    one = NodeLedger(fleet, "nod_1")
    for each in ACCOUNTS:
        one.use(each, "prx_1", 0, 9)
    one.report()
    table = UsageTable(fleet.database, "nod_2")
    first, cursor = table.changed(TotalsCursor(0, ""))
    second, cursor = table.changed(cursor)
    assert [each.account for each in (*first, *second)] == [*ACCOUNTS]
    assert first[0]._replace(lease=KIB_256) == one.totals["acc_a"]
    assert [each.account for each in table.changed(cursor)[0]] == [*ACCOUNTS][:2], "that of now is read again"


def test_reports_at_the_same_time_of_the_same_accounts_wait_for_each_other(fleet: FleetUsage) -> None:
    """A deadlock would be an error of one of them."""
    nodes = [NodeLedger(fleet, f"nod_{number}") for number in range(3)]
    failed = []

    def run(node: NodeLedger) -> None:
        try:
            for round_ in range(12):
                for account in (f"acc_{number}" for number in range(round_, round_ + 40)):
                    node.use(account, "prx_1", 0, 0)
                node.report()
        except Exception as error:
            failed.append(error)
            raise

    threads = [threading.Thread(target=run, args=[each]) for each in nodes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert sum(fleet.sums().values()) == 3 * 12 * 40


def test_a_report_and_the_partition_of_a_new_month_take_their_locks_in_one_order(fleet: FleetUsage) -> None:
    """A deadlock would be an error of one of them."""
    month = "clock_timestamp() AT TIME ZONE 'UTC' + interval '1 month'"
    [(next_month,)] = fleet.execute(f"SELECT to_char({month}, '\"usage_hours_\"YYYY_MM')")
    node = NodeLedger(fleet, "nod_1")
    node.use("acc_a", "prx_1", 0, 9)
    node.report()
    node.use("acc_a", "prx_1", 0, 9)
    fleet.execute(f"DROP TABLE proxyfleet.{next_month}")
    waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    with ThreadPoolExecutor(2) as threads:
        with fleet.database.session() as holder:
            holder.begin("SELECT FROM proxyfleet.usage_totals FOR UPDATE")
            reports = threads.submit(node.report)
            wait_until(lambda: fleet.execute(waits) == [(1,)], "the report waits", 2)
            tends = threads.submit(fleet.execute, "SELECT proxyfleet.tend_usage()")
            wait_until(lambda: fleet.execute(waits) == [(2,)], "the other one waits", 2)
        reports.result(3)
        tends.result(3)
    assert fleet.execute(f"SELECT to_regclass('proxyfleet.{next_month}')") != [(None,)]


def test_updates_stay_on_their_page(fleet: FleetUsage) -> None:
    statement = (
        "SELECT left(relname, 11), sum(n_tup_upd)::int, sum(n_tup_hot_upd)::int FROM pg_stat_user_tables"
        " WHERE schemaname = 'proxyfleet' AND relname ~ '^(usage_hours|usage_totals|leases)' GROUP BY 1"
    )

    def updates() -> dict[str, tuple[int, int]]:
        fleet.execute("SELECT pg_stat_force_next_flush()")
        return {name: (count, on_page) for name, count, on_page in fleet.execute(statement)}

    node, before = NodeLedger(fleet, "nod_1"), updates()
    for _ in range(10):
        for number in range(200):
            node.use(f"acc_{number}", "prx_1", 0, 0)
        node.report()
    for name, after in updates().items():
        count, on_page = (after[place] - before[name][place] for place in (0, 1))
        assert count >= 1800, name
        assert on_page >= 0.8 * count, (name, count, on_page)
