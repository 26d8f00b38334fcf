"""What one node does for all, and what is said once of the fleet: by several nodes at once, in an outage, and after."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from typing import Any

import pytest

from actors.cluster.identity import NodeIdentity
from api.cluster import fleet_chores
from api.cluster.fleet_chores import FleetPruning, NodeEvents
from api.cluster.fleet_node import FleetNode
from api.cluster.following.heartbeat import Beat, Heartbeat
from api.engine.commit import Engine
from api.objects.accounts.credential_service import AccountCredentials, AccountEnds, ExpiredAccounts
from api.store import LedgerError, StoreError, Write
from config.files.paths import open_data_dir
from config.model.subscriptions import checked
from config.settings.groups import History
from tests.kit.postgresql import needs_postgresql
from tests.kit.postgresql_server import Server
from tests.unit.api.cluster.nodes import Fleet, beat, fleet
from tests.unit.api.store.account_documents import account, credential

pytestmark = needs_postgresql


ENDED = time.time() - 60


class Machine:
    """A node with what it does beside requests, each when a test says so; and the events that it has published."""

    def __init__(self, ours: Fleet, name: str, stack: ExitStack) -> None:
        self.node = FleetNode(NodeIdentity(ours.id, f"nod_{name}", name, "full", ours.dsn))
        stack.callback(self.node.close)
        self.engine = stack.enter_context(
            closing(Engine(open_data_dir(ours.folder / name), ours.seal, self.node.ledger))
        )
        self.events: list[tuple[str, str]] = []
        self.ends = AccountEnds(self.engine.accounts, self, time.time, lambda: self.node)
        self.credentials = AccountCredentials(self.engine, self.note)
        self.pruning = FleetPruning(
            self.engine, self.node.database, self.node.duties, lambda: History(max_revisions=10)
        )
        self.says = NodeEvents(self.node, self.node.node_id, self.engine, self.note)

    def note(self, event: str, data: dict[str, Any]) -> None:
        checked(event, data)
        self.events.append((event, data.get("name") or data["username"]))

    def publish(self, _topic: str, event: Any) -> None:
        self.note(event.type, event.data)

    def ask(self, *_request: Any) -> Any:
        raise NotImplementedError

    def ask_all(self, *_request: Any) -> Any:
        raise NotImplementedError

    def take_duty(self, name: str) -> bool:
        self.node.duties.has(name)
        self.beat()
        return self.node.duties.has(name)

    def beat(self) -> None:
        self.says.on_heartbeat(beat(self.node.duties, self.node.database, self.node.node_id))


@pytest.fixture
def ours() -> Iterator[Fleet]:
    with fleet() as found:
        yield found


@pytest.fixture
def two(ours: Fleet) -> Iterator[list[Machine]]:
    with ExitStack() as stack:
        yield [Machine(ours, name, stack) for name in ("a", "b")]


def at_once(calls: Sequence[Callable[[], Any]]) -> None:
    """All of them, each in a thread. What one raises fails the test."""
    failed: list[BaseException] = []
    start = threading.Barrier(len(calls))

    def run(call: Callable[[], Any]) -> None:
        start.wait()
        try:
            call()
        except BaseException as error:  # noqa: BLE001 - for the test
            failed.append(error)

    threads = [threading.Thread(target=run, args=(each,)) for each in calls]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert failed == []


def responded(ours: Fleet, node: str, age: float = 0.0) -> None:
    """A node has responded so many seconds ago."""
    found = Heartbeat(ours.database, node, node, lambda: (0, None))
    found.fields.append(lambda: {"duties": []})
    found.beat_now()
    ours.execute(f"UPDATE proxyfleet.heartbeats SET at = at - interval '{age} s' WHERE node = '{node}'")


def all_events(machines: Sequence[Machine]) -> list[tuple[str, str]]:
    return sorted(event for each in machines for event in each.events)


def test_an_end_of_an_account_is_announced_by_one_node(two: list[Machine]) -> None:
    one, other = two
    names = [f"user-{number}" for number in range(30)]
    one.engine.commit(
        [Write("accounts", f"acc_{name}", account(f"acc_{name}", name, expires_at=ENDED)) for name in names]
    )
    other.engine.catch_up()
    at_once([one.ends.announce, other.ends.announce])
    at_once([one.ends.settle, other.ends.settle])
    assert all_events(two) == sorted(("account.expired", name) for name in names)
    for each in two:
        each.ends.announce()
        each.ends.settle()
        assert each.engine.accounts.due_ends(time.time(), 100) == [], "another node's are marked, too"
    assert len(all_events(two)) == len(names)


def test_a_node_that_has_joined_announces_nothing_that_ended_before(two: list[Machine]) -> None:
    one, other = two
    month = 31 * 86_400
    ends = {"old": ENDED - month, "past": ENDED, "new": ENDED + 30}
    one.engine.commit(
        [
            Write("nodes", "nod_a", {"id": "nod_a", "name": "a", "created_at": ENDED - 2 * month}),
            Write("nodes", "nod_b", {"id": "nod_b", "name": "b", "created_at": ENDED + 10}),
            *(
                Write("accounts", f"acc_{name}", account(f"acc_{name}", name, expires_at=at))
                for name, at in ends.items()
            ),
        ]
    )
    other.engine.catch_up()
    for each in (other, one):
        each.node.opened(each.engine)
        each.ends.announce()
        each.ends.settle()
    assert other.events == [("account.expired", "new")]
    assert one.events == [("account.expired", "past")]
    assert [each.engine.accounts.due_ends(time.time(), 100) for each in two] == [[], []]


def test_an_end_that_its_node_was_about_to_announce_is_announced_by_another(ours: Fleet, two: list[Machine]) -> None:
    one, other = two
    one.engine.commit([Write("accounts", "acc_1", account("acc_1", "ada", expires_at=ENDED))])
    other.engine.catch_up()
    one.ends.announce()  # and is killed before the event has left it
    assert other.ends.announce() == 0
    ours.execute("UPDATE proxyfleet.claims SET until = clock_timestamp() - interval '1 ms'")
    assert other.ends.announce() == 1


def test_expired_credentials_are_removed_also_by_two_at_once(two: list[Machine]) -> None:
    one, other = two
    bodies = [{**credential(f"crd_{number}", "acc_1", f"s{number}"), "expires_at": 2.0} for number in range(20)]
    one.engine.commit([Write("accounts", "acc_1", account("acc_1", "ada"))])
    one.engine.commit_unrecorded([Write("credentials", each["id"], each) for each in bodies])
    other.engine.catch_up()
    at_once([one.credentials.remove_expired, other.credentials.remove_expired])
    for each in two:
        each.engine.catch_up()
        assert each.engine.accounts.credential_count("acc_1") == 0
    assert one.engine.file.last_number == other.engine.file.last_number <= 4


def test_periodic_work_of_one_node_is_done_by_the_one_with_the_duty(two: list[Machine]) -> None:
    one, other = two
    assert one.take_duty("fleet-pruning")
    assert not other.take_duty("fleet-pruning")
    assert [each.pruning.is_due() for each in two] == [True, False]


def test_it_is_pruned_when_there_are_new_commits_or_other_settings_or_from_time_to_time(
    two: list[Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _ = two
    begun: list[bool] = []
    session = one.node.database.session
    monkeypatch.setattr(one.node.database, "session", lambda: begun.append(True) or session())

    def is_pruned() -> bool:
        begun.clear()
        one.pruning.act()
        return bool(begun)

    assert [is_pruned(), is_pruned()] == [True, False]
    with monkeypatch.context() as patch:
        patch.setattr(fleet_chores, "AT_REST", 0.0)
        assert is_pruned()
    one.engine.commit([Write("lists", "list_1", {"id": "list_1", "name": "n"})])
    assert [is_pruned(), is_pruned()] == [True, False]
    one.pruning._settings = lambda: History(max_revisions=9)
    assert [is_pruned(), is_pruned()] == [True, False]


def test_old_commits_are_forgotten_with_their_deletions(ours: Fleet, two: list[Machine]) -> None:
    one, other = two
    one.engine.commit([Write("pools", f"pool_{number}", {"id": f"pool_{number}", "name": "n"}) for number in (1, 2)])
    one.engine.commit([Write("pools", "pool_1", None)])
    one.engine.commit([Write("lists", "list_1", {"id": "list_1", "name": "n"})])
    ours.execute("UPDATE proxyfleet.commits SET at = at - interval '31 days' WHERE number <= 2")
    ours.execute("INSERT INTO proxyfleet.idempotency VALUES ('m', 'a', clock_timestamp() - interval '1 s', NULL)")
    ours.execute("INSERT INTO proxyfleet.claims VALUES ('k', 'a', '2020-01-01', '2020-01-01', true)")
    one.node.duties.claim(["fresh"])
    at_once([one.pruning.act, other.pruning.act])
    kept = "SELECT (SELECT pruned_to FROM proxyfleet.fleet), (SELECT array_agg(number ORDER BY number)"
    rest = "FROM proxyfleet.commits), (SELECT array_agg(id ORDER BY id) FROM proxyfleet.documents)"
    assert ours.execute(f"{kept} {rest}") == [(2, [2, 3], ["list_1", "pool_2"])]
    assert ours.execute("SELECT key FROM proxyfleet.claims") == [("fresh",)]
    assert ours.execute("SELECT count(*) FROM proxyfleet.idempotency") == [(0,)]
    one.engine.catch_up()
    assert one.engine.get("lists", "list_1") is not None


def test_old_revisions_are_deleted_from_the_database_and_never_the_last(ours: Fleet, two: list[Machine]) -> None:
    one, _ = two
    for number in range(12):
        one.engine.commit([Write("pools", f"pool_{number}", {"id": f"pool_{number}", "name": "n"})])

    def numbers() -> list[int]:
        return [number for (number,) in ours.execute("SELECT number FROM proxyfleet.revisions ORDER BY number")]

    one.pruning.act()
    assert numbers() == [*range(3, 13)]
    one.engine.commit([Write("pools", "pool_0", None)])
    ours.execute("UPDATE proxyfleet.revisions SET timestamp = '2020-01-01T00:00:00.000Z'")
    one.pruning.act()
    assert numbers() == [13]
    assert ours.execute("SELECT DISTINCT number FROM proxyfleet.revision_changes") == [(13,)]


def test_a_run_without_the_database_fails_as_a_change_of_the_fleet_does(two: list[Machine]) -> None:
    one, _ = two
    one.node.database.close()
    with pytest.raises(LedgerError):
        one.pruning.act()


def test_a_node_that_is_down_is_said_once_and_once_that_it_is_up(ours: Fleet, two: list[Machine]) -> None:
    one, other = two
    one.engine.commit([Write("nodes", "nod_c", {"id": "nod_c", "name": "fra2"})])
    other.engine.catch_up()
    one.take_duty("node-events")

    def act() -> list[tuple[str, str]]:
        """The events of a run of both; as if both had the duty."""
        one.beat()
        other.says.on_heartbeat(Beat(0, True, 0.0, {"nodes": one.says._found}))
        at_once([each.says.act for each in two])
        found = all_events(two)
        for each in two:
            each.events.clear()
        return found

    responded(ours, "nod_a")
    responded(ours, "nod_c", age=29)
    assert act() == []
    responded(ours, "nod_c", age=31)
    assert act() == [("node.down", "fra2")]
    assert act() == []
    responded(ours, "nod_c")
    assert act() == [("node.up", "fra2")]
    assert act() == []
    responded(ours, "nod_c", age=40)
    assert act() == [("node.down", "fra2")]
    assert [each.node.duties.has("node-events") for each in two] == [True, False]


def test_a_node_that_died_before_the_event_is_no_reason_not_to_say_it(ours: Fleet, two: list[Machine]) -> None:
    one, other = two
    responded(ours, "nod_c", age=31)
    one.node.duties.claim([key for _, _, key, _ in ours.execute("SELECT * FROM proxyfleet.node_changes(30)")])
    other.take_duty("node-events")
    other.says.act()
    assert other.events == []
    other.beat()
    ours.execute("UPDATE proxyfleet.claims SET until = clock_timestamp() - interval '1 ms'")
    other.says.act()
    assert other.events == [("node.down", "nod_c")]


def test_a_node_says_by_itself_that_it_is_cut_off(two: list[Machine], monkeypatch: pytest.MonkeyPatch) -> None:
    one, _ = two
    for seconds, said in ((29.0, 0), (30.0, 1), (300.0, 1), (None, 1), (31.0, 2)):
        monkeypatch.setattr(one.node, "cut_off_for", lambda seconds=seconds: seconds)
        one.says.act()
        assert one.events == [("node.cut_off", "nod_a")] * said


def test_what_waits_in_an_outage_is_done_after_it() -> None:
    with Server() as server, server.database() as dsn, fleet(dsn) as ours, ExitStack() as stack:
        one = Machine(ours, "a", stack)
        one.engine.commit([Write("accounts", "acc_1", account("acc_1", "ada", expires_at=ENDED))])
        one.take_duty("node-events")
        server.stop()
        work = ExpiredAccounts(one.ends, lambda: one.node)
        with pytest.raises(StoreError):
            work.act()
        assert one.events == []
        server.start()
        work.act()
        assert one.events == [("account.expired", "ada")]
