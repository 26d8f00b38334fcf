"""Metrics by the API: what is asked of the collector, what is refused, what a scope keeps from a key."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest

from actors.bus.messages.common import METRICS
from actors.bus.messages.metrics import MetricSeries, QueryMetricSeries, QueryRealtime, Realtime, RecentUse
from actors.metrics.catalogue import NAMES
from actors.metrics.recent import upstream_key
from actors.pools.state import number_of, own_numbers
from api.engine.responses import model_of
from api.queries.metrics.metric_operations import Snapshot
from tests.kit.api_stage import PROXY, Api, error_of
from tests.kit.tables import table

NOON = 1_767_268_800


@pytest.fixture
def asked(api: Api) -> list[Any]:
    """The messages that the collector receives; every metric is 1.5, but in every second bucket there is no mean."""
    received: list[Any] = []

    def response(message: Any) -> Any:
        received.append(message)
        if isinstance(message, QueryRealtime):
            uses = {each: RecentUse((7,) * 12, (5,) * 12, (2,) * 12) for each in message.recent if each != "prx_unused"}
            return Realtime(float(NOON), dict.fromkeys(model_of(Snapshot).model_fields, 3), recent=uses, unknown=10)
        assert isinstance(message, QueryMetricSeries)
        buckets = range(message.start, message.end, message.step)
        return MetricSeries(
            {name: tuple(None if n % 2 else 1.5 for n, _ in enumerate(buckets)) for name in message.names}
        )

    api.fleet.others[METRICS] = response
    return received


def new_proxy(api: Api, headers: dict[str, str], **fields: Any) -> str:
    made = api.post("/proxies", {**PROXY, **fields}, headers)
    assert made.status_code == 201, made.text
    identifier: str = made.json["data"]["proxy"]["id"]
    return identifier


def test_series_are_of_the_last_hour_in_5_minutes_and_of_all_metrics(
    api: Api, headers: dict[str, str], asked: list[Any]
) -> None:
    response = api.get("/metrics", headers)
    assert response.status_code == 200, response.text
    data = response.json["data"]
    assert data["time_range"]["interval"] == "5m"
    assert tuple(data["metrics"]) == NAMES
    assert (asked[0].step, asked[0].proxy_ids) == (300, None)
    assert asked[0].start == math.floor((asked[0].end - 3600) / 300) * 300
    assert abs(asked[0].end - time.time()) < 60


def test_the_first_bucket_is_the_one_that_start_time_is_in_and_absent_means_are_left_out(
    api: Api, headers: dict[str, str], asked: list[Any]
) -> None:
    query = "start_time=2026-01-01T12:34:56Z&end_time=2026-01-01T14:00:00Z&interval=1h&metrics=response_time_avg"
    data = api.get(f"/metrics?{query}", headers).json["data"]
    assert data["time_range"] == {
        "start": "2026-01-01T12:34:56.000Z",
        "end": "2026-01-01T14:00:00.000Z",
        "interval": "1h",
    }
    assert data["metrics"] == {"response_time_avg": [{"timestamp": "2026-01-01T12:00:00.000Z", "value": 1.5}]}


@pytest.mark.parametrize(("end", "asked_until"), [("14:00:00.000", 14 * 3600), ("14:00:00.400", 14 * 3600 + 1)])
def test_a_bucket_that_has_begun_a_moment_ago_is_there(
    api: Api, headers: dict[str, str], asked: list[Any], end: str, asked_until: int
) -> None:
    api.get(f"/metrics?start_time=2026-01-01T12:00:00Z&end_time=2026-01-01T{end}Z&interval=1h", headers)
    assert asked[0].end == NOON - 12 * 3600 + asked_until


def test_buckets_to_come_are_not_asked_for(api: Api, headers: dict[str, str], asked: list[Any]) -> None:
    assert api.get("/metrics?end_time=2999-01-01T00:00:00Z&start_time=2998-12-31T23:00:00Z", headers).status_code == 200
    now = time.time()
    assert (
        api.get(
            f"/metrics?interval=1d&end_time={time.strftime('%Y', time.gmtime(now + 4e8))}-01-01T00:00:00Z"
            f"&start_time=2026-01-01T00:00:00Z",
            headers,
        ).status_code
        == 200
    )
    assert all(question.end <= now + 86_400 or question.end == question.start + 1 for question in asked)


@table(
    ("query", "field"),
    [
        ("interval=2m", "interval"),
        ("interval=", "interval"),
        ("metrics=requests_per_second,fame", "metrics"),
        ("metrics=", "metrics"),
        ("start_time=yesterday", "start_time"),
        ("start_time=2026-01-02T00:00:00Z&end_time=2026-01-01T00:00:00Z", "start_time"),
        ("start_time=2020-01-01T00:00:00Z&interval=1m", "interval"),
        ("step=5", "step"),
        ("interval=1m&interval=5m", "interval"),
    ],
)
def test_a_bad_query_is_refused_by_the_name_of_the_parameter(
    api: Api, headers: dict[str, str], asked: list[Any], query: str, field: str
) -> None:
    status, code, details = error_of(api.get(f"/metrics?{query}", headers))
    assert (status, code, details["field"]) == (400, "INVALID_REQUEST", field)
    assert asked == []


def test_one_proxy_is_asked_for_by_its_id_and_an_unknown_one_is_not_found(
    api: Api, headers: dict[str, str], asked: list[Any]
) -> None:
    proxy_id = new_proxy(api, headers)
    assert api.get(f"/metrics?proxy_id={proxy_id}", headers).status_code == 200
    assert asked[0].proxy_ids == (proxy_id,)
    assert error_of(api.get("/metrics?proxy_id=prx_unknown", headers))[:2] == (404, "NOT_FOUND")


def test_a_key_with_a_scope_sees_the_proxies_in_it_alone(api: Api, headers: dict[str, str], asked: list[Any]) -> None:
    mine, other = new_proxy(api, headers), new_proxy(api, headers, name="second", port=3129)
    key = api.key(permissions=["metrics.read"], scope={"proxies": [mine]})
    assert api.get("/metrics", key).status_code == 200
    assert api.get("/metrics/realtime", key).status_code == 200
    assert [question.proxy_ids for question in asked] == [(mine,), (mine,)]
    assert error_of(api.get(f"/metrics?proxy_id={other}&interval=bad", key))[:2] == (403, "FORBIDDEN")


def test_the_snapshot_has_the_numbers_of_the_contract(api: Api, headers: dict[str, str], asked: list[Any]) -> None:
    data = api.get("/metrics/realtime", headers).json["data"]
    assert data["timestamp"] == "2026-01-01T12:00:00.000Z"
    assert data["metrics"].keys() == model_of(Snapshot).model_fields.keys()


@pytest.mark.parametrize("path", ["/metrics", "/metrics/realtime"])
def test_one_proxy_is_asked_for_with_its_own_processors_and_memory(
    api: Api, headers: dict[str, str], asked: list[Any], path: str
) -> None:
    mine, other = new_proxy(api, headers), new_proxy(api, headers, name="second", port=3129)
    assert api.get(f"{path}?proxy_id={mine}", headers).status_code == 200
    assert api.get(path, headers).status_code == 200
    assert [(question.proxy_ids, question.of_one) for question in asked] == [((mine,), True), (None, False)]
    key = api.key(permissions=["metrics.read"], scope={"proxies": [mine]})
    assert error_of(api.get(f"{path}?proxy_id={other}", key))[:2] == (403, "FORBIDDEN")
    assert error_of(api.get(f"{path}?proxy_id=prx_unknown", headers))[:2] == (404, "NOT_FOUND")


@pytest.mark.parametrize("path", ["/metrics", "/metrics/realtime"])
def test_metrics_need_their_permission_and_a_collector(api: Api, headers: dict[str, str], path: str) -> None:
    assert api.get(path).status_code == 401
    assert error_of(api.get(path, api.key(permissions=["proxy.read"])))[:2] == (403, "INSUFFICIENT_PERMISSIONS")
    api.fleet.gone.add(METRICS)
    assert error_of(api.get(path, headers))[:2] == (503, "UNAVAILABLE")


def test_the_snapshot_has_the_proxies_as_their_list_has_them_when_they_are_asked_for(
    api: Api, headers: dict[str, str], asked: list[Any]
) -> None:
    ids = [new_proxy(api, headers, name=name, port=port) for name, port in (("a", 3128), ("b", 3129))]
    api.services.runtime.remembered = 60.0
    data = api.get("/metrics/realtime?include=proxies", headers).json["data"]
    assert data["proxies"] == api.get("/proxies", headers).json["data"]["proxies"]
    assert "proxies" not in api.get("/metrics/realtime", headers).json["data"]
    one = api.get(f"/metrics/realtime?include=proxies&proxy_id={ids[1]}", headers).json["data"]
    assert [each["name"] for each in one["proxies"]] == ["b"]
    scoped = api.key(permissions=["metrics.read", "proxy.read"], scope={"proxies": [ids[0]]})
    seen = api.get("/metrics/realtime?include=proxies", scoped).json["data"]["proxies"]
    assert [each["name"] for each in seen] == ["a"]


def test_the_proxies_of_a_snapshot_need_the_permission_to_read_them(api: Api, asked: list[Any]) -> None:
    key = api.key(permissions=["metrics.read"])
    refused = error_of(api.get("/metrics/realtime?include=proxies", key))
    assert refused == (403, "INSUFFICIENT_PERMISSIONS", {"required_permission": "proxy.read"})
    assert error_of(api.get("/metrics/realtime?include=all", key))[:2] == (400, "INVALID_REQUEST")


def test_the_latest_uses_of_proxies_are_known_and_those_of_accounts_since_the_collector_began(
    api: Api, headers: dict[str, str], asked: list[Any]
) -> None:
    data = api.get("/metrics/realtime?recent=prx_1&recent=acc_1&recent=prx_unused&recent=prx_1", headers).json["data"]
    assert data["recent"] == {
        "prx_1": {"rates": [7] * 12, "requests": [5] * 12, "failed": [2] * 12},
        "acc_1": {"rates": [7] * 12, "requests": [None] * 10 + [5] * 2, "failed": [None] * 10 + [2] * 2},
        "prx_unused": {"rates": [0] * 12, "requests": [0] * 12, "failed": [0] * 12},
    }
    assert [question.recent for question in asked] == [("prx_1", "acc_1", "prx_unused")]
    assert "recent" not in api.get("/metrics/realtime", headers).json["data"]


def test_a_key_with_a_scope_gets_the_latest_uses_of_its_proxies_and_of_no_account(
    api: Api, headers: dict[str, str], asked: list[Any]
) -> None:
    mine, other = new_proxy(api, headers), new_proxy(api, headers, name="second", port=3129)
    key = api.key(permissions=["metrics.read"], scope={"proxies": [mine]})
    data = api.get(f"/metrics/realtime?recent={mine}&recent={other}&recent=acc_1", key).json["data"]
    assert list(data["recent"]) == [mine]
    assert asked[0].recent == (mine,)


def test_the_latest_uses_of_an_upstream_are_asked_for_by_its_pool_and_name(
    api: Api, headers: dict[str, str], asked: list[Any]
) -> None:
    upstreams = [{"name": "exit", "protocol": "http", "host": "exit.example", "port": 3128}]
    made = api.post("/pools", {"name": "paris", "upstreams": upstreams}, headers).json["data"]["pool"]
    query = f"recent={made['id']}&recent={made['id']}/exit&recent=paris/exit&recent=paris/gone&recent=gone/exit"
    recent = api.get(f"/metrics/realtime?{query}", headers).json["data"]["recent"]
    key = upstream_key(made["id"], number_of(("http", "exit.example", 3128, None)))
    assert asked[0].recent == (made["id"], key, key)
    assert len(recent) == 5
    assert recent["gone/exit"]["requests"] == [None] * 10 + [0, 0]
    assert recent["paris/exit"]["requests"] == [None] * 10 + [5, 5]


def test_the_latest_uses_of_a_proxys_own_upstream_are_the_sum_of_its_workers(
    api: Api, headers: dict[str, str], asked: list[Any]
) -> None:
    upstreams = [{"name": "exit", "protocol": "http", "host": "192.0.2.1", "port": 3128}]
    made = new_proxy(api, headers, upstreams=upstreams, workers=2)
    wanted = f"recent={made}/exit&recent={made}/gone&recent=prx_gone/exit"
    recent = api.get(f"/metrics/realtime?{wanted}", headers).json["data"]["recent"]
    numbers = own_numbers(("http", "192.0.2.1", 3128, None), 2)
    assert asked[0].recent == tuple(upstream_key(made, each) for each in numbers)
    assert [each["requests"][-2:] for each in recent.values()] == [[10, 10], [0, 0], [0, 0]]
    assert recent[f"{made}/exit"]["failed"] == [None] * 10 + [4, 4]
    key = api.key(permissions=["metrics.read"], scope={"proxies": [made]})
    assert list(api.get(f"/metrics/realtime?{wanted}", key).json["data"]["recent"]) == [f"{made}/exit", f"{made}/gone"]
