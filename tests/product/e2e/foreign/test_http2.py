"""The recipe of docs/http2.md: haproxy in front of a proxy speaks HTTP/2 to clients."""

from __future__ import annotations

import base64
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.kit.folders import ROOT
from tests.kit.ports import free_port
from tests.kit.wait import wait_until
from tests.product.e2e.foreign.browser import FLAGS, NAMES
from tests.product.e2e.foreign.entrances import Entrance, MakeEntrance, Record
from tests.product.e2e.foreign.h2_client import H2Client
from tests.product.e2e.foreign.programs import Site, find, haproxy_of, needs, run

pytestmark = [pytest.mark.product, needs("haproxy"), needs("nginx")]

CLIENT = "127.0.0.6"
BASIC = ("proxy-authorization", "Basic " + base64.b64encode(b"ada:pass word 1").decode())
AUTH = {"enabled": True, "username": "ada", "password": "pass word 1"}
VERSIONS = '    log stdout format raw local0\n    log-format "%HM %HV %ST"\n'

CURL = ("-sS", "-m", "120", "--noproxy", "", "-U", "ada:pass word 1")
PROXY_HTTP2 = "--proxy-http2"


def curl_knows(option: str) -> bool:
    """Whether there is a curl with this option."""
    return shutil.which("curl") is not None and option in run("curl", "--help", "all").stdout


def recipe() -> str:
    """The configuration of haproxy in the documentation."""
    found = re.search(r"```\n(global\n.*?)```", (ROOT / "docs" / "http2.md").read_text(), re.DOTALL)
    assert found is not None
    return found[1]


def replaced(text: str, *changes: tuple[str, str]) -> str:
    """The text with each of these once in it, and replaced."""
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


class Front:
    """A running haproxy in front of a proxy: its `port`, and what it has logged."""

    def __init__(self, port: int, output: Path) -> None:
        self.port = port
        self._output = output

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def logged(self, line: str) -> list[str]:
        """All lines of its log, method, version and status of a request each, once this one is there."""

        def lines() -> list[str] | None:
            found = self._output.read_text().splitlines()
            return found if line in found else None

        return wait_until(lines, f"haproxy logs {line}")


@contextmanager
def front_of(proxy: Entrance, pair: tuple[str, str], folder: Path) -> Iterator[Front]:
    pem = folder / "proxy.pem"
    pem.write_text("".join(Path(each).read_text() for each in pair))
    port = free_port()
    configuration = replaced(
        recipe(),
        ("bind :8443 ", f"bind 127.0.0.1:{port} "),
        ("/etc/haproxy/proxy.pem", str(pem)),
        ("127.0.0.1:3128", f"127.0.0.1:{proxy.port}"),
        ("    mode http\n", "    mode http\n" + VERSIONS),
    )
    with haproxy_of(configuration, port) as output:
        yield Front(port, output)


@pytest.fixture
def proxy(entrance: MakeEntrance) -> Entrance:
    return entrance("http", accept_proxy_protocol=True, auth=AUTH, access={"deny_destinations": NAMES})


@pytest.fixture
def front(proxy: Entrance, pair: tuple[str, str], tmp_path: Path) -> Iterator[Front]:
    with front_of(proxy, pair, tmp_path) as running:
        yield running


def test_plain_requests_and_tunnels_of_http_2_have_the_address_and_the_credentials_of_their_client(
    front: Front, proxy: Entrance, site: Site, pair: tuple[str, str]
) -> None:
    authority = f"127.0.0.1:{site.port}"
    with H2Client(front.port, pair[0]) as client:
        assert client.get(site.url("/hello"))[0] == 407
        assert client.get(site.url("/hello"), BASIC) == (200, b"hello")
        assert client.connect(authority)[1] == 407
        stream, status = client.connect(authority, BASIC)
        assert status == 200
        client.send(stream, f"GET /hello HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n\r\n".encode())
        assert client.receive(stream).endswith(b"\r\n\r\nhello")
        assert client.get(site.url("/hello"), BASIC) == (200, b"hello")  # beside the tunnel
    records = proxy.records(5)
    assert {record["client_ip"] for record in records} == {CLIENT}
    assert sorted((record["method"], record["status_code"]) for record in records) == [
        ("CONNECT", 200),
        ("CONNECT", 407),
        ("GET", 200),
        ("GET", 200),
        ("GET", 407),
    ]


def test_two_tunnels_of_one_connection_are_two_and_what_is_in_them_passes_unchanged(
    front: Front, site: Site, pair: tuple[str, str]
) -> None:
    authority = f"127.0.0.1:{site.port}"
    with H2Client(front.port, pair[0]) as client:
        streams = [client.connect(authority, BASIC)[0] for _ in range(2)]
        for stream in reversed(streams):
            request = f"GET /two-megabytes HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n\r\n"
            client.send(stream, request.encode())
        for stream in streams:
            assert client.receive(stream).partition(b"\r\n\r\n")[2] == (site.files / "two-megabytes").read_bytes()


def test_what_would_leave_without_its_tls_is_refused(
    front: Front, proxy: Entrance, site: Site, pair: tuple[str, str]
) -> None:
    with H2Client(front.port, pair[0]) as client:
        assert client.get(site.tls_url("/hello"), BASIC)[0] == 400
    assert [record["status_code"] for record in proxy.records(1)] == [400]


@pytest.mark.skipif(not curl_knows(PROXY_HTTP2), reason="curl 8.1 is not installed")
def test_curl_with_http_2_to_the_proxy(front: Front, site: Site, pair: tuple[str, str]) -> None:
    common = (*CURL, "--proxy-cacert", pair[0], "--cacert", pair[0])
    for url in (site.url("/hello"), site.tls_url("/hello")):
        assert run("curl", *common, PROXY_HTTP2, "-x", front.url, url).stdout == "hello"
    front.logged("CONNECT HTTP/2.0 200")


@needs("curl")
def test_clients_without_http_2_use_the_same_port(front: Front, site: Site, pair: tuple[str, str]) -> None:
    common = (*CURL, "--proxy-cacert", pair[0], "--cacert", pair[0])
    for url in (site.url("/hello"), site.tls_url("/hello")):
        assert run("curl", *common, "-x", front.url, url).stdout == "hello"
    for line in ("GET HTTP/1.1 200", "CONNECT HTTP/1.1 200"):
        front.logged(line)


@needs("chromium")
def test_chromium_speaks_http_2_to_it_and_signs_in(front: Front, proxy: Entrance, site: Site, trust: str) -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    settings = {"server": front.url, "username": AUTH["username"], "password": AUTH["password"]}
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(
            executable_path=find("chromium"), args=[*FLAGS, trust], proxy=settings, timeout=60_000
        )
        page = browser.new_page()
        for url in (site.url("/hello"), site.tls_url("/hello")):
            page.goto(url)
            assert page.inner_text("body") == "hello"
        browser.close()
    front.logged("GET HTTP/2.0 407")
    front.logged("GET HTTP/2.0 200")
    lines = front.logged("CONNECT HTTP/2.0 200")
    assert not [line for line in lines if "HTTP/1.1" in line]

    def both(records: list[Record]) -> bool:
        return {"GET", "CONNECT"} <= {each["method"] for each in records if each["user"] == "ada"}

    proxy.records_when(both, "a page of each kind")
