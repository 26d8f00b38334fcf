"""The test of a proxy, through a small proxy on loopback that is the origin at the same time."""

from __future__ import annotations

import base64
import concurrent.futures
import gzip
import threading
import tracemalloc
from collections.abc import Iterator
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from actors.bus.messages.common import Done
from actors.bus.messages.forwarding import AllowTestClient, QueryTester, ReportOfTest
from api.objects.proxies import proxy_test as tester
from api.objects.proxies.proxy_test import address_in
from tests.kit.api_stage import Api, error_of
from tests.kit.tables import table
from tests.kit.wait import wait_until


@cache
def bomb() -> bytes:
    """Half a kilobyte."""
    return gzip.compress(gzip.compress(b'{"ip": "203.0.113.9"}' + bytes(64 * 1024 * 1024)))


class SmallProxy(ThreadingHTTPServer):
    """Responds to every absolute-form GET itself, for testers who were admitted."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.admitted: list[AllowTestClient] = []
        self.asked: list[str] = []
        self.go_on = threading.Event()
        self.codings: list[str] = []

    def admit(self, message: AllowTestClient) -> Done:
        self.admitted.append(message)
        return Done()


class Handler(BaseHTTPRequestHandler):
    server: SmallProxy

    def do_GET(self) -> None:  # the name is http.server's
        self.server.asked.append(self.path)
        pairs = [f"{admitted.user}:{admitted.token}" for admitted in self.server.admitted]
        wanted = {f"Basic {base64.b64encode(pair.encode()).decode()}" for pair in pairs}
        if self.headers["Proxy-Authorization"] not in wanted:
            self._respond(407, b"", {"Proxy-Status": "proxyfleet"})
        elif self.path.endswith("/hang"):
            self.server.go_on.wait(30)
        elif self.path.endswith("/drip"):
            self.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
            while not self.server.go_on.wait(0.05):
                self.wfile.write(b"x")
        elif self.path.endswith("/continue"):
            while not self.server.go_on.is_set():
                self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n" * 100)
        elif self.path.endswith("/dns"):
            self._respond(502, b"", {"Proxy-Status": "proxyfleet; error=dns_error"})
        elif self.path.endswith("/missing"):
            self._respond(404, b"")
        elif self.path.endswith("/bomb"):
            self.server.codings.append(self.headers["Accept-Encoding"])
            self._respond(200, bomb(), {"Content-Encoding": "gzip, gzip"})
        else:
            self._respond(200, b'{"ip": "203.0.113.9"}' if self.path.endswith("/ip") else b"hello")

    def do_CONNECT(self) -> None:
        self._respond(403, b"", {"Proxy-Status": "proxyfleet; error=destination_ip_prohibited"})

    def _respond(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Not on the terminal of the tests."""


@pytest.fixture
def small() -> Iterator[SmallProxy]:
    server = SmallProxy()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.go_on.set()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def path(api: Api, small: SmallProxy) -> str:
    api.fleet.forwarding = small.admit
    body = {"name": "small", "port": small.server_port, "protocol": "http", "host": "0.0.0.0"}
    return f"/proxies/{api.post('/proxies', body, api.token()).json['data']['proxy']['id']}"


def run(api: Api, path: str, **body: Any) -> dict[str, Any]:
    response = api.post(f"{path}/test", body, api.token())
    assert response.status_code == 200, response.text
    result: dict[str, Any] = response.json["data"]["test_result"]
    assert set(result) == {"status", "response_time", "status_code", "external_ip", "parent", "timestamp", "error"}
    return result


def test_a_working_proxy_passes_with_one_use_credentials(api: Api, path: str, small: SmallProxy) -> None:
    results = [run(api, path, url="http://origin.invalid/ip") for _ in range(2)]
    assert [result["status"] for result in results] == ["success", "success"]
    assert (results[0]["status_code"], results[0]["external_ip"]) == (200, "203.0.113.9")
    assert isinstance(results[0]["response_time"], int)
    assert small.admitted[0].token != small.admitted[1].token


def test_what_comes_compressed_without_being_asked_for_is_not_unpacked(api: Api, path: str, small: SmallProxy) -> None:
    bomb()
    tracemalloc.start()
    try:
        result = run(api, path, url="http://origin.invalid/bomb")
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (result["status"], result["external_ip"]) == ("success", None)
    assert small.codings == ["identity"]
    assert most < 8 * 1024 * 1024


def test_the_environment_names_no_proxy_here(
    api: Api, path: str, small: SmallProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "*")
    assert run(api, path, url="http://origin.invalid/ip")["status"] == "success"
    assert small.asked == ["http://origin.invalid/ip"]


@pytest.mark.parametrize(
    ("url", "status", "code", "error"),
    [
        ("http://origin.invalid/dns", "failed", 502, "dns_error"),
        ("http://origin.invalid/missing", "failed", 404, "404"),
        ("https://origin.invalid/", "failed", 403, "403"),
    ],
)
def test_a_failure_is_reported(api: Api, path: str, url: str, status: str, code: int, error: str) -> None:
    result = run(api, path, url=url)
    assert (result["status"], result["status_code"]) == (status, code)
    assert error in result["error"]


def test_a_refused_connect_has_the_reason_that_the_process_reports(api: Api, path: str) -> None:
    asked: list[Any] = []

    def report(message: Any) -> ReportOfTest:
        asked.append(message)
        return ReportOfTest(None, "destination_ip_prohibited", "the address is private")

    api.fleet.others[f"forwarding.{path.rpartition('/')[2]}"] = report
    error = run(api, path, url="https://origin.invalid/")["error"]
    assert error == "the proxy answered 403 to CONNECT: destination_ip_prohibited: the address is private"
    assert isinstance(asked[-1], QueryTester)


def test_an_origin_that_hangs_is_a_timeout(api: Api, path: str) -> None:
    assert run(api, path, url="http://origin.invalid/hang", timeout=0.3)["status"] == "timeout"


@pytest.mark.parametrize("kind", ["drip", "continue"])
def test_an_origin_whose_head_has_no_end_is_a_timeout_and_takes_no_place_for_good(
    api: Api, path: str, kind: str
) -> None:
    def head(_number: int) -> str:
        return str(run(api, path, url=f"http://origin.invalid/{kind}", timeout=0.5)["status"])

    with concurrent.futures.ThreadPoolExecutor(tester.AT_ONCE) as pool:
        assert set(pool.map(head, range(tester.AT_ONCE))) == {"timeout"}
    body = {"url": "http://origin.invalid/ip"}
    wait_until(lambda: api.post(f"{path}/test", body, api.token()).status_code == 200, "a place is free", 60)


def test_only_so_many_tests_are_under_way(api: Api, path: str, small: SmallProxy) -> None:
    def hang(_number: int) -> str:
        return str(run(api, path, url="http://origin.invalid/hang", timeout=60)["status"])

    with concurrent.futures.ThreadPoolExecutor(tester.AT_ONCE) as pool:
        hanging = pool.map(hang, range(tester.AT_ONCE))
        wait_until(lambda: len(small.asked) == tester.AT_ONCE, "all places are taken")
        assert api.post(f"{path}/test", None, api.token()).status_code == 429
        small.go_on.set()
        assert set(hanging) == {"failed"}


def test_an_inactive_proxy_or_a_dead_process_fails_without_an_http_error(api: Api, path: str) -> None:
    api.fleet.gone = {f"forwarding.{path.rpartition('/')[2]}"}
    assert "does not reply" in run(api, path)["error"]
    api.post(f"{path}/stop", None, api.token())
    result = run(api, path)
    assert (result["status"], result["error"]) == ("failed", "the proxy is inactive")


def test_without_a_body_the_configured_url_is_tested(api: Api, path: str, small: SmallProxy) -> None:
    response = api.post(f"{path}/test", None, api.token())
    assert response.status_code == 200
    assert len(small.admitted) == 1


@table(
    "body",
    [
        {"url": "ftp://a/"},
        {"url": "/x"},
        {"url": "http://"},
        {"timeout": 0},
        {"timeout": "x"},
        {"timeout": True},
        {"timeout": 61},
    ],
)
def test_a_bad_test_is_400_naming_the_field(api: Api, path: str, body: dict[str, Any]) -> None:
    status, _, details = error_of(api.post(f"{path}/test", body, api.token()))
    assert (status, details["field"]) == (400, next(iter(body)))


@table(
    ("content", "address"),
    [
        (b"203.0.113.9\n", "203.0.113.9"),
        (b'{"origin": "203.0.113.9, 10.0.0.1"}', "203.0.113.9"),
        (b'{"ip": "2001:db8::1"}', "2001:db8::1"),
        (b"<html>", None),
        (b'{"ip": ', None),
        (b'{"ip": 5}', None),
    ],
)
def test_the_address_is_taken_from_bodies_that_tell_one(content: bytes, address: str | None) -> None:
    assert address_in(content) == address
