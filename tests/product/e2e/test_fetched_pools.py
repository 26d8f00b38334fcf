"""What a provider sends leads no client to an own proxy, however it is written and whenever that was made."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.kit.http_origins import Origin
from tests.kit.product import Product
from tests.kit.wait import wait_until
from tests.kit.wire import Client

pytestmark = pytest.mark.product


class Provider(ThreadingHTTPServer):
    """Responds with `content`."""

    content = b""


class _Handler(BaseHTTPRequestHandler):
    server: Provider

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.server.content)))
        self.end_headers()
        self.wfile.write(self.server.content)


@pytest.fixture
def provider() -> Iterator[Provider]:
    with Provider(("127.0.0.1", 0), _Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def test_fetched_upstreams_are_no_own_proxies(own_product: Product, provider: Provider, origin: Origin) -> None:
    port = own_product.free_port()
    provider.content = f"127.0.0.1:{port}\n0.0.0.0:{port}\n[::ffff:127.0.0.1]:{port}\n".encode()
    source = {"url": f"http://127.0.0.1:{provider.server_port}/"}
    for name, check in (("checked", True), ("used", False)):
        own_product.data("POST", "/pools", {"name": name, "source": source, "check": {"enabled": check}})

    def upstreams(name: str) -> list[dict[str, str]]:
        found: list[dict[str, str]] = own_product.data("GET", f"/pools/{name}")["pool"]["status"]["upstreams"]
        return found

    wait_until(lambda: len(upstreams("checked")) == len(upstreams("used")) == 3, "both are fetched")
    own_product.proxy(port=port)
    own_product.proxy(pool="checked")
    wait_until(lambda: all("from a source" in str(each["last_error"]) for each in upstreams("checked")), "all are down")
    with Client(own_product.proxy(pool="used")["port"]) as client:
        assert client.get(origin.url("/own-proxies")).status == 503
    assert [each for each in origin.seen if each[1] == "/own-proxies"] == []
