"""What is seen of the names in TLS handshakes: records, live connections, counters, and one event over two workers."""

from __future__ import annotations

import base64
import re
import socket
import ssl
from contextlib import closing
from typing import Any

import pytest

from tests.kit.product import Product
from tests.kit.scripted_origins import Origin, echoes
from tests.kit.wait import wait_until
from tests.kit.webhook_targets import Target
from tests.kit.workers import all_run

pytestmark = pytest.mark.product

WORD = "ada's long word"
REFUSED = 8
ALERT = b"\x15"
"""The first byte of a TLS record that is an alert (RFC 8446, section 5.1)."""


def hello(name: str) -> bytes:
    """What a client sends first that offers HTTP/2 to the host of this name."""
    context, outgoing = ssl.create_default_context(), ssl.MemoryBIO()
    context.set_alpn_protocols(["h2", "http/1.1"])
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name).do_handshake()
    return outgoing.read()


def tunnel(proxy: dict[str, Any], origin: Origin, name: str) -> tuple[socket.socket, bytes]:
    """A tunnel of ada to `localhost` in which her client names `name`, and what came of it."""
    word = base64.b64encode(f"ada:{WORD}".encode()).decode()
    head = f"CONNECT localhost:{origin.port} HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Basic {word}\r\n\r\n"
    sock = socket.create_connection(("127.0.0.1", proxy["port"]), 20)
    sock.sendall(head.encode())
    reply = b""
    while b"\r\n\r\n" not in reply:
        reply += sock.recv(1)
    assert reply.startswith(b"HTTP/1.1 200 "), reply
    sock.sendall(hello(name))
    return sock, sock.recv(65536)


def test_tunnels_are_seen_by_their_names_and_refusals_of_all_workers_are_one_event(
    own_product: Product, target: Target
) -> None:
    product = own_product
    product.data("POST", "/webhooks", {"name": "names", "url": target.url, "events": ["account.tls_name_denied"]})
    product.data("POST", "/accounts", {"username": "ada", "password": WORD, "proxies": {"all": True}})
    with Origin(echoes) as origin:
        proxy = product.proxy(auth={"enabled": True}, workers=2, tls_name="match", tls_ports=[origin.port])
        all_run(product, proxy, 2)
        sock, echoed = tunnel(proxy, origin, "localhost")
        with closing(sock):
            assert echoed[:1] == b"\x16", "the handshake has reached the origin"
            for query, count in (("tls_name=LOCAL", 1), ("alpn=h2", 1), ("tls_name=other", 0), ("alpn=h2c", 0)):
                listed = product.data("GET", f"/proxies/{proxy['id']}/connections?{query}")
                assert listed["total"] == count, query
            (live,) = product.data("GET", "/connections?tls_name=localhost")["connections"]
            assert (live["tls_name"], live["alpn"], live["tls_version"]) == ("localhost", "h2,http/1.1", "1.3")
        for _ in range(REFUSED):
            sock, reply = tunnel(proxy, origin, "other.example")
            sock.close()
            assert reply[:1] == ALERT
    denied = f"/logs?proxy_id={proxy['id']}&reason=tls_name_denied&tls_name=Other.example&alpn=http/1.1"
    wait_until(lambda: product.data("GET", denied)["total"] == REFUSED, "records of all refusals")
    record = product.data("GET", denied)["logs"][0]
    assert (record["status_code"], record["rule"]) == (200, "tls_name")
    assert record["detail"].startswith("mismatch: ")
    assert {"other.example", "localhost"} <= set(re.findall(r"[a-z.]+", record["detail"]))
    passed = product.data("GET", f"/logs?proxy_id={proxy['id']}&tls_name=localhost")["logs"]
    assert [(each["reason"], each["tls_version"]) for each in passed] == [("", "1.3")]
    wait_until(lambda: counted(product) == {"match": 1, "mismatch": REFUSED}, "the counters of both workers")
    wait_until(lambda: target.received, "the first refusal is an event at once")
    product.actor("metrics").terminate()
    counts = "what waits is published when the collector ends"
    wait_until(lambda: sum(each["count"] for each in events(target)) == REFUSED, counts)
    assert len(events(target)) < 4, "a slow machine has one for each minute"
    for each in events(target):
        assert (each["username"], each["proxy"], each["proxy_id"]) == ("ada", proxy["name"], proxy["id"])
        wanted = {"target": f"localhost:{origin.port}", "tls_name": "other.example", "kind": "mismatch"}
        assert each["tunnels"] == [wanted]


def counted(product: Product) -> dict[str, int]:
    headers = {"Authorization": f"Bearer {product.token}"}
    text = product.session.get(f"{product.base_url}/metrics", headers=headers, timeout=60).text
    found = re.findall(r'^proxyfleet_tls_names_total\{.*kind="(\w+)".*\} (\d+)', text, re.MULTILINE)
    return {kind: int(count) for kind, count in found}


def events(target: Target) -> list[dict[str, Any]]:
    return [each.content["data"] for each in target.received]
