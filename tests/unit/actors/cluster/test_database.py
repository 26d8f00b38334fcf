"""The database of a fleet as a process uses it: nothing waits for it longer than it may, whatever becomes of it."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from uuid import uuid4

import psycopg
import pytest

from actors.cluster import database as module
from actors.cluster.database import FAILURES, Database
from actors.cluster.errors import (
    DatabaseBusy,
    DatabaseUnavailable,
    DatabaseUnusable,
    StatementRefused,
)
from tests.kit.ports import free_port
from tests.kit.postgresql import database, needs_postgresql, shared_server
from tests.kit.postgresql_server import Server
from tests.kit.tables import table
from tests.kit.wait import wait_until

pytestmark = needs_postgresql
SOON = 4.0
"""Seconds that a machine under load may take for what takes none."""


@pytest.fixture
def ours() -> Iterator[Database]:
    with database() as dsn, closing(Database(dsn)) as found:
        yield found


@contextmanager
def at_least(seconds: float, at_most: float) -> Iterator[None]:
    began = time.monotonic()
    yield
    took = time.monotonic() - began
    assert seconds <= took <= at_most, f"took {took:.2f} s"


def one(database: Database, within: float = 3.0) -> list[tuple[int]]:
    with database.session() as session:
        return session.transaction("SELECT 1", within=within)


def test_a_transaction_is_committed_or_taken_back_and_its_connection_serves_the_next(ours: Database) -> None:
    with ours.session() as session:
        session.transaction("CREATE TABLE t (n int)")
        pid = session.begin("INSERT INTO t VALUES (1); SELECT pg_backend_pid()")
        assert session.finish("SELECT count(*) FROM t WHERE n = %s", [1]) == [(1,)]
        session.begin("INSERT INTO t VALUES (2)")
    with ours.session() as session:
        assert session.transaction("SELECT n, pg_backend_pid() FROM t") == [(1, pid[0][0])]
        session.begin("INSERT INTO t VALUES (3)")
        session.go_on("INSERT INTO t VALUES (4); SELECT '%'", None)
        with pytest.raises(StatementRefused) as caught:
            session.go_on("SELECT 1 / 0")
        assert caught.value.code == "22012"
    assert one(ours) == [(1,)]
    with ours.session() as session:
        assert session.transaction("SELECT n FROM t") == [(1,)]


def test_a_host_that_never_responds_ends_in_the_time_of_a_connect() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        closing(Database(f"host=127.0.0.1 port={silent.getsockname()[1]} dbname=x user=x")) as database,
        at_least(1.9, 2 + SOON),
        pytest.raises(DatabaseUnavailable),
    ):
        one(database)


def test_calls_fail_at_once_after_two_failures() -> None:
    with closing(Database(f"host=127.0.0.1 port={free_port()} dbname=x user=x password=secret")) as database:
        for _ in range(FAILURES):
            assert database.is_available
            with at_least(0, SOON), pytest.raises(DatabaseUnavailable, match="refused") as caught:
                one(database)
            assert "secret" not in str(caught.value)
        assert not database.is_available
        took = []
        for _ in range(10):
            began = time.monotonic()
            with pytest.raises(DatabaseUnavailable, match=r"127\.0\.0\.1:[0-9]+/x"):
                one(database)
            took.append(time.monotonic() - began)
        assert min(took) < 0.1


def test_closing_ends_what_waits_for_the_database(ours: Database) -> None:
    with ours.session() as session, ThreadPoolExecutor(1) as threads:
        waits = threads.submit(session.transaction, "SELECT pg_sleep(20)", within=20)
        with at_least(0, SOON):
            ours.close()
            with pytest.raises(DatabaseUnavailable):
                waits.result(SOON)
        with pytest.raises(DatabaseUnavailable):
            session.transaction("SELECT 1")


def test_a_stopped_backend_ends_the_call_in_time_and_the_next_one_gets_another(ours: Database) -> None:
    with ours.session() as session:
        ((pid,),) = session.transaction("SELECT pg_backend_pid()")
        os.kill(pid, signal.SIGSTOP)
        try:
            with at_least(0.5, 0.5 + SOON), pytest.raises(DatabaseUnavailable, match="no response in time"):
                session.transaction("SELECT 1", within=0.5)
            assert one(ours) == [(1,)]
            with pytest.raises(DatabaseUnavailable):
                session.transaction("SELECT 1")
        finally:
            os.kill(pid, signal.SIGCONT)


def test_a_long_text_to_a_stopped_backend_ends_in_time(ours: Database) -> None:
    with ours.session() as session:
        ((pid,),) = session.transaction("SELECT pg_backend_pid()")
        os.kill(pid, signal.SIGSTOP)
        try:
            with at_least(0.5, 0.5 + SOON), pytest.raises(DatabaseUnavailable, match="no response in time"):
                session.transaction("SELECT length(%s)", ["x" * 10_000_000], within=0.5)
        finally:
            os.kill(pid, signal.SIGCONT)


def test_a_database_that_comes_back_is_noticed_by_probes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PROBE", 0.1)
    with Server(durable=True) as server, closing(Database(server.dsn())) as database:
        assert one(database) == [(1,)]
        with database.session() as session:
            ended = threading.Thread(target=server.stop, args=[signal.SIGKILL])
            ended.start()
            with at_least(0, 2 + SOON), pytest.raises(DatabaseUnavailable):
                session.transaction("SELECT pg_sleep(60)", within=60)
            ended.join()
        with pytest.raises(DatabaseUnavailable):
            one(database)
        assert not database.is_available
        server.start()
        wait_until(lambda: database.is_available, "it is noticed", 5)
        assert one(database) == [(1,)]
        assert [each.name for each in threading.enumerate() if each.name == "database probe"] == []


def test_while_it_is_refused_and_has_rest_it_is_not_asked_whether_it_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    tries, checks = [0], list[int]()

    def soon(_least: float, _most: float) -> float:
        tries[0] += 1
        return 0.01

    def check() -> None:
        checks.append(tries[0])
        Database.check(database)

    monkeypatch.setattr(module.random, "uniform", soon)
    with Server() as server, closing(Database(server.dsn())) as database:
        assert one(database) == [(1,)]
        server.stop()
        monkeypatch.setattr(database, "check", check)
        database.refuse("this node was removed", has_rest=True)
        for _ in range(2):
            with pytest.raises(DatabaseUnavailable), database.session(even_if_refused=True):
                pass
        wait_until(lambda: tries[0] > 5, "it could have been asked", 5)
        assert checks == []
        server.start()
        database.refuse("")
        wait_until(lambda: database.is_available, "it is noticed", 5)
        assert checks


def test_connections_of_a_server_that_was_restarted_cost_no_call() -> None:
    with Server() as server, closing(Database(server.dsn())) as database:
        for _ in range(3):
            assert one(database) == [(1,)]
            server.stop()
            server.start()
        assert one(database) == [(1,)]


def test_a_lock_that_another_has_is_not_taken_for_an_outage(ours: Database) -> None:
    with ours.session() as holder:
        holder.begin("SELECT pg_advisory_xact_lock(1)", within=600)
        for _ in range(FAILURES + 1):
            with ours.session() as session, at_least(0.75, 1 + SOON), pytest.raises(DatabaseBusy):
                session.transaction("SELECT pg_advisory_xact_lock(1)", within=1)
        assert ours.is_available


def test_who_hangs_with_a_lock_loses_it_before_those_give_up_that_wait_for_it(ours: Database) -> None:
    with ours.session() as holder, ours.session() as session:
        holder.begin("SELECT pg_advisory_xact_lock(1)", within=1)
        with at_least(0.4, 1 + SOON):
            session.transaction("SELECT pg_advisory_xact_lock(1)", within=1)
        with pytest.raises(DatabaseUnavailable):
            holder.finish("SELECT 1")


def test_more_calls_than_connections_wait_for_one_another_and_for_no_longer_than_a_connect(
    ours: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CONNECT", 0.2)
    with (
        ours.session(),
        ours.session(),
        ours.session(),
        ours.session(),
        at_least(0.2, 0.2 + SOON),
        pytest.raises(DatabaseBusy, match="all 4 connections are in use"),
        ours.session(),
    ):
        pass
    assert one(ours) == [(1,)]


def test_a_connection_to_another_fleet_or_to_none_is_not_used() -> None:
    """So that nothing of this fleet, such as a sign-in, is written there, and nothing of that one is read."""
    ours, others = uuid4(), uuid4()
    with shared_server().database() as dsn:

        def used(statement: str) -> list[tuple[int]]:
            with psycopg.connect(dsn, autocommit=True) as connection:
                connection.execute(statement.encode())
            with closing(Database(dsn, ours)) as database:
                return one(database)

        with pytest.raises(DatabaseUnusable, match="does not exist"):
            used("CREATE SCHEMA proxyfleet")
        with pytest.raises(DatabaseUnusable, match=f"holds no fleet, and this node is of {ours}"):
            used("CREATE TABLE proxyfleet.fleet (id uuid)")
        with pytest.raises(DatabaseUnusable, match=f"holds the fleet {others}, and this node is of {ours}"):
            used(f"INSERT INTO proxyfleet.fleet VALUES ('{others}')")
        assert used(f"UPDATE proxyfleet.fleet SET id = '{ours}'") == [(1,)]


def dsns() -> Iterator[tuple[str, str]]:
    server = shared_server()
    yield server.dsn(password="wrong"), "password authentication failed"
    yield server.dsn("nowhere"), '"nowhere" does not exist'
    yield server.dsn("latin"), "has the encoding LATIN1, and UTF8 is needed"
    yield server.dsn("closed", user="limited"), 'permission denied for database "closed"'
    yield server.dsn(sslmode="require"), "does not support SSL"
    yield "postgresql://pf:secret@[", "the DSN of the database can't be read"
    yield "secret nonsense", "the DSN of the database can't be read"


@pytest.fixture(scope="module")
def _unusable_databases() -> Iterator[None]:
    server = shared_server()
    names = ("latin", "closed")
    server.execute("CREATE DATABASE latin ENCODING LATIN1 LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
    server.execute("CREATE DATABASE closed")
    server.execute("REVOKE CONNECT ON DATABASE closed FROM PUBLIC")
    server.execute("CREATE ROLE limited LOGIN PASSWORD 'sesame'")
    yield
    for name in names:
        server.execute(f"DROP DATABASE {name} WITH (FORCE)")
    server.execute("DROP ROLE limited")


@pytest.mark.usefixtures("_unusable_databases")
@table("dsn, error", dsns)
def test_a_database_that_can_not_be_used_says_why_and_shows_no_password(dsn: str, error: str) -> None:
    with pytest.raises(DatabaseUnusable) as caught, closing(Database(dsn)) as database:
        one(database)
    text = str(caught.value)
    assert error in text
    assert "\n" not in text
    assert "secret" not in text
    assert "wrong" not in text


def test_a_right_that_is_missing_is_no_outage(ours: Database) -> None:
    with ours.session() as session:
        for _ in range(FAILURES + 1):
            with pytest.raises(DatabaseUnusable, match="permission denied"):
                session.transaction("SET LOCAL ROLE pg_monitor; SELECT * FROM pg_authid")
    assert ours.is_available


def test_a_connection_that_has_become_read_only_is_not_used_again(ours: Database) -> None:
    with ours.session() as session:
        session.transaction("CREATE SCHEMA proxyfleet; CREATE TABLE proxyfleet.t (n int)")
        session.transaction("SET default_transaction_read_only = on")
    for _ in range(2):
        with pytest.raises(DatabaseUnavailable, match="read-only"):
            ours.transaction("INSERT INTO t VALUES (1)")
        ours.check()
        assert ours.transaction("INSERT INTO t VALUES (2) RETURNING n") == [(2,)]
        ours.transaction("SET default_transaction_read_only = on")


def test_its_time_is_the_databases_whatever_the_clock_here_does(
    ours: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = time.time()
    one(ours)
    monkeypatch.setattr(module.time, "time", lambda: before - 3600)
    ours.check()
    assert abs(ours.time() - before) < SOON
    assert abs(ours.clock_offset - 3600) < SOON
    assert ours.round_trip is not None
    assert 0 < ours.round_trip < SOON


def test_a_closed_one_does_nothing_more(ours: Database) -> None:
    one(ours)
    ours.close()
    with pytest.raises(DatabaseUnavailable, match="closed"):
        one(ours)
    with pytest.raises(DatabaseUnavailable, match="closed"):
        ours.check()


@table(
    "dsn, place",
    [
        ("postgresql://u:secret@db.example/fleet", "db.example/fleet"),
        ("postgresql://u:secret@db.example:5432/fleet", "db.example/fleet"),
        ("postgresql://u:secret@db.example:6432/fleet", "db.example:6432/fleet"),
        ("user=u password=secret", "localhost/u"),
    ],
)
def test_a_database_is_named_by_host_port_and_name_and_never_with_its_password(dsn: str, place: str) -> None:
    with closing(Database(dsn)) as found:
        assert found.place == place
