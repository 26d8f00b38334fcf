"""TLS handshakes with clients that come to nothing: a record, a counter for each reason, and no flood of records."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from actors.forwarding.stats import HANDSHAKES_RECORDED
from tests.actor.forwarding.http_client import connect
from tests.kit.certificates import make_pair
from tests.kit.forwarding_rig import Rig, until


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with Rig(protocol="https", tls=make_pair(tmp_path_factory.mktemp("tls"))) as rig:
        yield rig


def does_not_trust(sock: socket.socket) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        ssl.create_default_context().wrap_socket(sock, server_hostname="localhost")


def sends(data: bytes, end: bool = False) -> Callable[[socket.socket], None]:
    def send(sock: socket.socket) -> None:
        sock.sendall(data)
        if end:
            sock.shutdown(socket.SHUT_WR)

    return send


CASES: dict[str, Callable[[socket.socket], None]] = {
    "tls_certificate_rejected": does_not_trust,
    "tls_not_spoken": sends(b"GET http://a.example/ HTTP/1.1\r\nHost: a\r\n\r\n"),
    "tls_handshake_failed": sends(b"\x16\x03\x01\x02\x00\x01", end=True),
}


@pytest.mark.parametrize("word", CASES)
def test_a_failed_handshake_has_a_record_and_a_counter(secure: Rig, word: str) -> None:
    with connect(secure) as client:
        CASES[word](client)
        record = secure.record(reason=word)
    assert (record["status_code"], record["method"], record["client_ip"]) == (400, "", "127.0.0.1")
    assert record["detail"]
    until(lambda: secure.counters and secure.counters.refusals.get(word), "it is counted")


def test_socks_sent_to_an_https_proxy_is_reported_as_such(secure: Rig) -> None:
    secure.records.clear()
    with connect(secure) as client:
        client.sendall(b"\x05\x01\x00" + bytes(8))
        assert secure.record(reason="tls_not_spoken")["detail"] == "the client speaks something else than TLS"


def test_many_failed_handshakes_are_all_counted_and_few_recorded(secure: Rig) -> None:
    with connect(secure):
        pass  # a client that sends nothing has not failed
    for _ in range(HANDSHAKES_RECORDED + 20):
        with connect(secure) as client:
            client.sendall(b"GET / HTTP/1.0\r\n\r\n")
            with suppress(ConnectionResetError):
                client.recv(100)
    least = HANDSHAKES_RECORDED + 20
    until(lambda: secure.counters and secure.counters.refusals.get("tls_not_spoken", 0) >= least, "all are counted")
    assert len([each for each in secure.records if each["reason"].startswith("tls_")]) <= HANDSHAKES_RECORDED
