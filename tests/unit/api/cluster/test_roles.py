"""Who reads and writes what in the fleet's database: tried with the roles themselves, over real connections."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from itertools import count
from typing import Any

import psycopg
import pytest
from psycopg import errors as sql

from actors.cluster.database import Database
from actors.cluster.errors import DatabaseError, DatabaseUnusable
from api.cluster.migration_runner import Migration, migrate, migrations
from api.cluster.roles import NodeLogin, end_role, verifier
from api.store import StoreError, Write
from tests.kit.fleet_database import begin_roles
from tests.kit.folders import ROOT
from tests.kit.postgresql import needs_pgbouncer, needs_postgresql, pooler, shared_server
from tests.kit.tables import table
from tests.kit.wait import wait_until
from tests.unit.api.cluster.nodes import Fleet, Node, fleet, owner

pytestmark = needs_postgresql
FULL, EDGE, OTHER = (f"nod_{letter * 16}" for letter in "fed")
DOCUMENTS: dict[str, dict[str, dict[str, Any]]] = {
    "nodes": {
        FULL: {"name": "full", "role": "full", "tags": []},
        EDGE: {"name": "edge", "role": "edge", "tags": ["eu"]},
    },
    "proxies": {
        "prx_all": {"nodes": {"all": True}},
        "prx_default": {},
        "prx_named": {"nodes": {"names": ["x", "edge"]}},
        "prx_tagged": {"nodes": {"tags": ["us", "eu"]}},
        "prx_full": {"nodes": {"names": ["full"]}},
        "prx_us": {"nodes": {"tags": ["us"]}},
        "prx_none": {"nodes": {"all": False}},
    },
    "lists": {"lst_a": {}},
    "pools": {"pol_a": {}},
    "policies": {"plc_a": {}},
    "users": {"usr_a": {}},
    "api_keys": {"key_a": {}},
    "refresh_families": {"fam_a": {}},
    "webhooks": {"whk_a": {}},
    "secrets": {"access-tokens": {}},
}
OF_EDGE = {
    "nodes": {FULL, EDGE},
    "proxies": {"prx_all", "prx_default", "prx_named", "prx_tagged"},
    "lists": {"lst_a"},
    "pools": {"pol_a"},
    "policies": {"plc_a"},
}
RIGHTS_OF_EDGE = {
    "fleet": {"SELECT"},
    "commits": {"SELECT"},
    "documents": {"SELECT"},
    "revisions": {"SELECT"},
    "revision_changes": {"SELECT"},
    "blobs": {"SELECT"},
    "loose": {"SELECT"},
    "loose_heads": {"SELECT"},
    "lockouts": {"SELECT"},
    "audit": {"SELECT"},
    "heartbeats": {"SELECT"},
}
"""Of some only rows, and of revisions none: as the other tests have it."""
FUNCTIONS_OF_EDGE = {
    *("this_node", "group_of", "is_edge", "own_document", "runs_on", "edge_documents", "documents_of"),
    *("changes_after", "heartbeat", "note_heartbeat", "report_usage", "report_limits"),
    *("changed_usage", "read_loose", "add_audit"),
}
BEAT = json.dumps(
    {
        "boot": "b", "up_for": 1, "version": "1", "level": 1, "commit": 0, "clock_offset": 0, "settings": {},
        "problems": {"pending": {"sign_ins": 3}},
    }
)  # fmt: skip
_numbers = count()


class Place:
    """A fleet with a full node and an edge node, whose roles are real."""

    def __init__(self, fleet: Fleet, full: str = FULL, edge: str = EDGE, other: str = OTHER) -> None:
        self.fleet = fleet
        self.logins = {full: NodeLogin(full, "full"), edge: NodeLogin(edge, "edge"), other: NodeLogin(other, "edge")}
        begin_roles(fleet.database, self.logins[full])
        for each in (edge, other):
            statement, parameters = self.logins[each].statement
            with fleet.database.session() as session:
                session.transaction(statement, parameters)
        self.owner = fleet.node("owner")

    def dsn(self, node: str) -> str:
        return self.logins[node].dsn(self.fleet.dsn)

    @contextmanager
    def as_role(self, node: str) -> Iterator[psycopg.Connection[Any]]:
        with psycopg.connect(self.dsn(node), autocommit=True, options="-c jit=off") as connection:
            yield connection

    def refused(self, node: str, statement: str, *parameters: Any, why: str = "") -> bool:
        """Whether the role has no right to it; it may fail otherwise. `why` is in the error."""
        with self.as_role(node) as connection:
            return refused_to(connection, statement, *parameters, why=why)

    def write(self, collection: str, identifier: str, body: dict[str, Any] | None) -> None:
        whole = None if body is None else {"id": identifier, **body}
        self.owner.change([Write(collection, identifier, whole)])

    def tables(self) -> list[str]:
        found = self.fleet.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'proxyfleet' ORDER BY 1")
        return [name for (name,) in found]


def refused_to(connection: psycopg.Connection[Any], statement: str, *parameters: Any, why: str = "") -> bool:
    """As `Place.refused`, over a connection of the role."""
    try:
        with connection.transaction():
            connection.execute(statement.encode(), parameters)
            raise psycopg.Rollback
    except sql.InsufficientPrivilege as error:
        return why in str(error)
    except psycopg.Error:
        return False
    return False


def another(fleet: Fleet) -> tuple[Place, str, str, str]:
    """One more on the same server, where roles are for all databases; with the ids of its nodes."""
    full, edge, other = (f"nod_{letter}{next(_numbers):015}" for letter in "fed")
    return Place(fleet, full, edge, other), full, edge, other


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with owner() as dsn, fleet(dsn) as made:
        found = Place(made)
        for collection, bodies in DOCUMENTS.items():
            for identifier, body in bodies.items():
                found.write(collection, identifier, body)
        yield found


def seen(node: Node) -> dict[str, set[str]]:
    """What the replica of a node has."""
    node.follow()
    found = {name: {each.id for each in node.engine.find(name)} for name in DOCUMENTS}
    return {name: each for name, each in found.items() if each}


# --- an edge node ---


def test_an_edge_has_these_rights_to_tables_and_no_others(place: Place) -> None:
    found = {}
    with place.as_role(EDGE) as edge:
        for name in place.tables():
            ((column,),) = place.fleet.execute(
                "SELECT attname FROM pg_attribute WHERE attnum > 0 AND NOT attisdropped"
                f" AND attrelid = 'proxyfleet.{name}'::regclass ORDER BY attnum LIMIT 1"
            )
            tries = {
                "SELECT": f"SELECT FROM proxyfleet.{name} LIMIT 1",
                "INSERT": f"INSERT INTO proxyfleet.{name} ({column}) VALUES (NULL)",
                "UPDATE": f'UPDATE proxyfleet.{name} SET "{column}" = NULL WHERE false',
                "DELETE": f"DELETE FROM proxyfleet.{name} WHERE false",
                "TRUNCATE": f"TRUNCATE proxyfleet.{name}",
            }
            found[name] = {what for what, statement in tries.items() if not refused_to(edge, statement)}
    wanted = {name: RIGHTS_OF_EDGE.get(name, set()) for name in found}
    assert found == wanted


def test_an_edge_locks_no_table_that_others_write_to(place: Place) -> None:
    with place.as_role(EDGE) as edge:
        for name in place.tables():
            assert refused_to(edge, f"LOCK TABLE proxyfleet.{name} IN SHARE MODE NOWAIT"), name
            assert refused_to(edge, f"SELECT FROM proxyfleet.{name} FOR KEY SHARE NOWAIT"), name


def test_an_edge_may_call_these_functions_and_no_others(place: Place) -> None:
    found = place.fleet.execute("SELECT proname FROM pg_proc WHERE pronamespace = 'proxyfleet'::regnamespace")
    with place.as_role(EDGE) as connection:
        rows = connection.execute(
            "SELECT proname FROM pg_proc WHERE pronamespace = 'proxyfleet'::regnamespace"
            " AND has_function_privilege(oid, 'EXECUTE')"
        ).fetchall()
    allowed = {name for (name,) in rows}
    assert allowed == FUNCTIONS_OF_EDGE & {name for (name,) in found}
    assert {"make_node_role", "run_as_owner", "commit_change", "begin_change"} <= {name for (name,) in found}


def test_an_edge_reads_what_forwards_and_of_proxies_those_that_run_there(place: Place) -> None:
    with place.as_role(EDGE) as connection:
        found: dict[str, set[str]] = {}
        for collection, identifier in connection.execute("SELECT collection, id FROM proxyfleet.documents"):
            found.setdefault(collection, set()).add(identifier)
        assert found == OF_EDGE
        for name in ("revisions", "revision_changes"):
            assert connection.execute(f"SELECT count(*) FROM proxyfleet.{name}".encode()).fetchone() == (0,)
        assert place.fleet.execute("SELECT count(*) > 0 FROM proxyfleet.revisions") == [(True,)]


def test_an_edge_writes_its_own_audit_trail_and_heartbeat_alone(place: Place) -> None:
    entry = 'SELECT proxyfleet.add_audit(%s, \'[[1, "{}", ""]]\')'
    assert not place.refused(EDGE, entry, EDGE)
    assert place.refused(EDGE, entry, FULL)
    assert place.refused(EDGE, "INSERT INTO proxyfleet.heartbeats (node) VALUES (%s)", FULL)
    large = "replace(%s, '{\"sign', '{\"' || repeat('x', 1 << 24))::json"
    with place.as_role(EDGE) as connection, pytest.raises(sql.CheckViolation):
        connection.execute(f"SELECT proxyfleet.heartbeat(%s, {large})".encode(), [EDGE, BEAT])
    with place.as_role(EDGE) as connection:
        connection.execute("SELECT proxyfleet.heartbeat(%s, %s)", [EDGE, BEAT])
        place.fleet.execute(f"DELETE FROM proxyfleet.heartbeats WHERE node = '{EDGE}'")
    assert place.refused(EDGE, "SELECT proxyfleet.heartbeat(%s, %s)", FULL, BEAT)


def report(place: Place, as_node: str, of_node: str, generation: int) -> list[Any]:
    """A report of 5 bytes of one account: [generation, …, bytes in] of its totals."""
    with place.as_role(as_node) as connection:
        return reported(connection, of_node, generation)


def reported(
    connection: psycopg.Connection[Any],
    of_node: str,
    generation: int,
    name: str = "acc_a",
    ledger: str = "ledger",
    bytes_in: int = 5,
    last_seen: float = 0.0,
    client: str = "",
) -> list[Any]:
    rows: list[Any] = [[1], [1], [name], ["prx_a"], [bytes_in], [0], [1], [1], [0]]
    account: list[Any] = [[name], [generation], [0], ["total"], [False], [last_seen], [client], [""]]
    kinds = ["bigint", "integer", "text", "text", *["bigint"] * 5]
    kinds += ["text", "bigint", "bigint", "text", "boolean", "float8", "text", "text"]
    values = ", ".join(f"%s::{kind}[]" for kind in kinds)
    call = f"SELECT rows FROM proxyfleet.report_usage(%s, %s, 0, 1, 0, 0.8, {values})"
    found = connection.execute(call.encode(), [of_node, ledger, *rows, *account]).fetchone()
    assert found is not None
    ((row, *_),) = json.loads(found[0])
    return list(row)


def test_an_edge_reports_what_it_counts_of_limits_itself_alone(place: Place) -> None:
    call = "SELECT * FROM proxyfleet.report_limits(%s, '{7}', '{1}', '{0}', '{0}', '{0}', '{0}', '{0}')"
    with place.as_role(EDGE) as connection:
        connection.execute(call.encode(), [EDGE])
    assert place.refused(EDGE, call, OTHER)
    assert place.refused(EDGE, "SELECT * FROM proxyfleet.limits_in_use")
    assert place.fleet.execute("SELECT node FROM proxyfleet.limits_in_use") == [(EDGE,)]


def test_an_edge_reports_its_own_usage_and_resets_none(place: Place) -> None:
    before = report(place, FULL, FULL, 3)
    assert (before[1], before[11]) == (3, 5)
    after = report(place, EDGE, EDGE, 9)
    assert (after[1], after[11]) == (3, 10)
    with pytest.raises(sql.InsufficientPrivilege, match="its own usage alone"):
        report(place, EDGE, FULL, 3)
    with place.as_role(EDGE) as connection:
        assert connection.execute("SELECT account FROM proxyfleet.changed_usage(0, '', 9)").fetchall() == [("acc_a",)]


@table(
    "claimed, is_taken",
    [
        ({"bytes_in": 2**48 - 1}, True),
        ({"bytes_in": 2**48}, False),
        ({"bytes_in": -1}, False),
        ({"last_seen": float("inf"), "client": "x" * 100_000}, True),
        ({"last_seen": float("nan")}, True),
        ({"ledger": "one more"}, False),
        ({"name": "a" * 65}, False),
    ],
)
def test_no_figure_that_a_stolen_edge_claims_keeps_others_from_reporting(
    place: Place, claimed: dict[str, Any], is_taken: bool
) -> None:
    place.fleet.execute(
        f"INSERT INTO proxyfleet.usage_ledgers (node, ledger) SELECT '{OTHER}', 'l' || n FROM generate_series(1, 100) n"
        " ON CONFLICT DO NOTHING; UPDATE proxyfleet.usage_totals SET total_in = 1::bigint << 62 WHERE account = 'acc_b'"
    )
    with place.as_role(OTHER) as stolen:
        given = {"name": "acc_b", "ledger": "l1", **claimed}
        if is_taken:
            reported(stolen, OTHER, 0, **given)
        else:
            with pytest.raises(sql.CheckViolation):
                reported(stolen, OTHER, 0, **given)
    with place.as_role(FULL) as full:
        found = reported(full, FULL, 0, "acc_b", f"of {claimed}", 2**48 - 1)
        full.execute("SELECT proxyfleet.tend_usage()")
    assert found[11] <= 2**60
    assert found[15] < time.time() + 3600
    assert len(found[16]) <= 512


@table(
    "figures, is_taken",
    [
        ("'{7, 8}', '{1, 0}', '{0, 0}', '{0, 0}', '{0, 0}', '{0, 0}', '{0, 0}'", True),
        ("'{}', '{}', '{}', '{}', '{}', '{}', '{}'", True),
        ("'{7, 8}', '{1}', '{0, 0}', '{0, 0}', '{0, 0}', '{0, 0}', '{0, 0}'", False),
        ("'{7}', '{NULL}', '{0}', '{0}', '{0}', '{0}', '{0}'", False),
        ("'{NULL}', '{1}', '{0}', '{0}', '{0}', '{0}', '{0}'", False),
        ("'{7}', '{-1}', '{0}', '{0}', '{0}', '{0}', '{0}'", False),
        ("'{7}', '{1}', '{0}', '{0}', '{0}', '{0}', '{281474976710656}'", False),
    ],
)
def test_limits_of_an_edge_are_figures_that_others_can_add(place: Place, figures: str, is_taken: bool) -> None:
    call = f"SELECT proxyfleet.report_limits('{OTHER}', {figures})".encode()
    with place.as_role(OTHER) as stolen:
        if is_taken:
            stolen.execute(call)
        else:
            with pytest.raises(sql.CheckViolation):
                stolen.execute(call)
    place.fleet.execute(f"DELETE FROM proxyfleet.limits_in_use WHERE node = '{OTHER}'")


def test_an_edge_fills_no_report_of_the_others_with_accounts_that_there_are_not(place: Place) -> None:
    figures = ", ".join(f"array_fill({n}::bigint, ARRAY[5000])" for n in (7, 1, *[0] * 5))
    with place.as_role(OTHER) as stolen, pytest.raises(sql.CheckViolation):
        stolen.execute(f"SELECT proxyfleet.report_limits('{OTHER}', {figures})".encode())
    with place.as_role(FULL) as full:
        full.execute(f"SELECT proxyfleet.report_limits('{FULL}', {figures})".encode())
    place.fleet.execute(f"DELETE FROM proxyfleet.limits_in_use WHERE node = '{FULL}'")


def own_report(connection: psycopg.Connection[Any]) -> None:
    connection.execute("BEGIN")
    reported(connection, EDGE, 3)


@table(
    "hold, is_ended",
    [
        (own_report, True),
        (lambda edge: edge.execute("SELECT pg_advisory_lock(7075663081)"), True),
        (lambda edge: edge.execute("BEGIN; SELECT FROM proxyfleet.documents"), False),
        (lambda edge: edge.execute("SELECT 1"), False),
    ],
    ids=["usage", "a lock by its number", "reading everything anew", "nothing"],
)
def test_an_edge_keeps_nothing_that_others_wait_for(
    place: Place, hold: Callable[[psycopg.Connection[Any]], object], is_ended: bool
) -> None:
    with place.as_role(EDGE) as edge, place.as_role(FULL) as full:
        edge.execute("SET idle_in_transaction_session_timeout = 0; SET statement_timeout = 0")
        full.execute("BEGIN; SELECT pg_current_xact_id()")
        hold(edge)
        place.fleet.execute("SELECT proxyfleet.end_long_edges('0 s', '10 min')")
        if is_ended:
            wait_until(lambda: not is_alive(edge), "its connection has ended", 1)
        else:
            assert is_alive(edge)
        assert is_alive(full)


def test_an_edge_that_listens_and_reads_on_is_ended_before_the_queue_of_notifications_is_full(place: Place) -> None:
    with place.as_role(EDGE) as edge, place.as_role(OTHER) as other:
        edge.execute("LISTEN x")
        edge.execute("BEGIN; SELECT 1")
        other.execute("SELECT count(pg_notify('x', repeat('a', 7900) || n)) FROM generate_series(1, 11000) n")
        place.fleet.execute("SELECT proxyfleet.end_long_edges('0 s', '10 min')")
        wait_until(lambda: not is_alive(edge), "its connection has ended", 1)
        assert place.fleet.execute("SELECT pg_notification_queue_usage() < 0.001") == [(True,)]


def test_a_report_that_waits_for_an_edge_goes_on_when_that_is_ended(place: Place) -> None:
    with ThreadPoolExecutor(1) as threads, place.as_role(EDGE) as edge, place.as_role(FULL) as full:
        report(place, FULL, FULL, 3)
        own_report(edge)
        waiting = threads.submit(reported, full, FULL, 3)
        wait_until(lambda: waits(place, FULL), "the report of another node waits", 10)
        place.fleet.execute("SELECT proxyfleet.end_long_edges('0 s', '10 min')")
        assert waiting.result(10)[11] >= 5
        assert not is_alive(edge)


def waits(place: Place, node: str) -> bool:
    waiting = f"SELECT count(*) FROM pg_stat_activity WHERE usename = 'pf_{node}' AND wait_event_type = 'Lock'"
    return place.fleet.execute(waiting) == [(1,)]


def test_others_report_whatever_connections_an_edge_holds_on_to(place: Place) -> None:
    with (
        ThreadPoolExecutor(2) as threads,  # what waits ends with the connections
        place.as_role(EDGE) as edge,
        place.as_role(EDGE) as again,
        place.as_role(FULL) as full,
    ):
        report(place, FULL, FULL, 3)
        own_report(edge)
        second = threads.submit(own_report, again)
        wait_until(lambda: waits(place, EDGE), "the second report of the edge waits", 10)
        others = threads.submit(reported, full, FULL, 3)
        wait_until(lambda: waits(place, FULL), "the report of another node waits", 10)

        def is_there() -> bool:  # the second one of the edge may be the quicker one, and holds on to its report as well
            place.fleet.execute("SELECT proxyfleet.end_holding_edges('0 s')")
            return others.done()

        wait_until(is_there, "the report of another node", 10)
        assert others.result()[11] >= 5
        assert not is_alive(edge)
        again.close()
        with suppress(psycopg.Error):
            second.result(10)


def test_who_reports_ends_an_edge_that_holds_on_to_its_report(place: Place) -> None:
    ((function,),) = place.fleet.execute("SELECT pg_get_functiondef('proxyfleet.own_report'::regproc)")
    place.fleet.execute(function.replace("'2 s'", "'0 s'"))
    try:
        with place.as_role(EDGE) as edge, place.as_role(FULL) as full:
            own_report(edge)
            assert reported(full, FULL, 3)[11] >= 5
            assert not is_alive(edge)
    finally:
        place.fleet.execute(function)


def test_each_heartbeat_ends_what_edges_keep(place: Place) -> None:
    with place.as_role(EDGE) as edge, place.as_role(OTHER) as other:
        edge.execute("SELECT pg_advisory_lock(7075663081)")
        other.execute("SELECT proxyfleet.heartbeat(%s, %s)", [OTHER, BEAT])
        wait_until(lambda: not is_alive(edge), "its connection has ended", 1)
        place.fleet.execute(f"DELETE FROM proxyfleet.heartbeats WHERE node = '{OTHER}'")


@table(
    "statement",
    [
        "SET ROLE owner_0",
        "SET ROLE postgres",
        "SET SESSION AUTHORIZATION postgres",
        "CREATE ROLE mallory",
        "CREATE TABLE proxyfleet.mine (a int)",
        "CREATE TABLE public.mine (a int)",
        "CREATE TEMP TABLE mine (a int)",
        "SELECT 1 AS a INTO TEMP mine",
        "ALTER TABLE proxyfleet.documents DISABLE ROW LEVEL SECURITY",
        "DROP POLICY of_edge ON proxyfleet.documents",
        f"ALTER ROLE pf_{FULL} PASSWORD 'x'",
        f"ALTER ROLE pf_{EDGE} BYPASSRLS",
        f"GRANT pf_{FULL} TO pf_{EDGE}",
        f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'pf_{FULL}'",
        "SELECT * FROM pg_authid",
        "SELECT pg_read_file('/etc/passwd')",
        "COPY proxyfleet.documents TO PROGRAM 'cat'",
        "SELECT FROM proxyfleet.fleet FOR UPDATE",
    ],
)
def test_an_edge_gets_no_further(place: Place, statement: str) -> None:
    name = psycopg.conninfo.conninfo_to_dict(place.fleet.dsn)["user"]
    with place.as_role(FULL):
        assert place.refused(EDGE, statement.replace("owner_0", str(name)))


def test_no_group_opens_what_the_other_has(place: Place) -> None:
    for node, group in ((EDGE, "full"), (FULL, "edge")):
        ((name,),) = place.fleet.execute(f"SELECT proxyfleet.group_of('{group}')")
        assert place.refused(node, f"SET ROLE {name}")


# --- an edge follows ---


def test_an_edge_follows_every_number_and_gets_its_documents_alone(place: Place) -> None:
    edge = place.fleet.node(EDGE, place.dsn(EDGE))
    assert seen(edge) == OF_EDGE
    assert edge.number == place.owner.number
    place.write("users", "usr_a", {"again": True})
    assert seen(edge) == OF_EDGE
    assert edge.number == place.owner.number


def test_proxies_come_and_go_with_what_selects_them(place: Place) -> None:
    edge = place.fleet.node(EDGE, place.dsn(EDGE))
    before = OF_EDGE["proxies"]
    assert seen(edge)["proxies"] == before
    place.write("proxies", "prx_us", {"nodes": {"all": True}})
    assert seen(edge)["proxies"] == before | {"prx_us"}
    place.write("proxies", "prx_us", DOCUMENTS["proxies"]["prx_us"])
    assert seen(edge)["proxies"] == before
    place.write("nodes", EDGE, {"name": "renamed", "role": "edge", "tags": ["us"]})
    assert seen(edge)["proxies"] == {"prx_all", "prx_default", "prx_tagged", "prx_us"}
    place.write("nodes", EDGE, DOCUMENTS["nodes"][EDGE])
    assert seen(edge)["proxies"] == before
    place.write("proxies", "prx_all", None)
    assert seen(edge)["proxies"] == before - {"prx_all"}
    place.write("proxies", "prx_all", DOCUMENTS["proxies"]["prx_all"])
    assert seen(edge) == OF_EDGE
    assert edge.number == place.owner.number


def test_a_node_that_follows_late_has_the_same(place: Place) -> None:
    one, two = place.fleet.node(OTHER, place.dsn(OTHER)), place.fleet.node("late", place.dsn(OTHER))
    others = {
        name: each for name, each in OF_EDGE.items() if name != "proxies"
    }  # it has no document: nothing runs there
    assert seen(one) == seen(two) == others


def test_an_edge_commits_nothing(place: Place) -> None:
    edge = place.fleet.node(EDGE, place.dsn(EDGE))
    edge.follow()
    with pytest.raises(StoreError, match="permission denied"):
        edge.change([Write("lists", "lst_b", {"id": "lst_b"})])
    assert seen(edge) == OF_EDGE


# --- a full node ---


def test_a_full_node_follows_and_commits_as_its_own_role(place: Place) -> None:
    full = place.fleet.node(FULL, place.dsn(FULL))
    full.follow()
    full.change([Write("lists", "lst_a", {"id": "lst_a", "by": "full"})])
    assert seen(full) == {name: set(each) for name, each in DOCUMENTS.items()}
    assert full.number > place.owner.number
    place.owner.follow()


def test_an_edge_reads_credentials_and_no_sign_ins(place: Place) -> None:
    with place.as_role(FULL) as connection:
        rows = [[name, "x", 1e10, [""], '{"id": "x"}'] for name in ("account_sessions", "credentials", "sign_ins")]
        connection.execute("SELECT proxyfleet.write_loose(%s, %s, false)", [FULL, json.dumps(rows)])
        connection.execute("INSERT INTO proxyfleet.lockouts VALUES ('p', 'n', 'infinity')")
    with place.as_role(EDGE) as connection:
        first, *others = connection.execute("SELECT * FROM proxyfleet.read_loose('{}', 9)").fetchall()
    assert (json.loads(first[0]), json.loads(first[1])) == ({FULL: 3}, {})
    assert [each[4] for each in others] == ["credentials"]


def test_last_uses_of_what_is_gone_are_forgotten(place: Place) -> None:
    with place.as_role(FULL) as connection:
        connection.execute("INSERT INTO proxyfleet.last_used VALUES ('api_keys', 'key_a', 1), ('api_keys', 'key_b', 1)")
        connection.execute("SELECT proxyfleet.forget_ended()")
        assert connection.execute("SELECT id FROM proxyfleet.last_used").fetchall() == [("key_a",)]


def test_a_full_node_does_what_needs_new_tables(place: Place) -> None:
    with place.as_role(FULL) as connection:
        connection.execute("SELECT proxyfleet.tend_usage()")
        connection.execute("SELECT proxyfleet.add_up_usage()")
        connection.execute("SELECT proxyfleet.prune(30, 1000)")
        connection.execute("SELECT proxyfleet.prune_history(30, 1000, 1000000)")


def test_a_full_node_brings_the_schema_forward_and_the_new_table_is_in_its_rights() -> None:
    with owner() as dsn, fleet(dsn) as made:
        place, full, edge, _ = another(made)
        new = Migration(9999, "new", "CREATE TABLE proxyfleet.new (a int); COMMENT ON TABLE proxyfleet.new IS '%'")
        with closing(Database(place.dsn(full))) as database:
            assert migrate(database, full, [*migrations(), new]) == [new]
        assert not place.refused(full, "INSERT INTO proxyfleet.new VALUES (1)")
        assert place.refused(edge, "SELECT FROM proxyfleet.new")
        assert place.refused(full, "DROP TABLE proxyfleet.new")


# --- beginning and end ---


def test_a_removed_node_is_out_within_a_second() -> None:
    with owner() as dsn, fleet(dsn) as made:
        place, full, edge, other = another(made)
        with place.as_role(edge) as connection, closing(Database(place.dsn(full))) as database:
            connection.execute("SELECT proxyfleet.heartbeat(%s, %s)", [edge, BEAT])
            assert end_role(database, edge)["pending"] == {"sign_ins": 3}
            wait_until(lambda: not is_alive(connection), "its connection has ended", 1)
            assert end_role(database, edge) == {}
        with pytest.raises(psycopg.OperationalError, match="not permitted to log in"):
            psycopg.connect(place.dsn(edge))
        with closing(Database(place.dsn(edge))) as removed, pytest.raises(DatabaseUnusable):
            removed.check()
        with place.as_role(other) as connection:
            assert is_alive(connection)


@table("problems", ["[]", "null", '{"pending": 5}', f'{{"pending": {{"sign_ins": {"9" * 5000}}}}}'])
def test_a_stolen_edge_is_removed_whatever_it_says_of_itself(problems: str) -> None:
    with owner() as dsn, fleet(dsn) as made:
        place, full, edge, _ = another(made)
        with place.as_role(edge) as connection:
            beat = BEAT.replace(json.dumps(json.loads(BEAT)["problems"]), problems)
            connection.execute("SELECT proxyfleet.heartbeat(%s, %s)", [edge, beat])
        with closing(Database(place.dsn(full))) as database:
            assert end_role(database, edge)["pending"] == {}


def test_a_full_node_to_which_an_edge_has_given_its_role_stays_a_full_one() -> None:
    """Each role may do that before PostgreSQL 15."""
    with owner() as dsn, fleet(dsn) as made:
        place, full, edge, _ = another(made)
        place.write("nodes", full, {"name": "full", "role": "full", "tags": []})
        node = made.node(full, place.dsn(full))
        place.write("proxies", "prx_before", {"nodes": {"names": ["edge"]}})
        node.follow()
        shared_server().execute(f"GRANT pf_{edge} TO pf_{full}")
        place.write("proxies", "prx_after", {"nodes": {"names": ["edge"]}})
        place.write("nodes", full, {"name": "full", "role": "full", "tags": ["eu"]})
        assert seen(node)["proxies"] == {"prx_before", "prx_after"}
        assert report(place, full, full, 3)[1] == 3, "it begins generations"


def test_no_function_that_an_edge_has_made_is_called_by_another_node() -> None:
    """Each role may make some in `public` before PostgreSQL 15."""
    with owner() as dsn, fleet(dsn) as made:
        place, full, edge, _ = another(made)
        made.execute("GRANT CREATE ON SCHEMA public TO PUBLIC")
        with place.as_role(edge) as stolen:
            stolen.execute(
                "CREATE FUNCTION public.json_array_elements(text) RETURNS SETOF json LANGUAGE plpgsql AS"
                " $$ BEGIN RAISE 'with the rights of %', session_user; END $$"
            )
        with closing(Database(place.dsn(full))) as database:
            assert database.transaction("SELECT count(*) FROM json_array_elements(%s)", ['["a"]']) == [(1,)]


@needs_pgbouncer
def test_each_node_signs_in_through_a_pooler_as_the_recipe_has_it_until_it_is_removed() -> None:
    recipe = (ROOT / "docs" / "how-to" / "behind-pgbouncer.md").read_text()
    statements = re.findall(r"^```sql\n(.*?)^```", recipe, re.MULTILINE | re.DOTALL)
    settings = "\n".join(re.findall(r"^auth_(?:type|user|query) = .*$", recipe, re.MULTILINE))
    server = shared_server()
    with owner() as dsn, fleet(dsn) as made:
        place, full, edge, _ = another(made)
        name = str(psycopg.conninfo.conninfo_to_dict(dsn)["dbname"])
        try:
            server.execute(statements[0], name)
            with pooler(server, "transaction", f"{settings}\nquery_wait_timeout = 2") as port:
                through = {node: psycopg.conninfo.make_conninfo(place.dsn(node), port=port) for node in (full, edge)}
                with closing(Database(through[full])) as database:
                    with psycopg.connect(through[edge], autocommit=True) as connection:
                        assert is_alive(connection)
                        end_role(database, edge)
                        wait_until(lambda: not is_alive(connection), "its connection has ended", 1)
                    with pytest.raises(psycopg.OperationalError):
                        psycopg.connect(through[edge])
                    database.check()
                with pytest.raises(psycopg.OperationalError, match="authentication failed"):
                    psycopg.connect(psycopg.conninfo.make_conninfo(through[full], password="wrong"))
        finally:
            server.execute("DROP SCHEMA IF EXISTS pooler CASCADE", name)
            server.execute("DROP ROLE IF EXISTS pgbouncer")


def is_alive(connection: psycopg.Connection[Any]) -> bool:
    try:
        connection.execute("SELECT 1")
    except psycopg.OperationalError:
        return False
    return True


def test_without_the_right_to_make_roles_the_error_says_what_can_be_done() -> None:
    with owner(may_make_roles=False) as dsn, fleet(dsn) as made:
        with pytest.raises(DatabaseUnusable, match=r"CREATEROLE.*--shared-role"):
            begin_roles(made.database, NodeLogin(FULL, "full"))
        node = made.node("a")
        node.change([Write("lists", "lst_a", {"id": "lst_a"})])
        assert made.execute("SELECT has_roles FROM proxyfleet.fleet") == [(False,)]


@table(
    "node, role, password",
    [
        ("x", "full", "SCRAM-SHA-256$"),
        ("nod_a; DROP", "full", "SCRAM-SHA-256$"),
        ("nod_a", "postgres", "SCRAM-SHA-256$"),
        ("nod_a", "full", "plain"),
    ],
)
def test_a_role_is_made_of_nothing_else(place: Place, node: str, role: str, password: str) -> None:
    with (
        closing(Database(place.dsn(FULL))) as full,
        full.session() as session,
        pytest.raises(DatabaseError, match="no role can be made"),
    ):
        session.transaction("SELECT proxyfleet.make_node_role(%s, %s, %s)", [node, role, password])


def test_a_login_is_in_no_text() -> None:
    login = NodeLogin(FULL, "full")
    assert login.password not in repr(login)
    assert login.password not in str(login.statement)
    assert verifier("x") != verifier("x")


def test_a_dsn_for_another_role_has_nothing_of_the_machine() -> None:
    login = NodeLogin(FULL, "full", "secret")
    made = login.dsn("host=db port=5433 dbname=pf user=a password=b sslmode=verify-full sslkey=/k passfile=/p")
    assert psycopg.conninfo.conninfo_to_dict(made) == {
        "host": "db",
        "port": "5433",
        "dbname": "pf",
        "user": f"pf_{FULL}",
        "password": "secret",
        "sslmode": "verify-full",
    }
    with pytest.raises(DatabaseUnusable) as caught:
        login.dsn("host=db password=hidden x")
    assert "hidden" not in str(caught.value)


def test_what_an_edge_reads_delays_no_migration() -> None:
    with owner() as dsn, fleet(dsn) as made:
        place, full, edge, _ = another(made)
        new = Migration(9999, "new", "ALTER TABLE proxyfleet.documents ADD COLUMN new integer")
        with (
            place.as_role(edge) as reading,
            place.as_role(edge) as idle,
            closing(Database(place.dsn(full))) as database,
        ):
            idle.execute("SELECT 1")
            reading.execute("BEGIN; SELECT FROM proxyfleet.fleet; SELECT FROM proxyfleet.documents")
            assert migrate(database, full, [*migrations(), new], by_itself=True) == [new]
            assert (is_alive(reading), is_alive(idle)) == (False, True)


def test_the_next_release_forbids_temporary_tables_to_edges_that_there_are() -> None:
    temporary = "CREATE TEMP TABLE mine (a int)"
    with owner() as dsn, fleet(dsn, known=[each for each in migrations() if each.number < 18]) as made:
        place, full, edge, _ = another(made)
        assert not place.refused(edge, temporary)
        with closing(Database(place.dsn(full))) as database:
            assert migrate(database, full, by_itself=True)[-1].number >= 18
        assert place.refused(edge, temporary)
        assert made.execute(temporary) == [], "its owner may"


@table("may_bound", [True, False])
def test_files_of_sorts_of_an_edge_are_bound_where_the_owner_may_do_so(may_bound: bool) -> None:
    with owner() as dsn, fleet(dsn) as made:
        name = psycopg.conninfo.conninfo_to_dict(dsn)["user"]
        if may_bound:
            shared_server().execute(f"GRANT SET ON PARAMETER temp_file_limit TO {name}")
        place, full, edge, _ = another(made)
        limit, more = "SHOW temp_file_limit", "SET temp_file_limit = -1"
        with place.as_role(edge) as connection, place.as_role(full) as of_full:
            assert connection.execute(limit).fetchall() == [("1GB" if may_bound else "-1",)]
            assert of_full.execute(limit).fetchall() == [("-1",)]
        assert place.refused(edge, more)
        assert place.refused(edge, f"ALTER ROLE pf_{edge} RESET temp_file_limit") == may_bound


def test_a_full_node_brings_the_schema_of_the_former_release_forward_with_all_rights() -> None:
    former = [each for each in migrations() if each.number < 8]
    with owner() as dsn, fleet(dsn, known=former) as made:
        place, full, edge, _ = another(made)
        with closing(Database(place.dsn(full))) as database:
            assert migrate(database, full, by_itself=True)[0].number == 8
            assert not place.refused(full, "SELECT proxyfleet.set_rights()")
        assert place.refused(edge, "INSERT INTO proxyfleet.audit VALUES ('x', 1, 1, '', '')")
