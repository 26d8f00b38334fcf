"""The check that requests a URL through an upstream: what goes over the wire, by protocol of the upstream."""

from __future__ import annotations

import ssl
from dataclasses import replace
from pathlib import Path

import pytest

from actors.forwarding.protocols.failures import CREDENTIALS_REJECTED
from actors.forwarding.upstreams import url_check
from actors.forwarding.upstreams.handshake import Handshake, UpstreamFailed
from actors.forwarding.upstreams.url_check import CheckUrl
from tests.kit.certificates import make_pair
from tests.kit.upstreams import upstream_entry

UP = replace(upstream_entry(3128), username="u", password="p")
PLAIN = CheckUrl("http://check.example:8080/a?b", 204)
NO_CONTENT = b"HTTP/1.1 204 No Content\r\n\r\n"


def feed(handshake: Handshake, data: bytes) -> tuple[bytes, bool]:
    """What it sends for these bytes, all of which it has to use, and whether it is done."""
    sent, done = b"", False
    while data:
        step = handshake.feed(data)
        data, sent, done = data[step.used :], sent + step.send, step.done
    return sent, done


def test_a_plain_url_goes_to_an_http_upstream_in_absolute_form() -> None:
    check = PLAIN.handshake(UP)
    head = check.begin()
    assert head.startswith(b"GET http://check.example:8080/a?b HTTP/1.1\r\nHost: check.example:8080\r\n")
    assert b"\r\nProxy-Authorization: Basic dTpw\r\n" in head
    assert not check.target_sent, "the time of the check is for all of it"
    assert feed(check, NO_CONTENT) == (b"", True)


def test_through_socks_it_goes_in_origin_form() -> None:
    check = PLAIN.handshake(replace(UP, protocol="socks5"))
    assert check.begin() == b"\x05\x02\x00\x02"
    assert feed(check, b"\x05\x00")[0].startswith(b"\x05\x01\x00\x03\x0dcheck.example")
    sent, done = feed(check, b"\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00")
    assert (sent.startswith(b"GET /a?b HTTP/1.1\r\nHost: check.example:8080\r\n"), done) == (True, False)
    assert b"Authorization" not in sent
    assert feed(check, NO_CONTENT) == (b"", True)


@pytest.mark.parametrize(
    ("response", "cause"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", "responds 200 through it, not 204"),
        (b"HTTP/1.1 407 No\r\n\r\n", "other credentials"),
        (b"nonsense\r\n\r\n", "not HTTP"),
    ],
)
def test_any_other_response_is_a_failure_of_the_upstream(response: bytes, cause: str) -> None:
    check = PLAIN.handshake(UP)
    check.begin()
    with pytest.raises(UpstreamFailed, match=cause) as failed:
        feed(check, response)
    assert (failed.value.failure.kind == CREDENTIALS_REJECTED) is (b"407" in response)


def test_the_certificate_of_an_https_url_is_verified() -> None:
    context = url_check._context()
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)


@pytest.mark.parametrize("trusted", [True, False])
def test_an_https_url_has_tls_within_the_tunnel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trusted: bool) -> None:
    cert, key = make_pair(tmp_path, hosts=("check.example",))
    client = ssl.create_default_context(cafile=cert if trusted else None)
    monkeypatch.setattr(url_check, "_context", lambda: client)
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_context.load_cert_chain(cert, key)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = server_context.wrap_bio(incoming, outgoing, server_side=True)
    check = CheckUrl("https://check.example/", 204).handshake(UP)
    assert check.begin().startswith(b"CONNECT check.example:443 HTTP/1.1\r\n")
    sent, done = feed(check, b"HTTP/1.1 200 OK\r\n\r\n")
    request = b""
    for _turn in range(5):
        incoming.write(sent)
        try:
            request += server.read(4096)
            server.write(b"HTTP/1.1 103 Early Hints\r\n\r\n" + NO_CONTENT)
        except ssl.SSLWantReadError:
            pass
        if not trusted:
            with pytest.raises(UpstreamFailed, match="TLS with the URL"):
                feed(check, outgoing.read())
            return
        sent, done = feed(check, outgoing.read())
        if done:
            break
    assert done, "the final response came with an interim one"
    assert request.startswith(b"GET / HTTP/1.1\r\nHost: check.example\r\n")
