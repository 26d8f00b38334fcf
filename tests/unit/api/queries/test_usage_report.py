"""Reports of usage: by interval and group, as JSON and CSV, with the totals that the collector has stored."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from actors.metrics.usage.account_usage import UsageLedger
from api.queries.usage_report import UsageQuery, UsageReport, cell, days_of
from tests.kit.api_stage import Api, error_of
from tests.kit.clocks import Clock
from tests.kit.live_state import counted_line
from tests.kit.tables import table
from tests.unit.api.creating import create

NOON = datetime(2026, 3, 31, 12, tzinfo=UTC).timestamp()
MARCH = {"from": "2026-03-01T00:00:00Z", "to": "2026-04-02T00:00:00Z"}


class Books:
    """The collector's file, written as the collector does."""

    def __init__(self, api: Api) -> None:
        self.wall = Clock(NOON)
        self.ledger = UsageLedger(api.services.data.metrics, self.wall)
        self._counted: dict[tuple[str, str], int] = {}

    def uses(self, account: str, proxy: str, count: int, name: str = "ada") -> None:
        total = self._counted[account, proxy] = self._counted.get((account, proxy), 0) + count
        serial = 1 + list(self._counted).index((account, proxy))
        figures = (total, 2 * total, total // 10, 1500 * total // 10, 0)
        with self.ledger.changes():
            self.ledger.book(counted_line(account, figures, proxy, serial=serial, name=name))


@pytest.fixture
def books(api: Api) -> Iterator[Books]:
    made = Books(api)
    yield made
    made.ledger.close()


def report(api: Api, **query: str) -> dict[str, Any]:
    response = api.get("/usage", api.token(), params={**MARCH, **query})
    assert response.status_code == 200, response.text
    return response.json["data"]  # type: ignore[no-any-return]


def bytes_in(data: dict[str, Any], *columns: str) -> list[tuple[Any, ...]]:
    return [(*(row[each] for each in ("from", *columns)), row["bytes_in"]) for row in data["usage"]]


def test_without_any_usage_the_report_is_empty(api: Api) -> None:
    data = report(api)
    assert (data["usage"], data["interval"]) == ([], "day")


def test_only_months_that_have_usage_are_read(api: Api, books: Books) -> None:
    books.uses("acc_1", "px1", 100)
    selection = UsageQuery(0, datetime(8999, 1, 1, tzinfo=UTC).timestamp(), "month", ("account",))
    made = UsageReport(api.services.data.usage, selection, dict)
    (ranges,) = [list(made._ranges(database)) for database in made._open()]
    assert len(ranges) == 1
    assert made.total()["bytes_in"] == 100


def test_rows_are_by_hour_day_or_month_and_begin_and_end_with_them(api: Api, books: Books) -> None:
    books.uses("acc_1", "px1", 100)
    books.wall.now += 3600
    books.uses("acc_1", "px2", 20)
    books.wall.now += 86_400
    books.uses("acc_1", "px1", 5)
    assert bytes_in(report(api, interval="hour")) == [
        ("2026-03-31T12:00:00Z", 100),
        ("2026-03-31T13:00:00Z", 20),
        ("2026-04-01T13:00:00Z", 5),
    ]
    days = report(api)
    assert bytes_in(days, "to") == [
        ("2026-03-31T00:00:00Z", "2026-04-01T00:00:00Z", 120),
        ("2026-04-01T00:00:00Z", "2026-04-02T00:00:00Z", 5),
    ]
    assert days["usage"][0] == {
        "from": "2026-03-31T00:00:00Z",
        "to": "2026-04-01T00:00:00Z",
        "account": "acc_1",
        "username": "ada",
        "bytes_in": 120,
        "bytes_out": 240,
        "requests": 12,
        "connection_seconds": 18.0,
        "refusals": 0,
    }
    months = report(api, interval="month")
    assert bytes_in(months, "to") == [
        ("2026-03-01T00:00:00Z", "2026-04-01T00:00:00Z", 120),
        ("2026-04-01T00:00:00Z", "2026-05-01T00:00:00Z", 5),
    ]
    assert months["total"]["bytes_in"] == days["total"]["bytes_in"] == 125
    assert bytes_in(report(api, to="2026-04-01T00:00:00Z")) == [("2026-03-31T00:00:00Z", 120)]


def test_rows_are_by_account_proxy_or_both(api: Api, books: Books) -> None:
    books.uses("acc_1", "px1", 100)
    books.uses("acc_1", "px2", 20)
    books.uses("acc_2", "px1", 3, "bob")
    day = "2026-03-31T00:00:00Z"
    assert bytes_in(report(api), "username") == [(day, "ada", 120), (day, "bob", 3)]
    assert bytes_in(report(api, group_by="proxy"), "proxy") == [(day, "px1", 103), (day, "px2", 20)]
    assert bytes_in(report(api, group_by="proxy,account"), "account", "proxy") == [
        (day, "acc_1", "px1", 100),
        (day, "acc_1", "px2", 20),
        (day, "acc_2", "px1", 3),
    ]


def test_rows_by_proxy_have_its_name_or_the_id_of_one_that_is_gone(api: Api, books: Books) -> None:
    made = [create(api, api.token(), name=f"p{number}", port=4000 + number) for number in range(101)]
    books.uses("acc_1", made[-1]["id"], 100)
    books.uses("acc_1", "prx_gone", 20)
    rows = report(api, group_by="proxy", interval="total", top="5")["usage"]
    assert [(row["proxy"], row["proxy_name"]) for row in rows] == [(made[-1]["id"], "p100"), ("prx_gone", "prx_gone")]
    lines = api.get("/usage", api.token(), params={**MARCH, "group_by": "proxy", "format": "csv"}).text.splitlines()
    assert lines[0].startswith("from,to,proxy,proxy_name,bytes_in")
    assert sorted(line.split(",")[3] for line in lines[1:]) == ["p100", "prx_gone"]


def test_a_report_of_one_account_has_its_rows_alone(api: Api, books: Books) -> None:
    books.uses("acc_1", "px1", 100)
    books.uses("acc_2", "px1", 20, "bob")
    data = report(api, account="acc_2")
    assert bytes_in(data, "account") == [("2026-03-31T00:00:00Z", "acc_2", 20)]
    assert data["total"]["bytes_in"] == 20
    assert report(api, account="acc_3")["usage"] == []


def test_a_report_of_one_account_takes_its_user_name_and_refuses_others(api: Api, books: Books) -> None:
    made = api.post("/accounts", {"username": "eve", "password": "secret-word"}, api.token())
    books.uses(made.json["data"]["account"]["id"], "px1", 7, "eve")
    books.uses("acc_1", "px1", 100)
    assert report(api, account="eve")["total"]["bytes_in"] == 7
    response = api.get("/usage?account=mallory", api.token())
    assert error_of(response)[0:2] == (400, "INVALID_REQUEST")
    assert error_of(response)[2]["field"] == "account"


def test_an_account_with_two_tags_is_in_both_and_once_in_the_total(api: Api, books: Books) -> None:
    token = api.token()
    api.post("/plans", {"name": "basic"}, token)
    made = [
        api.post("/accounts", {"username": name, "password": "secret-word", **more}, token).json["data"]["account"][
            "id"
        ]
        for name, more in (("ada", {"plan": "basic", "tags": ["a", "b"]}), ("bob", {"tags": ["b"]}))
    ]
    for account, count in zip((*made, "acc_gone"), (100, 20, 3), strict=True):
        books.uses(account, "px1", count)
    by_tag = report(api, group_by="tag")
    assert [(row["tag"], row["bytes_in"]) for row in by_tag["usage"]] == [(None, 3), ("a", 100), ("b", 120)]
    assert by_tag["total"]["bytes_in"] == 123
    by_plan = report(api, group_by="plan", interval="month")
    assert [(row["plan"], row["bytes_in"]) for row in by_plan["usage"]] == [(None, 23), ("basic", 100)]


def test_rows_have_the_quota_of_the_account_or_else_of_its_plan(api: Api, books: Books) -> None:
    token, month = api.token(), {"bytes": 5_000, "period": "month"}
    api.post("/plans", {"name": "basic", "quota": month}, token)
    for name, more in {
        "ada": {"plan": "basic"},
        "bob": {"plan": "basic", "quota": {"bytes": 7_000, "period": "day"}},
        "eve": {"plan": "basic", "quota": {"bytes": 0}},
        "ian": {},
    }.items():
        made = api.post("/accounts", {"username": name, "password": "secret-word", **more}, token)
        books.uses(made.json["data"]["account"]["id"], "px1", 10, name)
    rows = report(api, group_by="account,plan,quota", interval="total")["usage"]
    assert {row["username"]: (row["plan"], row["quota"], row["quota_period"]) for row in rows} == {
        "ada": ("basic", 5_000, "month"),
        "bob": ("basic", 7_000, "day"),
        "eve": ("basic", None, None),
        "ian": (None, None, None),
    }
    by_quota = report(api, group_by="quota", interval="total")
    assert bytes_in(by_quota, "quota") == [
        (MARCH["from"], None, 20),
        (MARCH["from"], 5_000, 10),
        (MARCH["from"], 7_000, 10),
    ]
    line = api.get("/usage", token, params={**MARCH, "group_by": "quota", "format": "csv"}).text.splitlines()[-1]
    assert line.startswith("2026-03-31T00:00:00Z,2026-04-01T00:00:00Z,7000,day,10,")


def test_the_total_of_a_range_is_one_row_for_each_group(api: Api, books: Books) -> None:
    books.uses("acc_1", "px1", 100)
    books.wall.now += 86_400
    books.uses("acc_1", "px1", 20)
    books.uses("acc_2", "px1", 3, "bob")
    data = report(api, interval="total")
    assert bytes_in(data, "to", "account") == [(*MARCH.values(), "acc_1", 120), (*MARCH.values(), "acc_2", 3)]
    assert data["total"]["bytes_in"] == 123
    assert [row["bytes_in"] for row in report(api, interval="total", group_by="node")["usage"]] == [123]
    assert bytes_in(report(api, interval="total", to="2026-03-31T12:00:00Z"), "account") == [
        (MARCH["from"], "acc_1", 100)
    ]


def test_the_groups_that_have_used_most_come_first_and_the_others_are_one_row(api: Api, books: Books) -> None:
    for account, count in (("acc_1", 5), ("acc_2", 100), ("acc_3", 40), ("acc_4", 7)):
        books.uses(account, "px1", count, account)
    books.wall.now += 86_400
    books.uses("acc_3", "px1", 100, "acc_3")
    books.uses("acc_1", "px1", 1, "acc_1")
    (first, second) = ("2026-03-31T00:00:00Z", "2026-04-01T00:00:00Z")

    def ordered(**query: str) -> list[tuple[Any, ...]]:
        rows = report(api, **query)["usage"]
        return [(row["from"], row.get("account"), row.get("others"), row["bytes_in"], row["requests"]) for row in rows]

    assert ordered(top="2") == [
        (first, "acc_3", None, 40, 4),
        (first, "acc_2", None, 100, 10),
        (first, None, 2, 12, 0),
        (second, "acc_3", None, 100, 10),
        (second, None, 1, 1, 0),
    ]
    assert [row[1:4] for row in ordered(top="1", interval="total")] == [("acc_3", None, 140), (None, 3, 113)]
    assert [row[1] for row in ordered(top="4", interval="month")] == [
        "acc_3",
        "acc_2",
        "acc_4",
        "acc_1",
        "acc_3",
        "acc_1",
    ]
    assert "others" not in report(api, top="4")["usage"][0]


@table(
    ("query", "name"),
    [
        ({"from": "2026-03-01T00:00:00Z", "to": "2026-04-01T00:00:00Z"}, "usage-2026-03"),
        ({"from": "2026-02-01T00:00:00Z", "to": "2026-03-01T00:00:00Z"}, "usage-2026-02"),
        ({"from": "2026-03-01T00:00:00Z", "to": "2026-05-01T00:00:00Z"}, "usage-2026-03-01-to-2026-04-30"),
        ({"from": "2026-03-02T00:00:00Z", "to": "2026-04-01T00:00:00Z"}, "usage-2026-03-02-to-2026-03-31"),
        ({"from": "2026-03-02T03:00:00Z", "to": "2026-03-02T04:00:00Z"}, "usage-2026-03-02"),
        ({"from": "2026-03-02T00:00:00Z", "to": "2026-03-02T00:00:00Z"}, "usage-2026-03-02"),
    ],
)
def test_the_file_is_called_by_its_period(api: Api, query: dict[str, str], name: str) -> None:
    response = api.get("/usage", api.token(), params={**query, "format": "csv"})
    assert response.headers["Content-Disposition"] == f'attachment; filename="{name}.csv"'


def test_rows_of_a_removed_account_stay_under_its_id_and_last_name(api: Api, books: Books) -> None:
    books.uses("acc_1", "px1", 100)
    with books.ledger.changes():
        books.ledger.forget(["acc_1"])
    assert bytes_in(report(api), "account", "username") == [("2026-03-31T00:00:00Z", "acc_1", "ada", 100)]


@pytest.mark.parametrize("how", ["format", "Accept"])
def test_csv_has_a_line_for_each_row_and_no_formula(api: Api, books: Books, how: str) -> None:
    books.uses("acc_1", "px1", 100, '=HYPERLINK("http://x")')
    books.uses("acc_2", "px1", 3, 'b,o"b')
    query = {**MARCH, "group_by": "account,proxy", **({"format": "csv"} if how == "format" else {})}
    headers = {**api.token(), **({"Accept": "text/csv"} if how == "Accept" else {})}
    response = api.get("/usage", headers, params=query)
    assert response.headers["Content-Type"].startswith("text/csv")
    assert response.headers["X-Usage-Total"].startswith("bytes_in=103; ")
    lines = list(csv.DictReader(io.StringIO(response.text)))
    assert [(line["username"], line["proxy"], line["bytes_in"]) for line in lines] == [
        ('\'=HYPERLINK("http://x")', "px1", "100"),
        ('b,o"b', "px1", "3"),
    ]


def test_csv_has_metadata_of_accounts_by_choice_or_all(api: Api, books: Books) -> None:
    body = {"username": "ada", "metadata": {"customer": "47,11", "site": "=1"}}
    ada = api.post("/accounts", body, api.token()).json["data"]["account"]["id"]
    api.post("/accounts", {"username": "eve", "metadata": {"note": "x"}}, api.token())
    books.uses(ada, "px1", 100, "ada")
    books.uses("acc_gone", "px1", 3, "gone")

    def lines(metadata: str, **query: str) -> list[dict[str, str]]:
        response = api.get("/usage", api.token(), params={**MARCH, "format": "csv", "metadata": metadata, **query})
        assert response.status_code == 200, response.text
        return sorted(csv.DictReader(io.StringIO(response.text)), key=lambda line: -int(line["bytes_in"]))

    chosen, gone = lines("customer, nothing")
    assert (chosen["metadata.customer"], chosen["metadata.nothing"]) == ("47,11", "")
    assert (gone["username"], gone["metadata.customer"]) == ("gone", "")
    (everything, _) = lines("*", group_by="account,proxy")
    assert {name: text for name, text in everything.items() if name.startswith("metadata.")} == {
        "metadata.customer": "47,11",
        "metadata.note": "",
        "metadata.site": "'=1",
    }
    limited = api.key(permissions=["metrics.read"])
    query = {**MARCH, "format": "csv", "metadata": "*"}
    assert api.get("/usage", limited, params=query).status_code == 403
    assert api.get("/usage", limited, params={**MARCH, "format": "csv"}).status_code == 200


@table("text", ["=1", "+1", "-1", "@x", "\tx", "\rx", "\nx", "\uff1d1", "'=1"])
def test_what_a_spreadsheet_would_evaluate_is_a_text(text: str) -> None:
    assert cell(text) == f"'{text}"


@table(
    ("query", "field"),
    [
        ({"group_by": "user"}, "group_by"),
        ({"from": "2026-05-01T00:00:00Z"}, "from"),
        ({"interval": "week"}, "interval"),
        ({"interval": "hour", "from": "2026-01-01T00:00:00Z"}, "interval"),
        ({"format": "xml"}, "format"),
        ({"metadata": "*"}, "metadata"),
        ({"metadata": "*", "format": "csv", "group_by": "proxy"}, "metadata"),
        ({"top": "0"}, "top"),
        ({"top": "5", "format": "csv"}, "top"),
    ],
)
def test_a_wrong_parameter_is_named(api: Api, query: dict[str, str], field: str) -> None:
    response = api.get("/usage", api.token(), params={**MARCH, **query})
    assert (response.status_code, response.json["error"]["details"]["field"]) == (400, field)


def test_a_key_with_a_scope_gets_the_rows_of_its_proxies(api: Api, books: Books) -> None:
    made = api.post("/proxies", {"name": "p", "port": 3128, "protocol": "http"}, api.token()).json["data"]["proxy"]
    books.uses("acc_1", made["id"], 100)
    books.uses("acc_1", "px2", 20)
    body = {"name": "k", "permissions": ["metrics.read"], "scope": {"proxies": [made["id"]]}}
    key = api.post("/api-keys", body, api.token())
    assert key.status_code == 201, key.text
    headers = {"X-API-Key": key.json["data"]["key"]}
    data = api.get("/usage", headers, params=MARCH).json["data"]
    assert (data["total"]["bytes_in"], [row["bytes_in"] for row in data["usage"]]) == (100, [100])


def test_the_days_of_one_account_are_its_own_and_the_last_ones(api: Api, books: Books) -> None:
    assert days_of(api.services.data.usage, "acc_none", NOON, 31) == []
    books.uses("acc_1", "px1", 100)
    books.uses("acc_1", "px2", 20)
    books.uses("acc_2", "px1", 7)
    books.wall.now += 2 * 86_400
    books.uses("acc_1", "px1", 5)
    days = days_of(api.services.data.usage, "acc_1", books.wall.now, 31)
    assert [(each["from"], each["to"], each["bytes_in"], each["bytes_out"]) for each in days] == [
        ("2026-03-31T00:00:00Z", "2026-04-01T00:00:00Z", 120, 240),
        ("2026-04-02T00:00:00Z", "2026-04-03T00:00:00Z", 5, 10),
    ]
    assert [each["bytes_in"] for each in days_of(api.services.data.usage, "acc_1", books.wall.now, 2)] == [5]
    assert [each["bytes_in"] for each in days_of(api.services.data.usage, "acc_2", books.wall.now, 31)] == [7]


def test_a_file_that_cannot_be_read_is_503_and_the_log_has_the_cause(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    api.services.data.usage.parent.mkdir(parents=True, exist_ok=True)
    api.services.data.usage.write_bytes(b"no database at all, but long enough to be taken for one" * 100)

    response = api.get("/usage", api.token())

    assert response.status_code == 503
    assert "the usage of accounts cannot be read: file is not a database" in caplog.text
