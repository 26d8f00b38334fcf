"""Live connections over the API: what is asked of the proxy's process, and who may."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from actors.bus.messages.common import forwarding_name
from actors.bus.messages.forwarding import (
    CloseConnections,
    ConnectionFilter,
    ConnectionPage,
    ConnectionReport,
    ConnectionsEnded,
    QueryConnections,
)
from tests.kit.api_stage import PROXY, Api, error_of
from tests.kit.tables import table

ONE = ConnectionReport(
    "5f", "192.0.2.1", "", "a.example:443", "tunnel", 1_700_000_000.0, 1.23456, 10, 20, 1.4, 2.6, tls_name="a.example"
)


@pytest.fixture
def path(api: Api, headers: dict[str, str]) -> str:
    made = api.post("/proxies", PROXY, headers)
    proxy_id = made.json["data"]["proxy"]["id"]
    api.fleet.others[forwarding_name(proxy_id)] = process(1)
    return f"/proxies/{proxy_id}/connections"


def process(count: int) -> Callable[[Any], Any]:
    def response(message: Any) -> Any:
        return ConnectionPage((ONE,), 1) if isinstance(message, QueryConnections) else ConnectionsEnded(count)

    return response


def test_a_page_is_returned(api: Api, headers: dict[str, str], path: str) -> None:
    assert api.get(path, headers).json["data"] == {
        "connections": [
            {
                "id": "5f",
                "client": "192.0.2.1",
                "user": None,
                "target": "a.example:443",
                "parent": None,
                "credential": None,
                "source_address": None,
                "source_rule": None,
                "parameters": None,
                "pool": None,
                "listen_port": 0,
                "tls_name": "a.example",
                "alpn": None,
                "tls_version": None,
                "state": "tunnel",
                "started_at": "2023-11-14T22:13:20.000Z",
                "age": 1.234,
                "bytes_in": 10,
                "bytes_out": 20,
                "rate_in": 1,
                "rate_out": 3,
            }
        ],
        "total": 1,
    }
    assert api.fleet.received[-1][1] == QueryConnections(ConnectionFilter(), "-age", 100, 0)


def test_filters_sort_and_page_are_passed_on(api: Api, headers: dict[str, str], path: str) -> None:
    query = "client=10.0.0.0/8&user=ada&target=a.ex&min_age=5&listen_port=20005&tls_name=b.ex&alpn=h2"
    api.get(f"{path}?{query}&sort=-rate_out&limit=7&offset=3", headers)
    only = ConnectionFilter("10.0.0.0/8", "ada", "a.ex", 5.0, 20005, "b.ex", "h2")
    assert api.fleet.received[-1][1] == QueryConnections(only, "-rate_out", 7, 3)


@table(
    ("query", "field"),
    [
        ("client=x", "client"),
        ("client=", "client"),
        ("user=", "user"),
        ("target=", "target"),
        ("tls_name=", "tls_name"),
        ("alpn=h2,http/1.1", "alpn"),
        ("min_age=-1", "min_age"),
        ("sort=colour", "sort"),
        ("sort=--age", "sort"),
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("offset=-1", "offset"),
        ("usr=alice", "usr"),
    ],
)
def test_a_bad_parameter_is_400_naming_it(api: Api, headers: dict[str, str], path: str, query: str, field: str) -> None:
    status, _code, details = error_of(api.get(f"{path}?{query}", headers))
    assert (status, details["field"]) == (400, field)


def test_one_is_ended_once(api: Api, headers: dict[str, str], path: str) -> None:
    response = api.request("DELETE", f"{path}/5f", headers)
    assert response.json["data"] == {"id": "5f", "ended": True}
    assert api.fleet.received[-1][1] == CloseConnections("5f", ConnectionFilter())
    api.fleet.others[forwarding_name(path.split("/")[2])] = process(0)
    assert error_of(api.request("DELETE", f"{path}/5f", headers))[:2] == (404, "NOT_FOUND")


def test_those_that_match_are_ended(api: Api, headers: dict[str, str], path: str) -> None:
    assert api.request("DELETE", f"{path}?client=192.0.2.1", headers).json["data"] == {"ended": 1}
    assert api.fleet.received[-1][1] == CloseConnections(None, ConnectionFilter(client="192.0.2.1"))
    assert api.request("DELETE", f"{path}?all=true", headers).json["data"] == {"ended": 1}
    assert api.fleet.received[-1][1] == CloseConnections(None, ConnectionFilter())


@table(
    ("query", "field"),
    [
        ("", "all"),
        ("?all=false", "all"),
        ("?all=yes", "all"),
        ("?all=true&client=192.0.2.1", "all"),
        ("?min_age=0", "all"),
        ("?clint=192.0.2.1", "clint"),
        ("?client=", "client"),
    ],
)
def test_ending_needs_a_filter_or_the_word_all(
    api: Api, headers: dict[str, str], path: str, query: str, field: str
) -> None:
    status, _code, details = error_of(api.request("DELETE", f"{path}{query}", headers))
    assert (status, details["field"]) == (400, field)
    assert not any(isinstance(message, CloseConnections) for _to, message in api.fleet.received)


def test_an_inactive_proxy_has_none_and_a_silent_one_is_503(api: Api, headers: dict[str, str], path: str) -> None:
    api.fleet.others.clear()
    silent = api.get(path, headers)
    assert error_of(silent)[:2] == (503, "UNAVAILABLE")
    assert int(silent.headers["Retry-After"]) > 0
    api.post(path.replace("connections", "stop"), None, headers)
    assert api.get(path, headers).json["data"] == {"connections": [], "total": 0}
    assert api.request("DELETE", f"{path}/5f", headers).status_code == 404
    assert api.request("DELETE", f"{path}?all=true", headers).json["data"] == {"ended": 0}
    assert api.get("/proxies/prx_none/connections", headers).status_code == 404


def test_reading_is_not_ending_and_a_scope_is_obeyed(api: Api, headers: dict[str, str], path: str) -> None:
    api.add_user("reader", role="user")
    assert api.get(path, api.token("reader")).status_code == 200
    assert api.request("DELETE", f"{path}?all=true", api.token("reader")).status_code == 403
    assert api.request("DELETE", f"{path}/5f", api.token("reader")).status_code == 403
    other = api.key(permissions=["proxy.read", "proxy.write"], scope={"proxies": ["prx_other"]})
    assert api.get(path, other).status_code == 403
    assert api.request("DELETE", f"{path}/5f", other).status_code == 403
