"""The socks4 and socks5 protocols of the whole product, with curl, hand-made peers and a small DNS server."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.kit.certificates import make_pair
from tests.kit.http_origins import Origin, serving
from tests.kit.product import Product
from tests.kit.wait import wait_until
from tests.kit.wire import Client

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")


@contextmanager
def a_proxy(product: Product, protocol: str, **more: Any) -> Iterator[dict[str, Any]]:
    made = product.proxy(protocol=protocol, **more)
    try:
        yield made
    finally:
        product.api("DELETE", f"/proxies/{made['id']}")


def curl(option: str, proxy: dict[str, Any], *more: str) -> subprocess.CompletedProcess[bytes]:
    command = ("curl", "-sS", "--noproxy", "", option, f"127.0.0.1:{proxy['port']}", *more)
    return subprocess.run(command, capture_output=True, timeout=180, stdin=subprocess.DEVNULL, check=False)


def in_log(product: Product, proxy: dict[str, Any], count: int) -> list[dict[str, Any]] | None:
    """The proxy's records once there are `count` of them."""
    found: list[dict[str, Any]] = product.data("GET", f"/logs?proxy_id={proxy['id']}")["logs"]
    return found if len(found) == count else None


@pytest.mark.parametrize(
    ("protocol", "option"),
    [
        ("socks5", "--socks5"),
        ("socks5", "--socks5-hostname"),
        ("socks4", "--socks4"),
        ("socks4", "--socks4a"),
    ],
)
def test_curl_fetches_through_every_way_of_socks_and_the_record_names_the_target(
    product: Product, origin: Origin, protocol: str, option: str
) -> None:
    with a_proxy(product, protocol) as proxy:
        done = curl(option, proxy, origin.url("/hello").replace("127.0.0.1", "localhost"))
        assert (done.returncode, done.stdout) == (0, b"hello"), done.stderr
        (record,) = wait_until(lambda: in_log(product, proxy, 1), "the record")
        assert record["status_code"] == 200
        assert record["target_url"] in (f"127.0.0.1:{origin.port}", f"localhost:{origin.port}")


@pytest.mark.parametrize("protocol", ["socks4", "socks5"])
@pytest.mark.parametrize("auth", [False, True])
def test_the_api_tests_a_socks_proxy_as_an_authorised_client(
    product: Product, origin: Origin, protocol: str, auth: bool
) -> None:
    password = {} if protocol == "socks4" else {"password": "p@ss:word"}
    with a_proxy(product, protocol, auth={"enabled": auth, "username": "ada", **password}) as proxy:
        result = product.data("POST", f"/proxies/{proxy['id']}/test", {"url": origin.url("/hello")})["test_result"]
        assert (result["status"], result["status_code"]) == ("success", 200), result
        unused = f"http://127.0.0.1:{product.free_port()}/"
        result = product.data("POST", f"/proxies/{proxy['id']}/test", {"url": unused})["test_result"]
        assert (result["status"], result["status_code"]) == ("failed", 502), result
        assert "to CONNECT" in result["error"]


def test_the_user_of_curl_is_checked_and_stands_in_the_record(product: Product, origin: Origin) -> None:
    with a_proxy(product, "socks5", auth={"enabled": True, "username": "ada", "password": "p@ss:word"}) as proxy:
        done = curl("--socks5-hostname", proxy, "--proxy-user", "ada:p@ss:word", origin.url("/hello"))
        assert done.stdout == b"hello", done.stderr
        assert curl("--socks5-hostname", proxy, "--proxy-user", "ada:wrong", origin.url("/hello")).returncode == 97
        assert curl("--socks5-hostname", proxy, origin.url("/hello")).returncode == 97
        records = wait_until(lambda: in_log(product, proxy, 3), "three records")
        assert sorted((record["status_code"], record["user"]) for record in records) == [
            (200, "ada"),
            (407, ""),
            (407, "ada"),
        ]


def test_the_userid_of_socks4_is_checked(product: Product, origin: Origin) -> None:
    with a_proxy(product, "socks4", auth={"enabled": True, "username": "ada"}) as proxy:
        assert curl("--socks4", proxy, "--proxy-user", "ada:", origin.url("/hello")).stdout == b"hello"
        assert curl("--socks4a", proxy, "--proxy-user", "eve:", origin.url("/hello")).returncode == 97
        records = wait_until(lambda: in_log(product, proxy, 2), "two records")
        reported = [(record["status_code"], record["user"], record["target_url"]) for record in records]
        # in any order: a tunnel is recorded at its end, for which the origin has to close, too
        assert sorted(reported) == [(200, "ada", f"127.0.0.1:{origin.port}"), (407, "eve", f"127.0.0.1:{origin.port}")]


def test_an_ipv6_target_is_reached(product: Product) -> None:
    try:
        server = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")

    def response() -> None:
        sock, _ = server.accept()
        with sock:
            sock.recv(65536)
            sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nsix")

    with server, a_proxy(product, "socks5") as proxy:
        threading.Thread(target=response, daemon=True).start()
        done = curl("--socks5-hostname", proxy, "-g", f"http://[::1]:{server.getsockname()[1]}/")
        assert done.stdout == b"six", done.stderr


@pytest.mark.parametrize(("protocol", "option"), [("socks5", "--socks5-hostname"), ("socks4", "--socks4a")])
def test_twenty_megabytes_arrive_as_they_are(product: Product, tmp_path: Path, protocol: str, option: str) -> None:
    body = os.urandom(1 << 20) * 20
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        sock, _ = server.accept()
        with sock:
            sock.recv(65536)
            sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(body))
            sock.sendall(body)

    with server, a_proxy(product, protocol) as proxy:
        threading.Thread(target=serve, daemon=True).start()
        file = tmp_path / "body"
        done = curl(option, proxy, "-o", str(file), f"http://127.0.0.1:{server.getsockname()[1]}/")
        assert done.returncode == 0, done.stderr
        assert hashlib.sha256(file.read_bytes()).digest() == hashlib.sha256(body).digest()
        (record,) = wait_until(lambda: in_log(product, proxy, 1), "the record")
        assert record["bytes_out"] > len(body)


def test_bind_lets_a_peer_of_ours_in(product: Product) -> None:
    with a_proxy(product, "socks5") as proxy, Client(proxy["port"]) as client:
        client.send(b"\x05\x01\x00")
        assert client.exactly(2) == b"\x05\x00"
        client.send(b"\x05\x02\x00\x01\x7f\0\0\x01\0\x15")
        first = client.exactly(10)
        assert first[:8] == b"\x05\0\0\x01\x7f\0\0\x01"
        with socket.create_connection(("127.0.0.1", int.from_bytes(first[8:], "big")), 60) as peer:
            assert client.exactly(10) == first[:8] + peer.getsockname()[1].to_bytes(2, "big")
            peer.sendall(b"hello")
            assert client.exactly(5) == b"hello"
            client.socket.shutdown(socket.SHUT_WR)
            assert peer.recv(1) == b""
            peer.sendall(b"after your end")
            peer.shutdown(socket.SHUT_WR)
            assert client.rest() == b"after your end"
        (record,) = wait_until(lambda: in_log(product, proxy, 1), "the record")
        assert (record["status_code"], record["target_url"]) == (200, "127.0.0.1:21")


def test_a_dns_query_is_answered_over_udp_associate(product: Product) -> None:
    query = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x01a\x07example\0\0\x01\0\x01"  # RFC 1035 section 4: A of a.example
    record_a = b"\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04\xc0\0\x02\x01"  # 60 s, 192.0.2.1
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", 0))
    server.settimeout(60)

    def serve() -> None:
        asked, sender = server.recvfrom(512)
        server.sendto(asked[:2] + b"\x81\x80\0\x01\0\x01\0\0\0\0" + asked[12:] + record_a, sender)

    with server, a_proxy(product, "socks5") as proxy, Client(proxy["port"]) as control:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        control.send(b"\x05\x01\x00\x05\x03\x00\x01\0\0\0\0\0\0")
        assert control.exactly(5) == b"\x05\0\x05\0\0"
        relay = control.exactly(7)
        head = b"\0\0\0\x01\x7f\0\0\x01" + server.getsockname()[1].to_bytes(2, "big")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.settimeout(60)
            client.sendto(head + query, (socket.inet_ntoa(relay[1:5]), int.from_bytes(relay[5:], "big")))
            response = client.recv(65535)
        thread.join(60)
        assert response[:10] == head
        assert response[10:12] == query[:2]
        assert response.endswith(record_a)
        control.socket.close()
        (record,) = wait_until(lambda: in_log(product, proxy, 1), "the record")
        assert record["target_url"] == f"127.0.0.1:{server.getsockname()[1]}"
        assert record["bytes_in"] == 13 + 10 + len(query)


def test_the_api_tests_an_https_target_behind_socks_with_its_certificate(product: Product, tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*make_pair(tmp_path))
    server = Origin(context)
    with serving(server), a_proxy(product, "socks5") as proxy:
        result = product.data("POST", f"/proxies/{proxy['id']}/test", {"url": server.url("/hello")})["test_result"]
        assert result["status"] == "failed"  # the product trusts no authority of it
        assert "CERTIFICATE_VERIFY_FAILED" in result["error"]
        (record,) = wait_until(lambda: in_log(product, proxy, 1), "the record")
        assert (record["status_code"], record["target_url"]) == (
            200,
            server.url("").removeprefix("https://").strip("/"),
        )


def test_an_api_that_was_asked_for_a_socks4_password_says_no(product: Product) -> None:
    body = {"name": "no-password", "port": product.free_port(), "protocol": "socks4"}
    auth = {"enabled": True, "username": "ada", "password": "secret-word"}
    response = product.api("POST", "/proxies", {**body, "auth": auth})
    assert response.status_code == 400
    assert response.json()["error"]["details"]["field"] == "auth.password"
