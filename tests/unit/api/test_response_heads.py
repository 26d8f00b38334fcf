"""The heads that the server writes itself are, byte for byte, those that waitress makes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from waitress.task import WSGITask

from api.server.header_case import spelled, whole_head

BEGAN = 1_700_000_000.75
USUAL = [
    ("content-type", "application/json"),
    ("x-request-id", "req_1"),
    ("etag", '"5"'),
    ("x-ratelimit-limit", "60"),
    ("ratelimit-policy", "etag: 7"),
    ("www-authenticate", "Bearer"),
    ("content-length", "12"),
]


def by_waitress(status: str, fields: list[tuple[str, str]]) -> bytes:
    channel = SimpleNamespace(server=SimpleNamespace(adj=SimpleNamespace(ident=None)))
    request: Any = SimpleNamespace(version="1.1", headers={})
    task = WSGITask(channel, request)
    task.status, task.response_headers, task.start_time = status, list(fields), BEGAN
    task.content_length = 12
    return spelled(task.build_response_header())


@pytest.mark.parametrize(
    "more",
    [
        [],
        [("Set-Cookie", "b=1"), ("set-cookie", "a=2"), ("SET-COOKIE", "c=3")],
        [("x-name-OF-parts", "value"), ("ä", "é")],
        [("location", "/api/v1/proxies/prx_1")],
    ],
)
@pytest.mark.parametrize("status", ["200 OK", "201 Created", "404 Not Found", "503 Service Unavailable"])
def test_a_whole_head_is_that_of_waitress(status: str, more: list[tuple[str, str]]) -> None:
    fields = [*USUAL, *more]
    assert whole_head(status, fields, BEGAN) == by_waitress(status, fields)


@pytest.mark.parametrize("name", ["Date", "server", "connection"])
def test_what_waitress_decides_is_left_to_it(name: str) -> None:
    assert whole_head("200 OK", [*USUAL, (name, "x")], BEGAN) is None


def test_a_response_of_unknown_length_is_left_to_waitress() -> None:
    assert whole_head("200 OK", USUAL[:-1], BEGAN) is None


def test_the_date_is_that_of_each_response() -> None:
    for second in (0, 1, 0):
        found = whole_head("200 OK", USUAL, BEGAN + second)
        assert found is not None
        assert f"Date: Tue, 14 Nov 2023 22:13:2{second} GMT\r\n".encode() in found
