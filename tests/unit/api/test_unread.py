"""Requests that the server refuses before the application sees them: logged and counted like all others."""

from __future__ import annotations

import http.client
import json
import logging
import socket
from collections.abc import Callable, Iterator

import pytest

from actors.log_lines import JsonFormatter
from api.api_settings import ApiSettings
from api.server.http_server import ApiServer
from api.server.tasks import MAX_HEAD, RejectedRequestLog
from config.settings.settings import RateLimiting, Security, Server
from tests.kit.api_stage import Api

LONG = 120.0
UNREAD = {
    "nonsense": (b"nonsense\r\n\r\n", 400, "nonsense", "-"),
    "two hosts": (b"GET /a?b=secret HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400, "GET", "/a"),
    "a bad field": (b"GET /\xff%d\x1b HTTP/1.1\r\nHost\x01: a\r\n\r\n", 400, "GET", "/\\xff%d\\x1b"),
    "a large head": (b"GET /c HTTP/1.1\r\nHost: a\r\nX: " + b"x" * MAX_HEAD + b"\r\n\r\n", 431, "-", "-"),
    "another coding": (b"PUT /d HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: br\r\n\r\n", 501, "PUT", "/d"),
}
Serve = Callable[[ApiSettings], int]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts a server in front of services with these settings, and gives its port."""
    made: list[tuple[ApiServer, Api]] = []

    def start(settings: ApiSettings) -> int:
        api = Api(settings)
        listener = socket.create_server(("127.0.0.1", 0))
        server = ApiServer(lambda _environ, _start: [], listener, 100, on_rejected=RejectedRequestLog(api.services))
        made.append((server, api))
        server.start()
        return int(listener.getsockname()[1])

    yield start
    for server, api in made:
        server.close()
        api.close()


def refused(port: int, request: bytes) -> http.client.HTTPResponse:
    with socket.create_connection(("127.0.0.1", port), LONG) as client:
        client.sendall(request)
        response = http.client.HTTPResponse(client)
        response.begin()
        response.read()
    return response


@pytest.mark.parametrize(("request_", "status", "method", "path"), UNREAD.values(), ids=UNREAD)
def test_what_is_refused_unread_is_logged_with_its_id_and_counted_for_its_address(
    serve: Serve, caplog: pytest.LogCaptureFixture, request_: bytes, status: int, method: str, path: str
) -> None:
    port = serve(ApiSettings(security=Security(rate_limiting=RateLimiting(requests_per_minute=5))))
    with caplog.at_level(logging.INFO, "api.requests"):
        first, second = refused(port, request_), refused(port, request_)
    assert (first.status, second.status) == (status, status)
    assert [each.headers["X-RateLimit-Remaining"] for each in (first, second)] == ["4", "3"]
    assert first.headers["RateLimit"].startswith('"burst";r=4;')
    line, _ = (json.loads(JsonFormatter().format(each)) for each in caplog.records if each.name == "api.requests")
    assert (line["method"], line["path"], line["status"]) == (method, path, status)
    assert (line["request_id"], line["client_ip"]) == (first.headers["X-Request-Id"], "127.0.0.1")
    assert line["error"]
    assert "secret" not in caplog.text


def test_a_client_beyond_its_rate_still_gets_the_error_of_its_request(serve: Serve) -> None:
    port = serve(ApiSettings(security=Security(rate_limiting=RateLimiting(requests_per_minute=1))))
    responses = [refused(port, b"nonsense\r\n\r\n") for _ in range(2)]
    assert [(each.status, each.headers["X-RateLimit-Remaining"]) for each in responses] == [(400, "0"), (400, "0")]


def test_behind_a_trusted_balancer_the_client_is_named_and_its_own_request_id_is_kept(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    port = serve(ApiSettings(server=Server(trusted_proxies=["127.0.0.1"])))
    fields = b"Host: a\r\nTransfer-Encoding: br\r\nX-Forwarded-For: 203.0.113.9\r\nX-Request-Id: mine-1\r\n\r\n"
    with caplog.at_level(logging.INFO, "api.requests"):
        response = refused(port, b"POST / HTTP/1.1\r\n" + fields)
    assert (response.status, response.headers["X-Request-Id"]) == (501, "mine-1")
    assert "anonymous at 203.0.113.9, mine-1" in caplog.text


def test_without_request_logging_and_rates_there_is_neither_line_nor_header(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    quiet = Security(request_logging=False, rate_limiting=RateLimiting(enabled=False))
    with caplog.at_level(logging.INFO, "api.requests"):
        response = refused(serve(ApiSettings(security=quiet)), b"nonsense\r\n\r\n")
    assert response.status == 400
    assert "X-RateLimit-Limit" not in response.headers
    assert [each for each in caplog.records if each.name == "api.requests"] == []
