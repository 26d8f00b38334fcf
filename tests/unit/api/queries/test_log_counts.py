"""Access records in numbers through the API: what the log indexer is asked for, and the views of its replies."""

from __future__ import annotations

from typing import Any

import pytest

from actors.bus.messages.common import LOGS, Failed
from actors.bus.messages.records import CountLogs, LogCounts
from actors.logs.record_schema import HOST, OUTCOME
from api.concurrency_limit import COUNTS_EACH
from api.queries.records.log_operations import BUCKETS_MAX, FACETS, STEPS
from tests.kit.api_stage import PROXY, Api, error_of
from tests.kit.tables import table

HOUR = "start_time=2026-01-31T12:00:00Z&end_time=2026-01-31T13:00:00Z"


class Indexer:
    """Played here: it remembers what it is asked."""

    def __init__(self, api: Api) -> None:
        self.asked: list[CountLogs] = []
        self.reply: Any = LogCounts(1_769_860_800, (3, 0), (1, 0), {HOST: (("example.com", 2, 5, 6),)}, exact=False)
        api.fleet.others[LOGS] = self._reply

    def _reply(self, message: Any) -> Any:
        self.asked.append(message)
        return self.reply


@pytest.fixture
def indexer(api: Api) -> Indexer:
    return Indexer(api)


def test_records_over_time(api: Api, indexer: Indexer) -> None:
    path = f"/logs/histogram?{HOUR}&search=example&status_class=5xx&buckets=61"
    data = api.get(path, api.token()).json["data"]
    assert data == {
        "start": "2026-01-31T12:00:00.000Z",
        "step": 60,
        "records": [3, 0],
        "failed": [1, 0],
        "total": 3,
        "exact": False,
    }
    (asked,) = indexer.asked
    assert (asked.step, asked.fields) == (60, ())
    assert (asked.query.search, asked.query.status_class) == ("example", 5)
    assert asked.query.end - asked.query.start == 3600


@pytest.mark.parametrize(
    ("buckets", "step"), [(500, 10), (361, 10), (360, 30), (60, 300), (13, 300), (2, 3600), (1, 604_800)]
)
def test_buckets_are_as_many_as_are_wanted_at_most(api: Api, indexer: Indexer, buckets: int, step: int) -> None:
    assert api.get(f"/logs/histogram?{HOUR}&buckets={buckets}", api.token()).json["data"]["step"] == step
    assert indexer.asked[0].step == step
    assert step in STEPS


def test_the_values_of_a_field(api: Api, indexer: Indexer) -> None:
    data = api.get(f"/logs/values?{HOUR}", api.token()).json["data"]
    entry = {"value": "example.com", "records": 2, "bytes_in": 5, "bytes_out": 6}
    assert data == {"field": HOST, "values": [entry], "total": 3, "exact": False}
    (asked,) = indexer.asked
    assert (asked.fields, asked.most) == ((HOST,), 10)
    assert asked.step > 3600, "one bucket"
    assert api.get("/logs/values?field=user&limit=3", api.token()).json["data"]["values"] == []
    assert (indexer.asked[1].fields, indexer.asked[1].most) == (("user",), 3)


def test_the_values_of_the_usual_fields_are_counted_at_once(api: Api, indexer: Indexer) -> None:
    data = api.get(f"/logs/facets?{HOUR}&limit=5&outcome=refused", api.token()).json["data"]
    assert [each["field"] for each in data["facets"]] == list(FACETS)
    assert {each["field"]: len(each["values"]) for each in data["facets"]} == {**dict.fromkeys(FACETS, 0), HOST: 1}
    assert (data["total"], data["exact"]) == (3, False)
    (asked,) = indexer.asked
    assert (asked.fields, asked.most, asked.query.outcome) == (FACETS, 5, "refused")
    assert OUTCOME in FACETS


@table(
    ("path", "field"),
    [
        ("/logs/histogram?buckets=0", "buckets"),
        (f"/logs/histogram?buckets={BUCKETS_MAX + 1}", "buckets"),
        ("/logs/histogram?start_time=2026-01-31T12:00:00Z&end_time=2026-01-30T12:00:00Z", "start_time"),
        ("/logs/histogram?start_time=1990-01-01T12:00:00Z", "start_time"),
        ("/logs/values?field=detail", "field"),
        ("/logs/values?field=target_url", "field"),
        ("/logs/values?limit=101", "limit"),
        ("/logs/facets?outcome=denied", "outcome"),
        ("/logs/histogram?cursor=x", "cursor"),
    ],
)
@pytest.mark.usefixtures("indexer")
def test_a_bad_query_is_400_and_names_the_parameter(api: Api, path: str, field: str) -> None:
    status, _, details = error_of(api.get(path, api.token()))
    assert (status, details["field"]) == (400, field)


@pytest.mark.parametrize("kind", ["histogram", "values", "facets"])
def test_a_key_of_some_proxies_counts_the_records_of_these(api: Api, indexer: Indexer, kind: str) -> None:
    made = [
        api.post("/proxies", {**PROXY, "name": f"p{number}", "port": 3128 + number}, api.token()).json["data"]["proxy"]
        for number in range(2)
    ]
    headers = api.key(scope={"proxies": [made[0]["id"]]})
    assert api.get(f"/logs/{kind}", headers).status_code == 200
    assert indexer.asked[0].query.proxy_ids == (made[0]["id"],)
    assert api.get(f"/logs/{kind}?proxy_id={made[1]['id']}", headers).status_code == 403


def test_a_log_that_can_not_be_read_is_500_and_too_many_at_once_are_429(api: Api, indexer: Indexer) -> None:
    indexer.reply = Failed("the log can't be read: disk I/O error")
    assert api.get("/logs/histogram", api.token()).status_code == 500
    limit = api.services.log_search.counts
    slots = [limit.acquire(api.admin.id) for _ in range(COUNTS_EACH)]
    assert api.get("/logs/histogram", api.token()).status_code == 429
    for slot in slots:
        slot.release()
    assert limit.acquired == 0
