"""Collectors of several nodes with the fleet's database, and the processes whose accounts they count."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from actors.bus.messages.accounts import DATABASE, DropAccountUsage, ResetUsage
from actors.bus.messages.cluster import NoteFleet
from actors.bus.messages.common import Done, Failed
from actors.cluster.usage_report import SLOT
from actors.metrics.usage.changes import FIRST
from actors.metrics.usage.reporter import CUT_OFF_AFTER, GIVEN_BACK_AFTER, NEWS_LAST, READ_EACH
from api.cluster.fleet_usage import Unreported
from tests.kit.cutting_relay import CuttingRelay, Where
from tests.kit.postgresql import migrated_database, needs_postgresql
from tests.kit.tables import table
from tests.unit.actors.forwarding.usage_world import ADA, Process, World
from tests.unit.actors.metrics.fleets import CutDatabase, Fleet, Node

pytestmark = needs_postgresql

MIB = 1 << 20
QUOTA = 16 * MIB


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with migrated_database() as dsn, ExitStack() as stack:
        yield Fleet(dsn, tmp_path, stack)


def process(node: Node, quota: int = QUOTA, proxy: str = "px1", **more: Any) -> Process:
    made = Process(node, proxy)
    made.configure(replace(ADA, quota=quota, **more))
    node.turn()
    return made


def uses_all_it_may(processes: list[Process], most: int = 1 << 60) -> int:
    """What they move in a turn, each as much as it may."""
    moved = 0
    for each in processes:
        if not each.ada.exhausted:
            count = min(each.ada.room(), most)
            each.uses(count)
            moved += count
            each.ada.wait(lambda: None)
    return moved


def test_what_one_node_counts_all_know(fleet: Fleet) -> None:
    one, other = fleet.node(), fleet.node()
    here, there = process(one), process(other)
    here.uses(300)
    fleet.pass_time(2)
    assert fleet.total() == 300
    there.uses(50)
    fleet.pass_time(READ_EACH + 3)
    assert (here.knows(), there.knows(), fleet.total(), fleet.hours()) == (350, 350, 350, 350)
    here.uses(5)
    assert here.knows() == 355
    for node in (one, other):
        assert node.collector.activity().usage.bytes_in == (355 if node is one else 350)


def test_what_others_count_is_read_when_the_heartbeat_says_that_there_is_something(fleet: Fleet) -> None:
    one, other = fleet.node(), fleet.node()
    here, there = process(one), process(other)
    here.uses(300)
    fleet.pass_time(READ_EACH + 3)
    here.uses(5)
    for _ in range(3):
        other.collector.service.note_fleet(NoteFleet(slot=0, limits=False))
        fleet.pass_time(5)
    assert (fleet.total(), there.knows()) == (305, 300)
    other.collector.service.note_fleet(NoteFleet(int(time.time() / SLOT), limits=False))
    fleet.pass_time(1)
    assert there.knows() == 305
    here.uses(7)
    fleet.pass_time(NEWS_LAST + 2)  # of a heartbeat that is no more
    assert there.knows() == 312


def test_a_node_that_is_refused_reports_nothing_and_says_so_once_until_it_is_not(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = fleet.node(), fleet.node()
    here, there = process(one), process(other)
    here.uses(300)
    fleet.pass_time(2)
    for _ in range(4):
        one.collector.service.note_fleet(NoteFleet(refused="this node was removed"))
        here.uses(10)
        there.uses(1)
        fleet.pass_time(CUT_OFF_AFTER)
    assert (fleet.total(), one.reporter.is_cut_off, other.reporter.is_cut_off) == (304, True, False)
    assert one.database._idle == []
    assert [each.getMessage() for each in caplog.records if each.levelname == "ERROR"] == [
        "cannot report the usage of accounts: this node was removed"
    ]
    one.collector.service.note_fleet(NoteFleet())
    fleet.pass_time(3)
    assert fleet.total() == 344


def test_what_was_used_before_there_was_a_fleet_counts_in_it(fleet: Fleet) -> None:
    one = fleet.node(follows=False)
    here = process(one)
    here.uses(300)
    one.pass_time(3)
    one.follow()
    here.uses(20)
    fleet.pass_time(3)
    assert (fleet.total(), here.knows()) == (320, 320)
    rows = fleet.execute("SELECT day_in, week_in, month_in FROM proxyfleet.usage_totals")
    assert rows == [(320, 320, 320)]
    one.collector.service.leave()
    here.uses(1)
    one.pass_time(2)
    assert (here.knows(), fleet.total()) == (321, 320)


def test_a_collector_that_reports_from_the_first_use_on_has_it_with_hour_and_proxy(fleet: Fleet) -> None:
    one, other = fleet.node(follows=False), fleet.node(follows=False)
    for each in (one, other):
        each.collector.on_first_use = each.follow
    here = process(one, 0)
    one.pass_time(2)
    assert not one.collector.service.is_used
    here.uses(300)
    fleet.pass_time(2)
    here.uses(20)
    fleet.pass_time(2)
    assert (fleet.total(), fleet.hours()) == (320, 320)
    assert fleet.execute("SELECT DISTINCT proxy FROM proxyfleet.usage_hours") == [("px1",)]
    service = other.collector.service
    for news in (NoteFleet(), NoteFleet(refused="no"), NoteFleet(int(time.time() / SLOT))):
        assert not service.is_used
        service.note_fleet(news)
    assert service.is_used, "another node has used something"
    other.follow()
    fleet.pass_time(READ_EACH)
    assert other.collector.activity().usage.bytes_in == 320


def test_collectors_that_die_and_reports_that_get_no_reply_count_nothing_twice(fleet: Fleet) -> None:
    one, other = fleet.node(), fleet.node()
    here, there = process(one), process(other)
    for round_ in range(6):
        here.uses(1000)
        there.uses(10)
        fleet.pass_time(1)
        if round_ % 2:
            one.restart()
            # the reply to the last report has not come
            one.collector.service._ledger.database.execute("UPDATE reporting SET acknowledged = acknowledged / 2")
    fleet.pass_time(3)
    assert (fleet.total(), fleet.hours()) == (6060, 6060)
    fleet.pass_time(READ_EACH)
    assert (here.knows(), there.knows()) == (6060, 6060)


@table(("nodes", "proxies"), [(1, 1), (3, 1), (2, 2)])
def test_a_quota_that_nodes_race_for_ends_within_a_mebibyte_for_each_proxy_on_each_node(
    tmp_path: Path, nodes: int, proxies: int
) -> None:
    with migrated_database() as dsn, ExitStack() as stack:
        fleet = Fleet(dsn, tmp_path / f"{nodes}{proxies}", stack)
        made = [fleet.node() for _ in range(nodes)]
        processes = [process(node, proxy=f"px{number}") for node in made for number in range(proxies)]
        moved, still = 0, 0
        while still < 8:
            more = uses_all_it_may(processes, MIB)
            still = 0 if more else still + 1
            moved += more
            fleet.pass_time(0.5)
        assert QUOTA <= moved <= QUOTA + nodes * proxies * MIB
        fleet.pass_time(READ_EACH + 2)
        assert fleet.total() == moved
        assert all(each.ada.exhausted for each in processes)


def leased(node: Node, process: Process) -> int:
    """What it may use after all that is due was done, in no time."""
    for _ in range(4):
        node.turn()
    node.hand.time += 0.001
    World.turn(node)
    process.ada.room()
    return process.ada._leased()


def lets_report(node: Node) -> None:
    """Time passes until it reports. The database may not respond."""
    for _ in range(12):
        node.hand.time += 0.1
        World.turn(node)
    assert node.reporter._busy


def test_an_account_has_a_lease_with_its_first_use_and_the_next_one_when_half_of_it_is_used(fleet: Fleet) -> None:
    one = fleet.node()
    here = process(one, 1 << 30)
    first = leased(one, here)
    assert first > 10 * MIB
    here.uses(first // 2 - 1)
    assert leased(one, here) == first - first // 2 + 1
    here.uses(2)
    leased(one, here)
    assert leased(one, here) >= first


def test_a_lease_that_is_wanted_while_a_report_is_on_its_way_comes_right_after_it(fleet: Fleet) -> None:
    one = fleet.node()
    here = process(one, 1 << 30)
    leased(one, here)
    one.database.responds.clear()
    here.uses(1000)
    lets_report(one)
    there = Process(one, "px2")
    there.configure(replace(ADA, id="acc_2", quota=1 << 30))
    World.turn(one)
    assert there.ada._leased() <= FIRST
    one.database.responds.set()
    assert leased(one, there) > 10 * MIB, "and no time has passed"


def test_a_report_that_fails_is_made_again_at_once(fleet: Fleet) -> None:
    one = fleet.node()
    one.database.failures = 1
    assert leased(one, process(one, 1 << 30)) > 10 * MIB, "and no time has passed"


def test_processes_know_first_of_what_they_wait_for(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    one = fleet.node()
    ids = [f"acc_{number}" for number in range(5)]
    here = Process(one)
    here.configure(*(replace(ADA, id=each, username=each, quota=1 << 30) for each in ids))
    counters = {each: here.limits.accounts[each].usage for each in ids}
    for _ in range(4):
        one.turn()
        one.hand.time += 0.001
    one.database.responds.clear()
    for each in counters.values():
        assert each.room() > MIB
        each.count(True, MIB)
    lets_report(one)
    counters["acc_3"].count(True, 6 * MIB)
    counters["acc_3"].room()
    World.turn(one)
    monkeypatch.setattr("actors.metrics.usage.reporter.TAKEN_AT_ONCE", 1)
    taken: list[list[str]] = []
    monkeypatch.setattr(one.collector.service, "totals_changed", lambda changed: taken.append([*changed]))
    one.database.responds.set()
    one.turn()
    assert taken[0] == ["acc_3"]
    assert sorted(each for some in taken[:5] for each in some) == ids


@table(("policy", "goes_on"), [("share", True), ("unlimited", True), ("lease", False)])
def test_accounts_go_on_as_soon_as_the_database_is_known_to_be_away(tmp_path: Path, policy: str, goes_on: bool) -> None:
    with migrated_database() as dsn, ExitStack() as stack:
        fleet = Fleet(dsn, tmp_path / policy, stack)
        one = fleet.node(policy)
        here = process(one, 1 << 30)
        first = leased(one, here)
        one.database.is_cut = one.database.is_known_away = True
        here.uses(first)
        fleet.pass_time(1.5)
        assert (leased(one, here) > 500 * MIB) == goes_on
        assert not one.reporter.is_cut_off
        one.database.is_cut = one.database.is_known_away = False
        fleet.pass_time(1.5)
        assert 0 < leased(one, here) <= 500 * MIB


def test_a_lease_that_is_not_used_is_given_back(fleet: Fleet) -> None:
    one = fleet.node()
    here = process(one)
    here.uses(1000)
    fleet.pass_time(2)
    leases = "SELECT bytes FROM proxyfleet.leases"
    assert fleet.execute(leases) == [(256 * 1024,)]
    fleet.pass_time(GIVEN_BACK_AFTER + 2)
    assert fleet.execute(leases) == [(0,)]
    assert here.ada.room() > 0


def cut_off(fleet: Fleet, policy: str, cut: int = 2) -> tuple[list[Process], int]:
    """Processes of two nodes that have used something, and are cut off; what is used."""
    nodes = [fleet.node(policy) for _ in range(2)]
    processes = [process(node) for node in nodes]
    for each in processes:
        each.uses(MIB)
    fleet.pass_time(READ_EACH + 2)
    for node in nodes[:cut]:
        node.database.is_cut = True
    fleet.pass_time(READ_EACH + CUT_OFF_AFTER + 2)
    return processes, 2 * MIB


@table(
    ("policy", "least", "most"),
    [("share", QUOTA - 2 * MIB, QUOTA + 2 * MIB), ("lease", 0, 4 * MIB), ("unlimited", QUOTA, QUOTA + 2 * MIB)],
)
def test_without_the_database_nodes_go_on_as_far_as_the_policy_says(
    tmp_path: Path, policy: str, least: int, most: int
) -> None:
    with migrated_database() as dsn, ExitStack() as stack:
        fleet = Fleet(dsn, tmp_path / policy, stack)
        processes, used = cut_off(fleet, policy)
        for _ in range(60):
            used += uses_all_it_may(processes[: 1 if policy == "unlimited" else 2], MIB)
            fleet.pass_time(0.5)
        assert least <= used <= most
        waits = policy != "unlimited"
        assert [each.ada.is_unavailable for each in processes] == [waits, waits]
        fleet.cut(False)
        fleet.pass_time(5)
        assert [each.ada.is_unavailable for each in processes] == [False, False]
        assert fleet.total() == fleet.hours() == used
        assert all(node.unreported().bytes == 0 for node in fleet.nodes)


def test_another_policy_holds_at_once_for_a_node_that_is_cut_off(fleet: Fleet) -> None:
    (here, _), _ = cut_off(fleet, "lease")
    service, leased = fleet.nodes[0].collector.service, []
    for policy in ("lease", "share", "unlimited"):
        service.set_quota_offline(policy)
        fleet.nodes[0].hand.time += 0.02
        fleet.nodes[0].turn()
        here.ada.room()
        leased.append(here.ada._leased())
    assert leased[0] + MIB < leased[1] < QUOTA < leased[2]


def test_a_new_period_in_an_outage_has_the_quota_divided_by_the_nodes(fleet: Fleet) -> None:
    processes, _ = cut_off(fleet, "share")
    for node in fleet.nodes:
        node.collector.service._ledger.wall = lambda: time.time() + 40 * 86_400
        node.collector.service._ledger._starts_of = -1.0
    for each in processes:
        each.configure(replace(ADA, quota=QUOTA, period="month"))
        each.ada.roll(time.time() + 40 * 86_400)
    fleet.pass_time(3)
    used = 0
    for _ in range(30):
        used += uses_all_it_may(processes, MIB)
        fleet.pass_time(0.5)
    assert QUOTA - MIB <= used <= QUOTA + 2 * MIB


@table("hours", [30, -30])
def test_periods_are_those_of_the_database_whatever_the_clock_here_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    """As a clock that is two minutes off, around midnight."""
    real = time.time
    with migrated_database() as dsn, ExitStack() as stack, monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: real() + 3600 * hours)
        fleet = Fleet(dsn, tmp_path / str(hours), stack)
        nodes = [fleet.node() for _ in range(2)]
        fleet.pass_time(2)
        processes = [process(node, period="day") for node in nodes]
        moved, still = 0, 0
        while still < 8:
            more = uses_all_it_may(processes, MIB)
            still = 0 if more else still + 1
            moved += more
            fleet.pass_time(0.5)
        assert QUOTA <= moved <= QUOTA + 2 * MIB, "all of it, and once"
        patch.setattr(time, "time", real)
        fleet.pass_time(READ_EACH + 2)
        assert [each.limits.accounts["ada"].refusal("192.0.2.1", each.ada.wall()) is None for each in processes] == [
            False,
            False,
        ]
        assert fleet.execute("SELECT day_in FROM proxyfleet.usage_totals") == [(moved,)]


@table("hours", [30, -30])
def test_a_collector_that_begins_with_a_wrong_clock_forgets_nothing_of_the_period(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    real = time.time
    with migrated_database() as dsn, ExitStack() as stack, monkeypatch.context() as patch:
        fleet = Fleet(dsn, tmp_path / str(hours), stack)
        patch.setattr(time, "time", lambda: real() + 3600 * hours)
        one = fleet.node()
        here = process(one, period="day")
        here.uses(1000)
        fleet.pass_time(2)
        one.reporter.close()
        one.collector.kill()
        one.collector.restart()
        one.database = CutDatabase(fleet.dsn)
        fleet.cut()
        one.collector.service.follow(one.database, one.name)
        here.uses(10)
        fleet.pass_time(3)
        assert one.collector.activity(period="day").usage.bytes_in == here.knows() == 1010
        one.collector.service.leave()
        one.pass_time(2)
        assert here.ada.wall() == pytest.approx(time.time(), abs=60), "alone it goes by its own clock"


def test_a_restart_in_an_outage_goes_on_where_it_was(fleet: Fleet) -> None:
    (here, _), _ = cut_off(fleet, "lease")
    before = here.ada._leased()
    one = fleet.nodes[0]
    one.restart()
    one.database.is_cut = True
    fleet.pass_time(CUT_OFF_AFTER + 2)
    assert here.ada._leased() == before


@pytest.mark.parametrize("where", ["before", "behind"])
def test_a_link_that_is_cut_before_or_behind_each_statement_costs_no_byte(fleet: Fleet, where: Where) -> None:
    one, other = fleet.node(follows=False), fleet.node()
    with CuttingRelay(int(conninfo_to_dict(fleet.dsn)["port"])) as relay:
        one.dsn = make_conninfo(fleet.dsn, port=relay.port, sslmode="disable", gssencmode="disable")
        one.follow()
        here, there = process(one), process(other)
        used = 0
        for after in (1, 1, 2, 1, 3, 2):
            relay.cut(after, where)
            for count, each in ((1000, here), (10, there)):
                each.uses(count)
                used += count
            fleet.pass_time(2)
        fleet.pass_time(READ_EACH + 3)
        assert fleet.total() == fleet.hours() == used
        assert [here.knows(), there.knows()] == [used, used]


def test_a_collector_that_begins_lets_no_process_go_further_than_before(fleet: Fleet) -> None:
    one = fleet.node()
    here = process(one)
    here.uses(1000)
    fleet.pass_time(2)
    one.restart()
    one.collector.activity()
    assert here.ada.room() <= 256 * 1024
    assert here.ada._leased() <= 256 * 1024


def test_totals_of_a_database_from_before_a_reset_are_not_taken(fleet: Fleet) -> None:
    one, other = fleet.node(), fleet.node()
    here, there = process(one), process(other)
    here.uses(1000)
    fleet.pass_time(READ_EACH + 2)
    assert there.knows() == 1000
    reset(one)
    fleet.pass_time(READ_EACH + 2)
    fleet.execute(
        "UPDATE proxyfleet.usage_totals SET generation = 0, total_in = 1000, day_in = 1000,"
        " slot = floor(extract(epoch FROM clock_timestamp()) / 10)"
    )
    fleet.pass_time(READ_EACH + 2)
    assert [here.knows(), there.knows()] == [0, 0]
    here.uses(5)
    fleet.pass_time(READ_EACH + 2)
    assert [here.knows(), there.knows(), fleet.total()] == [5, 5, 5]


def reset(node: Node) -> list[Any]:
    replies: list[Any] = []
    node.collector.service.receive(ResetUsage(("acc_1",)), replies.append)
    for _ in range(3):
        node.turn()
    return replies


def test_an_edge_forgets_an_account_that_is_gone_without_a_reset_for_all_to_which_it_has_no_right(fleet: Fleet) -> None:
    edge, full = fleet.node(follows=False), fleet.node()
    edge.follow(is_edge=True)
    here, there = process(edge), process(full)
    here.uses(5)
    there.uses(6)
    fleet.pass_time(READ_EACH + 2)
    fleet.execute("ALTER FUNCTION proxyfleet.reset_usage RENAME TO none_of_an_edge")
    replies: list[Any] = []
    edge.collector.service.receive(DropAccountUsage(("acc_1",)), replies.append)
    for _ in range(3):
        edge.turn()
    assert replies == [Done()]
    fleet.execute("ALTER FUNCTION proxyfleet.none_of_an_edge RENAME TO reset_usage")
    assert fleet.total() == 11


def test_what_the_database_lacks_is_known_with_the_moment_since_when(fleet: Fleet) -> None:
    one = fleet.node(follows=False)
    assert one.unreported() == Unreported(0, 0.0)
    one.follow()
    here = process(one)
    here.uses(300)
    fleet.pass_time(2)
    assert one.unreported().bytes == 0
    fleet.cut()
    before = time.time()
    for count in (20, 30):
        here.uses(count)
        fleet.pass_time(2)
    found = one.unreported()
    assert found.bytes == 50
    assert before - 1 <= found.since <= time.time()
    fleet.cut(False)
    fleet.pass_time(2)
    assert one.unreported().bytes == 0


def test_a_reset_holds_on_all_nodes_and_is_refused_in_an_outage(fleet: Fleet) -> None:
    one, other = fleet.node(), fleet.node()
    here, there = process(one), process(other)
    for each in (here, there):
        each.uses(1000)
    fleet.pass_time(READ_EACH + 2)
    here.uses(7)
    assert reset(one) == [Done()]
    assert here.knows() == 0
    there.uses(30)
    fleet.pass_time(2)
    assert there.knows() <= 30, "what was used before it knew of the reset is of the former generation"
    there.uses(5)
    fleet.pass_time(READ_EACH + 2)
    assert here.knows() == there.knows() == fleet.total()
    assert fleet.hours() == 2042
    fleet.cut()
    fleet.pass_time(2)
    [failed] = reset(one)
    assert isinstance(failed, Failed)
    assert failed.field == DATABASE
    assert here.knows() == fleet.total()


def test_an_empty_or_older_database_gets_again_what_it_lacks(fleet: Fleet) -> None:
    one, other = fleet.node(), fleet.node()
    here, there = process(one), process(other)
    here.uses(1000)
    there.uses(10)
    fleet.pass_time(2)
    fleet.execute(
        "DELETE FROM proxyfleet.usage_hours; DELETE FROM proxyfleet.usage_totals; DELETE FROM proxyfleet.usage_ledgers"
    )
    for each in (here, there):
        each.uses(1)
    fleet.pass_time(READ_EACH + 4)
    assert fleet.total() == fleet.hours() == here.knows() == there.knows() == 1012


def test_a_file_that_was_restored_is_another_ledger_and_adds_only_what_is_new(fleet: Fleet) -> None:
    one = fleet.node()
    here = process(one)
    here.uses(1000)
    fleet.pass_time(2)
    file = one.folder / "metrics" / "usage.sqlite"
    with closing(one.collector.service._ledger.database) as ledger:
        ledger.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        shutil.copy(file, one.folder / "backup")
    one.collector.service._reporter, reporter = None, one.collector.service._reporter
    assert reporter is not None
    reporter._closed = True
    one.collector.service._ledger.close()
    one.collector.restart()
    one.follow()
    here.uses(200)
    fleet.pass_time(2)
    assert fleet.total() == 1200
    one.collector.service.leave()
    one.collector.service._ledger.close()
    for each in file.parent.glob("usage.sqlite-*"):
        each.unlink()
    shutil.copy(one.folder / "backup", file)
    here.die()
    one.collector.restart()
    one.follow()
    new = process(one)
    new.uses(30)
    fleet.pass_time(READ_EACH + 3)
    ledgers = fleet.execute("SELECT count(*) FROM proxyfleet.usage_ledgers")
    assert ledgers == [(2,)]
    assert fleet.total() >= 1230, "what processes had counted since the backup may be booked again"
    assert fleet.total() == fleet.hours() == new.knows()


def test_one_node_publishes_the_event_of_a_quota_for_all(fleet: Fleet) -> None:
    nodes = [fleet.node(), fleet.node()]
    processes = [process(node, 1000) for node in nodes]
    fleet.pass_time(3)
    processes[0].uses(900)
    fleet.pass_time(READ_EACH + 2)
    processes[1].uses(200)
    fleet.pass_time(READ_EACH + 2)
    kinds = [event.type for node in nodes for event in node.collector.events]
    assert sorted(kinds) == ["account.quota_reached", "account.quota_warning"]


def test_a_credential_has_its_quota_over_all_nodes_and_no_hours_of_a_proxy(fleet: Fleet) -> None:
    nodes = [fleet.node(), fleet.node()]
    counters = []
    for node in nodes:
        counter = Process(node).limits.usage.acquire("crd_1")
        counter.configure("ada", QUOTA, "total", time.time())
        counter.count(True, 100)
        counters.append(counter)
    fleet.pass_time(READ_EACH + 3)
    assert fleet.total("crd_1") == 200
    assert [each.state().usage.bytes_in for each in counters] == [200, 200]
    assert fleet.execute("SELECT DISTINCT proxy FROM proxyfleet.usage_hours") == [("",)]


def test_accounts_without_a_quota_have_no_lease_and_are_counted(fleet: Fleet) -> None:
    one = fleet.node()
    here = process(one, 0)
    here.uses(300)
    fleet.pass_time(3)
    assert fleet.total() == 300
    assert fleet.execute("SELECT * FROM proxyfleet.leases") == []


def test_a_node_that_starts_has_no_lease_of_before_until_the_database_has_responded_or_is_missing(fleet: Fleet) -> None:
    one = fleet.node()
    here = process(one, 10_000 * MIB)
    here.uses(MIB)
    fleet.pass_time(2)
    here.ada.refresh()
    leased = here.ada._shared.may_use
    assert leased > MIB + FIRST
    one.reporter.close()
    one.collector.kill()
    one.collector.restart()
    one.database = CutDatabase(fleet.dsn)
    fleet.cut()
    one.collector.service.follow(one.database, one.name)
    fleet.pass_time(1)
    assert here.ada.room() <= FIRST
    fleet.pass_time(CUT_OFF_AFTER + 2)
    here.ada.refresh()
    assert here.ada._shared.may_use >= leased


def test_a_node_that_leaves_its_fleet_says_nothing_of_it_and_one_that_is_cut_off_warns_once(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    here = process(fleet.node(), 0)
    fleet.pass_time(2)
    fleet.cut()
    here.uses(10)
    fleet.pass_time(CUT_OFF_AFTER - 3)
    assert caplog.records == []
    fleet.pass_time(CUT_OFF_AFTER)
    assert {(each.levelname, each.getMessage()) for each in caplog.records} == {
        ("WARNING", "cannot report the usage of accounts: no response in time"),
        ("WARNING", "cannot count limits of accounts over nodes: no response in time"),
    }
    assert len(caplog.records) == 2
