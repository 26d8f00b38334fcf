"""A proxy of protocol `https`, from its creation by the API to curl's bytes through it."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.certificates import make_pair
from tests.kit.client_certificates import Authority
from tests.kit.http_origins import Origin
from tests.kit.product import Product
from tests.kit.wait import wait_until

pytestmark = [
    pytest.mark.product,
    pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed"),
]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    return make_pair(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def secure(product: Product, pair: tuple[str, str]) -> Iterator[dict[str, Any]]:
    made = product.proxy(protocol="https", tls={"cert_file": pair[0], "key_file": pair[1]})
    yield made
    product.data("DELETE", f"/proxies/{made['id']}")


def curl(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["curl", "-sS", "-m", "120", "--noproxy", "", *arguments], capture_output=True, text=True, timeout=180
    )


def test_a_session_of_tls_is_resumed_by_its_process_and_made_anew_behind_a_restart(
    product: Product, secure: dict[str, Any], pair: tuple[str, str]
) -> None:
    context = ssl.create_default_context(cafile=pair[0])
    session = _session(context, secure["port"], None)[0]
    session, resumed = _session(context, secure["port"], session)
    assert resumed
    product.data("POST", f"/proxies/{secure['id']}/restart")
    assert not _session(context, secure["port"], session)[1]


def test_a_session_that_is_offered_to_any_worker_is_served(product: Product, pair: tuple[str, str]) -> None:
    tls = {"cert_file": pair[0], "key_file": pair[1]}
    proxy = product.proxy(protocol="https", tls=tls, workers=2)
    context = ssl.create_default_context(cafile=pair[0])
    session = _session(context, proxy["port"], None)[0]
    for _ in range(20):  # by a handshake of either kind, since each worker has keys of its own
        assert _session(context, proxy["port"], session)[0].has_ticket
    product.data("DELETE", f"/proxies/{proxy['id']}")


def _session(context: ssl.SSLContext, port: int, session: ssl.SSLSession | None) -> tuple[ssl.SSLSession, bool]:
    """The session of a connection, and whether it is the given one."""
    sock = socket.create_connection(("127.0.0.1", port), timeout=30)
    with context.wrap_socket(sock, server_hostname="localhost", session=session) as client:
        client.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        while client.recv(65536):  # a ticket of TLS 1.3 comes before the response
            continue
        assert client.session is not None
        return client.session, bool(client.session_reused)


def test_a_certificate_for_each_build_machine(
    product: Product, pair: tuple[str, str], origin: Origin, tmp_path: Path
) -> None:
    """The recipe of docs/how-to/access.md."""
    authority = Authority(tmp_path / "clients")
    tls = {"cert_file": pair[0], "key_file": pair[1], "client_ca": str(authority.ca)}
    proxy = product.proxy(protocol="https", tls=tls, auth={"enabled": True})
    body = {"username": "build-7", "certificates": ["CN=build-7"], "tags": ["ci"]}
    account = product.data("POST", "/accounts", body)["account"]
    to_proxy = ("-x", f"https://localhost:{proxy['port']}", "--proxy-cacert", pair[0])
    through = (*to_proxy, "-w", "%{http_code}", "-o", "/dev/null")
    try:
        for name, status in (("build-7", "200"), ("build-8", "407")):
            cert, key = authority.issue(name)
            shown = curl(*through, "--proxy-cert", cert, "--proxy-key", key, origin.url("/hello"))
            assert shown.stdout == status, shown.stderr
        assert curl(*through, origin.url("/hello")).returncode != 0, "a certificate is required"
        wait_until(lambda: len(_records(product, proxy)) >= 3, "all are recorded")
        words = {each["reason"]: each["user"] for each in _records(product, proxy)}
        assert words == {"": "build-7", "client_certificate_unmatched": "", "client_certificate_missing": ""}
    finally:
        product.data("DELETE", f"/accounts/{account['id']}")
        product.data("DELETE", f"/proxies/{proxy['id']}")


def _records(product: Product, proxy: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = product.data("GET", f"/logs?proxy_id={proxy['id']}")["logs"]
    return found
