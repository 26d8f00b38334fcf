"""The management API over TLS, as curl, openssl and hostile clients meet it."""

from __future__ import annotations

import contextlib
import http.client
import os
import shutil
import socket
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest
import requests

from actors.net.proxy_protocol import build_v1, build_v2
from tests.kit.certificates import make_pair
from tests.kit.product import PASSWORD
from tests.kit.secured_product import LONG, SecuredProduct
from tests.kit.wait import wait_until

pytestmark = [
    pytest.mark.product,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed"),
]


pytestmark += [
    pytest.mark.filterwarnings("ignore:Unverified HTTPS request"),
    pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1"),
]


def answer(stream: Any, path: str = "/api/v1/health", **headers: str) -> http.client.HTTPResponse:
    """One request on a connection that stays open."""
    lines = [
        f"GET {path} HTTP/1.1",
        "Host: x",
        *(f"{name.replace('_', '-')}: {text}" for name, text in headers.items()),
    ]
    stream.sendall("\r\n".join([*lines, "", ""]).encode())
    response = http.client.HTTPResponse(stream)
    response.begin()
    return response


def test_curl_signs_in_over_tls_and_plain_http_is_not_answered(secured: SecuredProduct) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    done = subprocess.run(
        [
            "curl",
            "-sS",
            "-m",
            "100",
            "--noproxy",
            "*",
            "-k",
            "-u",
            f"admin:{PASSWORD}",
            f"{secured.base_url}/api/v1/auth/test",
        ],
        capture_output=True,
        text=True,
        timeout=LONG,
    )
    assert '"authenticated":true' in done.stdout, done.stderr
    plain = secured.base_url.replace("https", "http")
    refused = subprocess.run(
        ["curl", "-sS", "-m", "100", "--noproxy", "*", f"{plain}/health"], capture_output=True, timeout=LONG
    )
    assert refused.returncode != 0
    assert refused.stdout == b""


def test_openssl_agrees_on_http_1_1_by_alpn_and_on_no_old_protocol(secured: SecuredProduct) -> None:
    command = ["openssl", "s_client", "-connect", f"127.0.0.1:{secured.port}", "-alpn", "h2,http/1.1"]
    done = subprocess.run(command, input=b"", capture_output=True, timeout=LONG)
    assert b"ALPN protocol: http/1.1" in done.stdout
    with contextlib.closing(socket.create_connection(("127.0.0.1", secured.port), LONG)) as plain:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises((ssl.SSLError, ConnectionError)):
            context.wrap_socket(plain)


@pytest.mark.parametrize("build", [build_v1, build_v2])
def test_no_one_forges_an_address_by_a_header_of_their_own(secured: SecuredProduct, build: Any) -> None:
    with secured.connect() as stream:
        stream.sendall(build(("203.0.113.9", 1), ("203.0.113.10", 443)))
        response = answer(stream, "/api/v1/auth/test", X_Request_Id="forged")
        assert response.status == 400
    assert "203.0.113.9" not in secured.log


def test_the_address_of_the_client_is_that_of_its_connection(secured: SecuredProduct) -> None:
    with secured.connect() as stream:
        response = answer(stream, "/api/v1/auth/test", X_Request_Id="whose-address", X_Forwarded_For="203.0.113.8")
        assert response.status == 401
    wait_until(lambda: "whose-address" in secured.log, "the request is logged")
    line = next(line for line in secured.log.splitlines() if "whose-address" in line)
    assert "at 127.0.0.1" in line


def test_a_new_certificate_is_used_at_once_and_drops_no_one(secured: SecuredProduct, tmp_path: Path) -> None:
    with secured.connect() as older:
        first = older.getpeercert(binary_form=True)
        assert answer(older, "/health").read()
        cert, key = make_pair(tmp_path)
        os.replace(key, secured.key)
        os.replace(cert, secured.cert)
        wait_until(lambda: _certificate(secured) != first, "the new certificate is used", LONG)
        assert answer(older, "/health").read()


def _certificate(secured: SecuredProduct) -> bytes | None:
    with secured.connect() as stream:
        return stream.getpeercert(binary_form=True)


@pytest.mark.parametrize("restarted", [False, True], ids=["at once", "also by the next front"])
def test_max_connections_set_through_the_api_hold_before_tls_too(secured: SecuredProduct, restarted: bool) -> None:
    """50 is what one address has at least."""
    before = secured.data("GET", "/settings")["server"]["max_connections"]
    with contextlib.ExitStack() as stack:

        def admitted(source: str, number: int) -> bool:
            made = [_from(source, secured.port) for _ in range(number)]
            for each in made:
                stack.callback(each.close)
            return _is_open(made[-1])

        secured.data("PATCH", "/settings", {"server": {"max_connections": 60}})
        try:
            if restarted:
                secured.actor("tls").kill()
                wait_until(lambda: _health(secured), "TLS is served again", LONG)
            assert not admitted("127.0.0.8", 51)
        finally:
            secured.data("PATCH", "/settings", {"server": {"max_connections": before}})
        assert admitted("127.0.0.9", 51)


def _from(source: str, port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), LONG, (source, 0))


def _is_open(sock: socket.socket) -> bool:
    """Whether a handshake begins: one that is refused is closed at once."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        context.wrap_socket(sock).close()
    except OSError:
        return False
    return True


def test_when_the_api_dies_clients_get_the_next_one(secured: SecuredProduct) -> None:
    secured.actor("api").kill()
    assert wait_until(lambda: _health(secured), "the API is served again", LONG)


def _health(secured: SecuredProduct) -> bool:
    try:
        return secured.session.get(f"{secured.base_url}/health", timeout=5).status_code == 200
    except OSError:
        return False


def test_with_tls_a_browser_keeps_its_session_through_a_restart(secured: SecuredProduct) -> None:
    browser = requests.Session()
    browser.verify, browser.trust_env = False, False
    url, page = f"{secured.base_url}/api/v1/auth", {"Sec-Fetch-Site": "same-origin"}
    body = {"username": "admin", "password": PASSWORD, "session": "cookie"}
    response = browser.post(f"{url}/login", json=body, headers=page, timeout=LONG)
    assert response.status_code == 200, response.text
    header = response.headers["Set-Cookie"]
    assert header.startswith("__Host-proxyfleet=rt_")
    assert {"Secure", "HttpOnly", "SameSite=Strict", "Path=/"} <= {part.strip() for part in header.split(";")}
    assert "Domain" not in header
    assert secured.stop() == 0
    secured.start()
    for _ in range(3):
        response = browser.post(f"{url}/refresh", headers={"Origin": secured.base_url}, timeout=LONG)
        assert response.status_code == 200, response.text
    other = {"Origin": secured.base_url.replace("https", "http")}
    assert browser.post(f"{url}/refresh", headers=other, timeout=LONG).status_code == 403
    bearer = {"Authorization": f"Bearer {response.json()['data']['access_token']}"}
    sessions = browser.get(f"{url}/sessions", headers=bearer, timeout=LONG).json()["data"]["sessions"]
    assert [each["kind"] for each in sessions if each["current"]] == ["cookie"]
    assert browser.post(f"{url}/logout", headers=page, timeout=LONG).status_code == 200
    assert not browser.cookies
    assert browser.post(f"{url}/refresh", headers=page, timeout=LONG).status_code == 401
