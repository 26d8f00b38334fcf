"""Headless Chromium learns from `/proxy.pac` which proxies to use: those with a tag, in each protocol.

Loopback goes without a proxy by the file itself, so the site has a name elsewhere, and the proxies an upstream that
answers for it. socks4 has the address in place of the name.
"""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.kit.http_origins import serving
from tests.kit.product import Product
from tests.kit.shared_product import ELSEWHERE
from tests.kit.wait import wait_until
from tests.product.e2e.foreign.browser import FLAGS, NAMES
from tests.product.e2e.foreign.programs import find, needs, run

pytestmark = [pytest.mark.product, needs("chromium")]

PAGE = b"<title>by way of the upstream</title>"
LEFT_OUT = ("--proxy-bypass-list", "--host-resolver-rules")


class _Upstream(BaseHTTPRequestHandler):
    """Answers every request, also those that come inside of a tunnel, with the page."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(PAGE)))
        self.end_headers()
        self.wfile.write(PAGE)

    def do_CONNECT(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """The records of the proxies say it."""


@pytest.fixture(scope="module")
def upstream() -> Iterator[dict[str, Any]]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Upstream)
    with serving(server):
        yield {"protocol": "http", "host": "127.0.0.1", "port": server.server_address[1]}


@pytest.mark.parametrize("protocol", ["http", "https", "socks4", "socks5"])
def test_chromium_takes_the_proxy_with_the_tag(
    product: Product, upstream: dict[str, Any], pair: tuple[str, str], protocol: str, tmp_path: Path
) -> None:
    tls = {"tls": {"cert_file": pair[0], "key_file": pair[1]}} if protocol == "https" else {}
    fields = {"upstreams": [upstream], "access": {"deny_destinations": NAMES}, **tls}
    proxy = product.proxy(protocol=protocol, tags=["blue", protocol], **fields)
    other = product.proxy(tags=["red"], **fields if protocol != "https" else {})
    flags = (
        *(flag for flag in FLAGS if not flag.startswith(LEFT_OUT)),
        f"--host-resolver-rules=MAP site.example {ELSEWHERE}, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE {ELSEWHERE}",
        f"--user-data-dir={tmp_path / 'profile'}",
        "--ignore-certificate-errors",
        f"--proxy-pac-url={product.base_url}/proxy.pac?tag={protocol}",
    )
    printed = run(find("chromium"), *flags, "--dump-dom", "http://site.example/", seconds=120)
    records = product.data("GET", f"/logs?proxy_id={proxy['id']}&limit=1000")["logs"]
    assert "by way of the upstream" in printed.stdout, f"{printed.stdout}\n{printed.stderr}\n{records}"

    def reported() -> set[str]:
        records = product.data("GET", f"/logs?proxy_id={proxy['id']}&limit=1000")["logs"]
        return {record["target_url"] for record in records}

    expected = {"socks4": f"{ELSEWHERE}:80", "socks5": "site.example:80"}.get(protocol, "http://site.example/")
    wait_until(lambda: expected in reported(), "the page in the records of the proxy")
    assert product.data("GET", f"/logs?proxy_id={other['id']}")["logs"] == []
    for each in (proxy, other):
        product.data("DELETE", f"/proxies/{each['id']}")
