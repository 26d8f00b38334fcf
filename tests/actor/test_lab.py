"""The origin of a lab: what it responds with, and that a request can't have it do much."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator

import pytest

from actors.lab import BODY_MAX, BYTES_MAX, LabServer, listening_address


@pytest.fixture
def port() -> Iterator[int]:
    server = LabServer(socket.create_server(("127.0.0.1", 0)))
    assert listening_address(server.socket) == f"http://127.0.0.1:{server.socket.getsockname()[1]}/"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.socket.getsockname()[1]
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("method", "path", "status", "length"),
    [
        ("GET", "/status/404", 404, 0),
        ("GET", "/status/204", 204, 0),
        ("GET", "/status/99", 400, 23),
        ("GET", "/status/600", 400, 23),
        ("GET", "/bytes/0", 200, 0),
        ("GET", "/bytes/200001?x", 200, 200_001),
        ("HEAD", "/bytes/5", 200, 0),
        ("DELETE", "/status/503", 503, 0),
    ],
)
def test_statuses_and_bytes(port: int, method: str, path: str, status: int, length: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    for _ in range(2):  # on one connection
        connection.request(method, path)
        response = connection.getresponse()
        assert (response.status, len(response.read())) == (status, length)
    connection.close()


def test_a_request_is_shown_as_it_came(port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", "/any/thing?a=b", b"body", {"X-One": "1"})
    view = json.load(connection.getresponse())
    assert (view["method"], view["path"], view["body_bytes"]) == ("POST", "/any/thing?a=b", 4)
    assert view["headers"]["X-One"] == "1"
    connection.request("GET", "/")
    assert b"Proxyfleet lab" in connection.getresponse().read()
    connection.close()


def test_sizes_are_bounded(port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("HEAD", "/bytes/999999999")
    response = connection.getresponse()
    response.read()
    assert response.headers["Content-Length"] == str(BYTES_MAX)
    lengths = (str(BODY_MAX + 1), f"{'0' * 10}{BODY_MAX + 1}", "-1")
    for headers in (*({"Content-Length": each} for each in lengths), {"Transfer-Encoding": "chunked"}):
        connection.request("POST", "/", headers=headers)
        response = connection.getresponse()
        assert (response.status, response.read(), response.will_close) == (413, b"", True)
        connection.close()
