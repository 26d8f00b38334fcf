"""GET /usage in a fleet: what all nodes have reported, read from the database."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import pytest

from actors.cluster.database import Database
from actors.cluster.usage_report import LedgerReport, LedgerRow, ReportedAccount, UsageTable
from api.cluster.fleet_usage import UsageOfFleet
from api.fleet import ThisNode
from api.queries.usage_report import days_on_all_nodes
from tests.kit.api_stage import Api
from tests.kit.postgresql import migrated_database, needs_postgresql
from tests.kit.tables import table

pytestmark = needs_postgresql

HOUR = int(time.time() // 3600)
DAY = HOUR // 24
OLD = HOUR - 10 * 24


class NodeOfTest(ThisNode):
    """A node, as requests need it."""

    node_id = "nod_1"

    def __init__(self, database: Database) -> None:
        self.usage = UsageOfFleet(database)


class FleetApi(Api):
    node: NodeOfTest

    def __init__(self, dsn: str) -> None:
        self.database = Database(dsn)
        self.node = NodeOfTest(self.database)
        super().__init__()
        self._execute(
            "INSERT INTO proxyfleet.documents (collection, id, revision, place, body)"
            """ VALUES ('nodes', 'nod_1', 1, 0, '{"name": "fra1"}'), ('nodes', 'nod_2', 1, 1, '{"name": "fra2"}')"""
        )
        for node, count in (("nod_1", 100), ("nod_2", 10), ("nod_3", 1)):
            rows = [
                LedgerRow(place, hour, account, proxy, count, 2 * count, 1, 1500, 0)
                for place, (hour, account, proxy) in enumerate(
                    [(HOUR, "acc_1", "px1"), (HOUR, "acc_2", "px2"), (HOUR - 1, "acc_1", "px2"), (OLD, "acc_1", "px1")],
                    1,
                )
            ]
            accounts = [
                ReportedAccount(each, 0, 0, "day", False, 1, "", f"name{each[-1]}") for each in ("acc_1", "acc_2")
            ]
            UsageTable(self.database, node).report("l1", LedgerReport(0, 4, HOUR, rows, accounts), 0)
        for _ in range(3):
            self._execute("SELECT proxyfleet.add_up_usage()")

    def _execute(self, statement: str) -> None:
        with self.database.session() as session:
            session.transaction(statement)

    def usage(self, **query: str) -> dict[str, Any]:
        start = {"from": text(24 * (DAY - 12)), "to": text(HOUR + 1)}
        response = self.get("/usage", self.token(), params={**start, **query})
        assert response.status_code == 200, response.text
        return response.json["data"]  # type: ignore[no-any-return]

    def rows(self, *columns: str, **query: str) -> set[tuple[Any, ...]]:
        rows = self.usage(**query)["usage"]
        found = {(row["from"], *(row[each] for each in columns), row["bytes_in"]) for row in rows}
        assert len(found) == len(rows)
        return found


def text(hour: int) -> str:
    return datetime.fromtimestamp(3600 * hour, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@pytest.fixture(scope="module")
def api() -> Iterator[FleetApi]:
    with migrated_database() as dsn:
        made = FleetApi(dsn)
        with closing(made.database):
            yield made
            made.end()


def test_usage_is_that_of_all_nodes_with_the_last_user_name(api: FleetApi) -> None:
    data = api.usage(interval="hour")
    assert data["total"] == {
        "bytes_in": 444, "bytes_out": 888, "requests": 12, "connection_seconds": 18.0, "refusals": 0
    }  # fmt: skip
    assert api.rows("account", "username", interval="hour") == {
        (text(OLD), "acc_1", "name1", 111),
        (text(HOUR - 1), "acc_1", "name1", 111),
        (text(HOUR), "acc_1", "name1", 111),
        (text(HOUR), "acc_2", "name2", 111),
    }
    starts = [row["from"] for row in data["usage"]]
    assert starts == sorted(starts)


def test_of_each_node_it_is_by_name_of_one_that_is_gone_by_id_and_of_hours_that_are_added_up_by_day(
    api: FleetApi,
) -> None:
    old, today = text(OLD // 24 * 24), text(DAY * 24)
    expected = {
        (day, name, count * times)
        for name, count in (("fra1", 100), ("fra2", 10), ("nod_3", 1))
        for day, times in ((old, 1), (today, 3 if HOUR % 24 else 2))
    }
    found = api.rows("node", group_by="node", interval="day")
    assert {each for each in found if each[0] != text(DAY * 24 - 24)} == expected
    assert (text(OLD), None, 111) in api.rows("node", group_by="node", interval="hour")
    assert sum(each[-1] for each in api.rows("node", group_by="node", interval="month")) == 444


def test_figures_that_add_up_to_more_than_a_number_has_room_for_are_the_largest_number(api: FleetApi) -> None:
    """Those that a stolen edge has claimed."""
    api._execute(
        "INSERT INTO proxyfleet.usage_hours"
        f" SELECT {HOUR}, 'acc_x', 'px', 'nod_x', n::text, 1::bigint << 62, 0, 0, 0, 0 FROM generate_series(1, 3) n"
    )
    try:
        assert api.usage()["total"]["bytes_in"] == 2**63 - 1
        assert (text(HOUR), "acc_x", 2**63 - 1) in api.rows("account", interval="hour")
    finally:
        api._execute("DELETE FROM proxyfleet.usage_hours WHERE account = 'acc_x'")


def test_the_days_of_one_account_are_those_on_all_nodes(api: FleetApi) -> None:
    days = days_on_all_nodes(api.node.usage, "acc_1", time.time(), 31)
    assert sum(each["bytes_in"] for each in days) == 333
    assert [each["from"] for each in days] == sorted({each["from"] for each in days})
    assert days[0] == {
        "from": text(OLD // 24 * 24), "to": text(OLD // 24 * 24 + 24), "bytes_in": 111, "bytes_out": 222,
        "requests": 3, "connection_seconds": 4.5, "refusals": 0,
    }  # fmt: skip
    assert days_on_all_nodes(api.node.usage, "acc_none", time.time(), 31) == []


@table(
    ("query", "total"),
    [
        ({"account": "acc_2"}, 111),
        ({"account": "acc_1", "interval": "hour", "group_by": "account,node"}, 333),
        ({"account": "acc_none"}, 0),
        ({"interval": "month", "group_by": "proxy,node"}, 444),
        ({"group_by": "tag"}, 444),
        ({"interval": "total", "group_by": "account,plan,quota"}, 444),
        ({"interval": "total", "top": "1"}, 444),
        ({"interval": "day", "top": "1", "group_by": "node"}, 444),
    ],
)
def test_what_is_selected_is_all_that_is_added_up(query: dict[str, str], total: int) -> None:
    with migrated_database() as dsn:
        api = FleetApi(dsn)
        data = api.usage(**query)
        assert data["total"]["bytes_in"] == total == sum(row["bytes_in"] for row in data["usage"])
        api.end()
        api.database.close()


def test_without_the_database_it_is_not_known(api: FleetApi) -> None:
    api.database.close()
    response = api.get("/usage", api.token())
    assert (response.status_code, response.json["error"]["code"]) == (503, "DATABASE_UNAVAILABLE")
    assert response.headers["Retry-After"]
