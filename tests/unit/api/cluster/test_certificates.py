"""Nodes know each other by the fingerprints of certificates that they sign themselves."""

from __future__ import annotations

import socket
import ssl
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from api.cluster.links.certificates import (
    Certificates,
    KnownNode,
    NodeCertificateError,
    OwnCertificate,
    connected,
    fingerprint_of,
    is_signed,
    own_certificate,
)
from config.files.paths import DataDir
from tests.kit.certificates import make_pair
from tests.kit.tables import table


def of(folder: Path, name: str) -> OwnCertificate:
    return own_certificate(DataDir(folder / name))


def known(own: OwnCertificate, name: str) -> KnownNode:
    return KnownNode(f"nod_{name}", name, "full", own.pem)


@contextmanager
def served(context: ssl.SSLContext, handle: Callable[[ssl.SSLSocket], None]) -> Iterator[tuple[str, int]]:
    """One connection after the other, for the block."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    plain, _ = listener.accept()
                    with suppress(OSError), context.wrap_socket(plain, server_side=True) as secured:
                        handle(secured)

        threading.Thread(target=serve, daemon=True).start()
        try:
            yield listener.getsockname()
        finally:
            listener.shutdown(socket.SHUT_RDWR)


def test_a_node_makes_its_key_once_and_private(tmp_path: Path) -> None:
    first, again = of(tmp_path, "a"), of(tmp_path, "a")
    assert first == again
    assert {stat.S_IMODE(each.stat().st_mode) for each in (first.key_file, first.cert_file)} == {0o600}
    assert of(tmp_path, "b").fingerprint != first.fingerprint
    assert len(first.fingerprint) == 64
    assert first.key_file.read_text() not in repr(first)


def test_who_has_the_key_can_sign_and_others_can_not(tmp_path: Path) -> None:
    one, two = of(tmp_path, "a"), of(tmp_path, "b")
    signature = one.sign("this")
    assert is_signed(one.pem, "this", signature)
    assert not is_signed(one.pem, "that", signature)
    assert not is_signed(two.pem, "this", signature)
    assert not is_signed(one.pem, "this", b"")


@table("pem", [("",), ("x",), ("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n",), ("é",), ("a" * 5000,)])
def test_what_is_no_certificate_is_refused(pem: str) -> None:
    with pytest.raises(NodeCertificateError):
        fingerprint_of(pem)


def test_two_certificates_in_one_text_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NodeCertificateError, match="not one"):
        fingerprint_of(of(tmp_path, "a").pem + of(tmp_path, "b").pem)


def test_each_side_knows_the_other_until_its_document_is_deleted(tmp_path: Path) -> None:
    a, b = of(tmp_path, "a"), of(tmp_path, "b")
    nodes = [known(a, "a"), known(b, "b")]
    certificates = Certificates(a, lambda: nodes)
    found: list[KnownNode | None] = []

    def handle(secured: ssl.SSLSocket) -> None:
        assert secured.version() == "TLSv1.3"
        found.append(certificates.node_of(secured))
        nodes.pop()
        found.append(certificates.node_of(secured))
        secured.sendall(b"!")

    with (
        served(certificates.server_context(), handle) as address,
        connected(address, a.fingerprint, time.monotonic() + 5, b) as secured,
    ):
        assert secured.recv(1) == b"!"
    assert found == [known(b, "b"), None]


def test_without_a_certificate_the_other_side_is_unknown(tmp_path: Path) -> None:
    a = of(tmp_path, "a")
    certificates = Certificates(a, lambda: [known(a, "a")])
    found: list[KnownNode | None] = []

    def handle(secured: ssl.SSLSocket) -> None:
        found.append(certificates.node_of(secured))
        secured.sendall(b"!")

    with (
        served(certificates.server_context(), handle) as address,
        connected(address, a.fingerprint, time.monotonic() + 5) as secured,
    ):
        assert secured.recv(1) == b"!"
    assert found == [None]


def is_refused(address: tuple[str, int], server: OwnCertificate, client: OwnCertificate) -> bool:
    """In TLS 1.3 a client learns it with the first thing that it reads."""
    try:
        with connected(address, server.fingerprint, time.monotonic() + 5, client) as secured:
            return not secured.recv(1)
    except OSError:
        return True


def test_a_certificate_that_no_document_has_is_refused(tmp_path: Path) -> None:
    a, stranger = of(tmp_path, "a"), of(tmp_path, "stranger")
    cert, key = map(Path, make_pair(tmp_path))
    certificates = Certificates(a, lambda: [known(a, "a")])
    found: list[object] = []
    with served(certificates.server_context(), found.append) as address:
        for each in (stranger, OwnCertificate(cert, key, cert.read_text())):
            assert is_refused(address, a, each)
    assert not found


def test_nothing_is_sent_to_another_node_than_the_expected_one(tmp_path: Path) -> None:
    a, other = of(tmp_path, "a"), of(tmp_path, "other")
    received: list[bytes] = []

    def handle(secured: ssl.SSLSocket) -> None:
        received.append(secured.recv(100))

    with (
        served(Certificates(other, list).server_context(), handle) as address,
        pytest.raises(NodeCertificateError, match="nothing was sent"),
    ):
        connected(address, a.fingerprint, time.monotonic() + 5)
    assert b"".join(received) == b""


def test_a_side_that_says_nothing_is_given_up_in_time(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            connected(listener.getsockname(), "0" * 64, began + 0.2)
        assert time.monotonic() - began < 2


def test_older_versions_of_tls_are_refused(tmp_path: Path) -> None:
    a = of(tmp_path, "a")
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    with (
        served(Certificates(a, list).server_context(), lambda _secured: None) as address,
        socket.create_connection(address) as plain,
        pytest.raises(ssl.SSLError),
    ):
        client.wrap_socket(plain)
