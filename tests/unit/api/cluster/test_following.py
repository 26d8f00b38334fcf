"""A node follows the ledger: soon by its doorbell, without it by polling, whatever the database does."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from types import SimpleNamespace
from typing import Any

import pytest

from actors.cluster import database as connections
from actors.cluster.database import DatabaseSession
from api.cluster import fleet_node
from api.cluster.fleet_node import FleetNode, NodeHost
from api.cluster.following import follower as following
from api.cluster.following import heartbeat as beating
from api.cluster.following.heartbeat import SecondInstallation
from api.cluster.following.rereading import AwaitsFullNode
from api.cluster.migration_runner import migrations
from api.cluster.shared_ledger import LedgerUnavailable
from api.engine.commit import Engine
from api.engine.effects import CommitEffect
from api.history.document_changes import DocumentChange
from api.store import StoreError, StoreWriteError
from config.files.paths import open_data_dir
from config.settings.groups import History
from tests.kit.postgresql import needs_pgbouncer, needs_postgresql, pooler, shared_server
from tests.kit.postgresql_server import Server
from tests.kit.tables import table
from tests.kit.wait import wait_until
from tests.unit.api.cluster.following import Following, nodes
from tests.unit.api.cluster.nodes import Fleet, fleet, proxy

pytestmark = needs_postgresql
SOON = 4.0
"""Seconds that a machine under load may take for what takes none."""


@pytest.fixture
def ours() -> Iterator[Fleet]:
    with fleet() as found:
        yield found


def bodies(node: Following) -> dict[str, Any]:
    return {each.id: each.body for each in node.engine.every("proxies")}


def rings(node: Following) -> None:
    wait_until(lambda: node.doorbell == "heard", "the doorbell rings", 10)


def test_what_one_node_commits_the_others_serve_when_their_effects_are_made(ours: Fleet) -> None:
    with nodes(ours, "a", "b", "c") as (one, *others):
        for each in others:
            rings(each)
        began = time.monotonic()
        number = one.engine.commit(proxy(0, 1))
        assert all(each.node.wait_for(number, 5) for each in (one, *others))
        assert time.monotonic() - began < following.POLL
        for each in others:
            assert [[change.id for change in made] for made in each.made] == [["proxies_0"]]
            assert each.engine.stamped() == one.engine.stamped()
            assert not each.node.wait_for(number + 1, 0.01)
            assert each.node.cut_off_for() is None


def test_a_commit_is_not_served_before_its_effects_are_made(ours: Fleet) -> None:
    with nodes(ours, "a", "b") as (one, other):
        may_go_on, begun = threading.Event(), threading.Event()

        def make(_changes: Sequence[DocumentChange]) -> None:
            begun.set()
            assert may_go_on.wait(10)

        other.engine.effects.follow(CommitEffect(["proxies"], make))
        number = one.engine.commit(proxy())
        assert begun.wait(5)
        assert other.proxies() == 1
        assert not other.node.wait_for(number, 0.05)
        may_go_on.set()
        assert other.node.wait_for(number, 5)


def test_what_comes_while_effects_are_made_is_taken_in_one_step(ours: Fleet) -> None:
    with nodes(ours, "a", "b") as (one, other):
        may_go_on, begun, made = threading.Event(), threading.Event(), []

        def make(changes: Sequence[DocumentChange]) -> None:
            made.append(len(changes))
            begun.set()
            assert may_go_on.wait(10)

        other.engine.effects.follow(CommitEffect(["proxies"], make))
        one.engine.commit(proxy(0))
        assert begun.wait(5)
        for value in range(20):
            number = one.engine.commit(proxy(value % 3, value))
        may_go_on.set()
        assert other.node.wait_for(number, 5)
        assert made[0] == 1
        assert len(made) <= 3
        assert bodies(other) == bodies(one)


def failed(node: Following) -> list[tuple[Any, ...]]:
    found = node.node.heartbeat.problems()["failed"]
    return [tuple(each[name] for name in ("collection", "id", "name", "revision", "error")) for each in found]


def test_an_effect_that_fails_stops_no_following_and_is_reported_until_it_is_made(ours: Fleet) -> None:
    with nodes(ours, "a", "b") as (one, other):
        fails = [True]

        def make(_changes: Sequence[DocumentChange]) -> None:
            if fails[0]:
                raise RuntimeError("no such file")

        other.follow_by(make)
        for value in range(2):
            number = one.engine.commit(proxy(0, value))
            assert other.node.wait_for(number, 5)
            assert failed(other) == [("proxies", "proxies_0", f"name-{value}", number, "no such file")]
        assert [kind for kind, _ in other.events] == ["node.failed"]
        assert (other.events[0][1]["object_id"], other.events[0][1]["error"]) == ("proxies_0", "no such file")
        fails[0] = False
        assert other.node.wait_for(one.engine.commit(proxy(0, 2)), 5)
        assert failed(other) == []


def test_a_row_that_no_node_wrote_is_reported_and_the_rest_is_followed(ours: Fleet) -> None:
    with nodes(ours, "a", "b") as (one, other):
        assert other.node.wait_for(one.engine.commit([*proxy(0, 0), *proxy(1, 0)]), 5)
        ours.execute(
            "UPDATE proxyfleet.documents SET body = '[]', revision = 2 WHERE id = 'proxies_0';"
            "INSERT INTO proxyfleet.commits VALUES (2, gen_random_uuid(), 'x', now(), 1, 0);"
            "UPDATE proxyfleet.fleet SET head = 2; NOTIFY proxyfleet, '2'"
        )
        assert other.node.wait_for(2, 5)
        text = "proxies/proxies_0 is no document in the fleet's database"
        assert failed(other) == [("proxies", "proxies_0", "name-0", 2, text)]
        number = one.engine.commit(proxy(1, 1))
        assert other.node.wait_for(number, 5)
        assert {name: body["name"] for name, body in bodies(other).items()} == {
            "proxies_0": "name-0", "proxies_1": "name-1",
        }  # fmt: skip
        assert other.node.wait_for(one.engine.commit(proxy(0, 2)), 5)
        assert failed(other) == []
        assert bodies(other) == bodies(one)


def test_a_doorbell_that_ended_is_connected_anew_and_what_came_meanwhile_is_there(ours: Fleet) -> None:
    with nodes(ours, "a", "b") as (one, other):
        rings(other)
        ended = ours.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%proxyfleet_b%'"
        )
        assert ended == [(True,)]
        assert other.node.wait_for(one.engine.commit(proxy()), 5)
        rings(other)


def test_a_doorbell_whose_backend_hangs_is_reported_and_polled_and_connected_anew(
    ours: Fleet, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The backend is stopped: it acknowledges nothing and ends nothing."""
    monkeypatch.setattr(beating, "PERIOD", 0.2)
    monkeypatch.setattr(following, "SILENCE", 0.5)
    monkeypatch.setattr(following, "POLL", 0.2)
    with nodes(ours, "a", "b") as (one, other):
        rings(other)
        ((pid,),) = ours.execute("SELECT pid FROM pg_stat_activity WHERE query LIKE 'LISTEN%proxyfleet_b%'")
        assert isinstance(pid, int)
        os.kill(pid, signal.SIGSTOP)
        try:
            wait_until(lambda: "it is asked each second; silent for" in caplog.text, "it is noticed", 5)
            assert other.node.wait_for(one.engine.commit(proxy()), 5)
            rings(other)  # by another backend
        finally:
            os.kill(pid, signal.SIGCONT)


@needs_pgbouncer
def test_behind_a_pooler_where_listening_never_works_it_polls_unless_it_listens_directly(
    ours: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "SILENCE", 0.5)
    server = shared_server()
    with pooler(server, "transaction") as port, ExitStack() as stack:
        dsn = ours.dsn.replace(f"port={server.port}", f"port={port}")
        one, other = (
            stack.enter_context(closing(Following(ours, name, dsn, listen)))
            for name, listen in (("a", ours.dsn), ("b", ""))
        )
        rings(one)
        assert other.node.wait_for(one.engine.commit(proxy()), 5)
        wait_until(lambda: other.node.cut_off_for() is None, "it is connected")
        assert other.doorbell == "polling"
        assert one.node.wait_for(other.engine.commit(proxy(1)), following.POLL)


@table(
    ("error", "level"),
    [(AwaitsFullNode("the database has lost the commit 7"), "INFO"), (StoreWriteError("the disk is full"), "ERROR")],
)
def test_an_edge_node_that_waits_for_a_full_one_has_no_fault(
    caplog: pytest.LogCaptureFixture, error: StoreError, level: str
) -> None:
    def fail(*_: Any) -> None:
        raise error

    caplog.set_level("INFO")
    caplog.clear()
    engine: Any = SimpleNamespace(catch_up=fail, settled_number=lambda: 0)
    found: Any = SimpleNamespace(is_behind=False)
    follower = following.Follower(engine, None, "own", lambda: None, lambda: None, found)  # type: ignore[arg-type]
    for _ in range(2):
        follower._catch_up(None)
    lines = [(each.levelname, each.getMessage()) for each in caplog.records]
    assert lines == [(level, f"this node can't follow the ledger: {error}")]


def test_a_lost_notification_costs_no_more_than_a_heartbeat(ours: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beating, "PERIOD", 0.3)
    ours.execute("ALTER FUNCTION proxyfleet.commit_change RENAME TO commit_and_announce")
    ours.execute(
        "CREATE FUNCTION proxyfleet.commit_change(bigint, uuid, uuid, text, json, int, bigint, bigint, boolean)"
        " RETURNS void LANGUAGE sql AS"
        " 'SELECT proxyfleet.commit_and_announce($1, $2, $3, $4, $5, $6, $7, $8, false)'"
    )
    with nodes(ours, "a", "b") as (one, other):
        rings(other)
        assert other.node.wait_for(one.engine.commit(proxy()), SOON)
        assert other.doorbell == "heard"


def test_an_idle_node_makes_one_statement_in_a_heartbeat_and_a_writer_reads_nothing_back(
    ours: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beating, "PERIOD", 60.0)
    with nodes(ours, "a") as (one,):
        rings(one)
        number = one.engine.commit(proxy())
        assert one.node.wait_for(number, 5)
        loose = one.node.loose
        wait_until(lambda: not (loose._is_announced or loose._is_reading), "what was announced is read", 5)
        sessions: list[Any] = []
        session = one.node.database.session
        monkeypatch.setattr(one.node.database, "session", lambda **given: sessions.append(given) or session(**given))
        one.node.heartbeat.beat_now()
        assert len(sessions) == 1
        number = one.engine.commit(proxy(1))
        assert one.node.wait_for(number, 5)
        assert len(sessions) == 2


def test_a_node_at_rest_makes_no_statement_but_its_heartbeats(ours: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beating, "PERIOD", 0.1)
    monkeypatch.setattr(fleet_node, "POLL_AT_REST", 0.5)
    with nodes(ours, "a") as (one,):
        rings(one)
        wait_until(lambda: one.node.loose._locks is not None and not one.node.loose._is_announced, "it is read", 5)
        statements = list[str]()
        run = DatabaseSession._run

        def noted(self: DatabaseSession, statement: str, *rest: Any) -> list[Any]:
            statements.append(statement)
            return run(self, statement, *rest)

        monkeypatch.setattr(DatabaseSession, "_run", noted)
        begun = time.monotonic()  # the follower may wait for its poll, as before the doorbell rang
        wait_until(lambda: time.monotonic() > begun + 1.5 * following.POLL, "what was begun before is over", 10)
        statements.clear()
        wait_until(lambda: len(statements) >= 10, "heartbeats", 10)
        assert [each for each in statements if "proxyfleet.heartbeat(" not in each] == []
        ours.execute("INSERT INTO proxyfleet.lockouts VALUES ('p', 'n', clock_timestamp() + interval '1 h')")
        wait_until(lambda: one.node.requests.locked_for("p") > 0, "a lock is known without a notification", 5)


def test_an_entry_of_the_audit_trail_that_no_commit_brings_waits_until_the_next_heartbeat(ours: Fleet) -> None:
    with nodes(ours, "a", "b") as (one, other):
        assert other.node.wait_for(one.engine.commit(proxy()), 5)
        one.node.heartbeat.close()  # the entry waits for the heartbeat that is made below
        one.node.heartbeat.beat_now()
        one.engine.trail.append("user.signed_in")
        assert one.node.wait_for(other.engine.commit(proxy(1)), 5)
        assert one.node.pending()["audit"] == 1
        one.node.heartbeat.beat_now()
        assert one.node.pending()["audit"] == 0
        sent = ours.execute("SELECT seq, content, hash FROM proxyfleet.audit WHERE node = 'a' ORDER BY seq")
        assert sent == [*one.engine.trail.after(0)]


def test_a_node_has_figures_of_its_own_for_metrics(ours: Fleet) -> None:
    with nodes(ours, "a") as (one,):
        rings(one)
        one.engine.commit(proxy(0, 1))
        one.node.heartbeat.beat_now()
        found = one.node.figures()
        assert (found.behind, found.is_connected, found.is_notified, found.unreported) == (0, True, True, 0)
        assert (sum(found.commits.values()), 0 < found.commit_seconds < 5) == (1, True)


def test_a_heartbeat_says_what_a_node_has_and_learns_what_there_is(ours: Fleet) -> None:
    with nodes(ours, "a") as (one,):
        one.node.heartbeat.reports.append(lambda: {"failed": [{"id": "prx_1"}]})
        number = one.engine.commit(proxy())
        beat = one.node.heartbeat.beat_now()
        assert (beat.head, beat.followed, beat.reply["fleet"]) == (number, True, str(ours.id))
        assert abs(beat.now - time.time()) < 1
        ((node, commit, stamp, offset, problems, schema, version),) = ours.execute(
            'SELECT node, "commit", stamp, clock_offset, problems, schema, version FROM proxyfleet.heartbeats'
        )
        assert (node, (commit, stamp), schema) == ("a", one.engine.stamped(), migrations()[-1].number)
        assert abs(offset) < 1
        assert problems["failed"] == [{"id": "prx_1"}]
        assert problems["database"].keys() == {"doorbell", "round_trip_ms"}
        assert version == beating.VERSION


def test_what_is_reported_and_fails_ends_no_heartbeats(ours: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beating, "PERIOD", 0.1)
    fails, calls = [True], []

    def report() -> dict[str, Any]:
        calls.append(fails[0])
        if fails[0]:
            raise KeyError("a report")
        return {}

    with nodes(ours, "one") as (node,):
        node.node.heartbeat.reports.append(report)
        node.node.heartbeat.soon()
        wait_until(lambda: True in calls, "the report has failed", SOON)
        fails[0] = False
        wait_until(lambda: False in calls, "the next heartbeat", SOON)


def test_an_announcement_that_is_no_number_is_one_of_any_commit(ours: Fleet) -> None:
    with nodes(ours, "one", "two") as (node, other):
        rings(other)
        ours.execute(f"SELECT pg_notify('proxyfleet', '{'9' * 5000}')")
        node.engine.commit(proxy())
        wait_until(lambda: other.proxies() == 1, "the commit is there", SOON)
        assert all(each.is_alive for each in other.node._parts.follower._threads)  # type: ignore[union-attr]


def test_a_copy_of_a_node_is_refused_and_changes_nothing_and_the_first_one_stays(ours: Fleet) -> None:
    with nodes(ours, "a") as (one,):
        one.node.heartbeat.beat_now()
        with ExitStack() as stack:
            shutil.copytree(one.data.path, ours.folder / "copy")
            data = open_data_dir(ours.folder / "copy")
            node = FleetNode(one.node.identity)
            engine = stack.enter_context(closing(Engine(data, ours.seal, node.ledger)))
            stack.callback(node.close)
            node.opened(engine)
            node.start(NodeHost(lambda *_event: None, History))
            with pytest.raises(SecondInstallation, match="the id a is that of another installation, which runs since"):
                node.heartbeat.beat_now()
            with pytest.raises(LedgerUnavailable, match="one is a copy of the other"):
                engine.commit(proxy())
            assert node.wait_for(one.engine.commit(proxy()), 5)  # it follows, and so forwards
            ours.execute("UPDATE proxyfleet.heartbeats SET at = at - interval '11 s'")
            node.heartbeat.beat_now()  # it was moved here, as far as one can know
            engine.commit(proxy(1))
            one.node.heartbeat.beat_now()  # the one that began first is there again
            with pytest.raises(SecondInstallation):
                node.heartbeat.beat_now()


def test_the_same_installation_is_not_refused_after_a_restart(ours: Fleet) -> None:
    for _ in range(2):
        with nodes(ours, "a") as (one,):
            one.node.heartbeat.beat_now()
    ((since, started),) = ours.execute("SELECT since, started_at FROM proxyfleet.heartbeats")
    assert since < started


def test_a_database_that_is_away_stops_nothing_and_is_followed_as_soon_as_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "PROBE", 0.1)
    monkeypatch.setattr(beating, "RETRY", 0.1)
    monkeypatch.setattr(following, "POLL", 0.2)
    with Server() as server, server.database() as dsn, fleet(dsn) as ours, nodes(ours, "a", "b") as (one, other):
        for each in (one, other):
            rings(each)
        server.stop()
        wait_until(lambda: not one.node.database.is_available, "it is noticed", 5)
        with pytest.raises(LedgerUnavailable):
            one.engine.commit(proxy())
        monkeypatch.setattr("api.cluster.fleet_node.CUT_OFF", 0.01)
        assert one.node.cut_off_for() is not None
        monkeypatch.undo()
        server.start()
        wait_until(lambda: one.node.database.is_available, "it is back", 10)
        for _ in range(2):
            with suppress(LedgerUnavailable):
                number = one.engine.commit(proxy())
                break
        assert other.node.wait_for(number, 10)
        rings(other)


def test_a_node_that_starts_in_an_outage_is_cut_off_at_once_and_ends_soon(ours: Fleet) -> None:
    with nodes(ours, "a", dsn="host=127.0.0.1 port=1 user=x dbname=x") as (one,):
        wait_until(lambda: one.node.cut_off_for() is not None, "it is noticed", 10)
        began = time.monotonic()
        one.node.close()
        assert time.monotonic() - began < SOON


def test_a_sign_in_and_its_end_come_by_the_doorbell_too(ours: Fleet) -> None:
    with nodes(ours, "a", "b") as (one, other):
        rings(other)
        family = {"id": "f" * 24, "user_id": "usr_1", "keep_until": 9e9}
        began = time.monotonic()
        one.engine.put("refresh_families", family)
        wait_until(lambda: other.engine.get("refresh_families", family["id"]) is not None, "it is there", SOON)
        other.engine.delete("refresh_families", family["id"])
        wait_until(lambda: one.engine.get("refresh_families", family["id"]) is None, "it has ended", SOON)
        assert time.monotonic() - began < SOON < fleet_node.POLL_AT_REST
        assert set(one.node.pending().values()) == {0}


@table("offset", [-3600, 3600])
def test_a_clock_that_is_an_hour_off_is_said_and_nothing_goes_by_it(ours: Fleet, offset: int) -> None:
    """Section 15: no lease is lost or kept for it, and what is written has the database's time."""
    with pytest.MonkeyPatch.context() as patched, nodes(ours, f"a{offset}", f"b{offset}") as (one, other):
        rings(one)
        one.node.duties.has("lists")
        one.node.heartbeat.beat_now()
        assert one.node.duties.has("lists")
        true = time.time
        patched.setattr(time, "time", lambda: true() + offset)
        one.node.heartbeat.beat_now()
        one.node.heartbeat.beat_now()
        assert one.node.duties.has("lists")
        assert abs(one.node.clock() - true()) < SOON
        (((said),),) = ours.execute(f"SELECT clock_offset FROM proxyfleet.heartbeats WHERE node = 'a{offset}'")
        assert abs(said + offset) < SOON
        family = f"{offset:024}"
        one.engine.put("refresh_families", {"id": family, "user_id": "usr_1", "keep_until": true() + 60})
        wait_until(lambda: other.engine.get("refresh_families", family) is not None, "the sign-in is good", SOON)
        assert other.node.wait_for(one.engine.commit(proxy(0, 1)), 5)


def test_thousands_of_changes_while_a_node_was_away_are_taken_in_a_few_steps(ours: Fleet) -> None:
    """Section 15: it is current within seconds, and what is as before is not touched."""
    with nodes(ours, "a") as (one,):
        one.engine.commit([write for which in range(40) for write in proxy(which)])
        ((body,),) = ours.execute("SELECT body::text FROM proxyfleet.documents WHERE id = 'proxies_0'")
    with nodes(ours, "b") as (other,):
        assert other.node.wait_for(1, 5)
    ours.execute(
        "INSERT INTO proxyfleet.commits"
        " SELECT n, gen_random_uuid(), 'a', now(), 1, 400 FROM generate_series(2, 3001) n;"
        "UPDATE proxyfleet.documents d SET revision = 2990 + right(d.id, 1)::int, place = 0,"
        " body = replace(d.body::text, 'name-0', 'later')::json WHERE d.id IN ('proxies_1', 'proxies_2', 'proxies_3');"
        "UPDATE proxyfleet.fleet SET head = 3001"
    )
    assert "name-0" in body
    with nodes(ours, "b") as (other,):
        began = time.monotonic()
        assert other.node.wait_for(3001, 20)
        assert time.monotonic() - began < 5 * SOON
        assert [bodies(other)[f"proxies_{each}"]["name"] for each in range(5)] == ["name-0", *["later"] * 3, "name-0"]
        assert {change.id for made in other.made for change in made} == {"proxies_1", "proxies_2", "proxies_3"}
        assert len(other.made) <= 20


def test_a_node_whose_disk_is_full_serves_what_it_has_says_so_and_catches_up(ours: Fleet) -> None:
    """Section 15. SQLite says of a file that may have no more pages what it says of a disk without room."""
    node, other = ours.node("full"), ours.node("other")
    other.change(proxy(0, 0))
    node.follow()
    other.change([*proxy(0, 1), *(write for which in range(1, 200) for write in proxy(which))])

    def limit(pages: int) -> None:
        with node.engine.file.transaction() as database:
            database.execute(f"PRAGMA max_page_count = {pages}")

    limit(1)  # no more than there are
    with pytest.raises(StoreWriteError, match="full"):
        node.follow()
    assert node.number == 1
    assert [each.body["name"] for each in node.engine.every("proxies")] == ["name-0"]
    with pytest.raises(StoreWriteError, match="full"):
        node.change(proxy(7, 7))
    limit(1 << 30)
    node.follow()
    assert (node.number, len(node.engine.every("proxies"))) == (2, 200)
    node.change(proxy(7, 7))
    assert ours.execute("SELECT number FROM proxyfleet.commits ORDER BY 1") == [(each,) for each in range(4)]


def test_a_node_ends_soon_while_the_database_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beating, "PERIOD", 0.1)
    with Server() as server, server.database() as dsn, fleet(dsn) as ours, nodes(ours, "a") as (one,):
        rings(one)
        stopped = server.backends()
        for each in stopped:
            os.kill(each, signal.SIGSTOP)
        try:
            one.node._parts.follower.ring()  # type: ignore[union-attr]
            began = time.monotonic()
            one.node.close()
            assert time.monotonic() - began < connections.REPORT
        finally:
            for each in stopped:
                os.kill(each, signal.SIGCONT)


def test_an_effect_that_has_failed_is_made_again_until_it_is_made(ours: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.cluster.following.unapplied.FIRST_PAUSE", 0.01)
    made: list[Any] = []

    def make(changes: Sequence[DocumentChange]) -> None:
        made.append(changes[0].after)
        if len(made) < 4:
            raise OSError("the port is in use")

    with nodes(ours, "a", "b") as (one, other):
        other.follow_by(make)
        assert other.node.wait_for(one.engine.commit(proxy(0, 7)), SOON)
        assert [each[-1] for each in failed(other)] == ["the port is in use"]
        wait_until(lambda: other.node.heartbeat.beat_now() and not failed(other), "it is made", SOON)
        assert len(made) == 4
        assert {each["name"] for each in made} == {"name-7"}
