"""Sessions of TLS are resumed under the root key by whom they should be, and by nothing else."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

import pytest

from actors.net.tls_stream import Certificate
from actors.net.tls_tickets import ROOT_SIZE, Root, Tickets, build, derived, read_root, works, write_root
from config.files.client_certificates import ClientFiles
from tests.kit.certificates import make_pair

VERSIONS = pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])


@dataclass
class Place:
    """A folder with a certificate and a root key."""

    folder: Path
    pair: tuple[str, str]

    @property
    def file(self) -> Path:
        return self.folder / "tickets"

    def new_root(self, of_build: str | None = None) -> None:
        """Another key in place of the one before."""
        write_root(self.file, Root(of_build or build(), b"boot", 0.0, ssl.RAND_bytes(ROOT_SIZE)))

    def certificate(self, name: str, clients: ClientFiles | None = None) -> Certificate:
        """As a process has it that begins now."""
        return Certificate(*self.pair, lambda _problem: None, clients, Tickets(self.file, name))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(tmp_path, make_pair(tmp_path))
    made.new_root()
    return made


class Client:
    """Connects within this process, with the session of the connection before."""

    def __init__(self, version: ssl.TLSVersion) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._context.check_hostname = False
        self._context.verify_mode = ssl.CERT_NONE
        self._context.minimum_version = self._context.maximum_version = version
        self.session: ssl.SSLSession | None = None

    def resumes_at(self, certificate: Certificate) -> bool:
        """Whether the server resumed what the client had from its connection before."""
        there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
        server = certificate.context(0.0).wrap_bio(there, back, server_side=True)
        client = self._context.wrap_bio(back, there, session=self.session)
        waiting = [client, server]
        while waiting:
            for each in tuple(waiting):
                try:
                    each.do_handshake()
                    waiting.remove(each)
                except ssl.SSLWantReadError:
                    continue
        server.write(b"x")
        assert client.read(1) == b"x"  # a ticket of TLS 1.3 comes before it
        self.session = client.session
        return bool(client.session_reused)


def test_keys_are_derived_as_rfc_5869_says() -> None:
    root = bytes.fromhex("077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5")
    wanted = "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"
    assert derived(root, bytes(range(0xF0, 0xFA)), 42).hex() == wanted


def test_this_build_can_share_keys() -> None:
    assert works()


@VERSIONS
def test_another_process_of_the_same_proxy_resumes_a_session_and_so_does_the_next(
    place: Place, version: ssl.TLSVersion
) -> None:
    client = Client(version)
    assert not client.resumes_at(place.certificate("p1"))
    assert client.resumes_at(place.certificate("p1"))
    assert client.resumes_at(place.certificate("p1"))


@VERSIONS
def test_another_proxy_with_the_same_certificate_does_not(place: Place, version: ssl.TLSVersion) -> None:
    client = Client(version)
    client.resumes_at(place.certificate("p1"))
    assert not client.resumes_at(place.certificate("p2"))


@VERSIONS
def test_a_session_ends_with_its_certificate(place: Place, version: ssl.TLSVersion) -> None:
    client = Client(version)
    client.resumes_at(place.certificate("p1"))
    place.pair = make_pair(place.folder, "second")
    assert not client.resumes_at(place.certificate("p1"))


@VERSIONS
def test_a_new_root_key_holds_for_a_running_process_and_ends_sessions(place: Place, version: ssl.TLSVersion) -> None:
    running, client = place.certificate("p1"), Client(version)
    client.resumes_at(running)
    place.new_root()
    running.check()
    assert not client.resumes_at(running)
    assert client.resumes_at(place.certificate("p1"))


def test_a_root_key_that_comes_later_is_used_from_then_on(place: Place) -> None:
    place.file.unlink()
    running, client = place.certificate("p1"), Client(ssl.TLSVersion.TLSv1_3)
    client.resumes_at(running)
    assert not client.resumes_at(place.certificate("p1")), "without a root key each process has its own"
    place.new_root()
    running.check()
    client.resumes_at(running)
    assert client.resumes_at(place.certificate("p1"))


@pytest.mark.parametrize("content", [b"", b"\xc1", b"\x94\xa1x\xc0\x00\xc4\x01x", b"\x93\x01\x02\x03"])
def test_a_damaged_file_is_none(place: Place, content: bytes) -> None:
    place.file.write_bytes(content)
    assert read_root(place.file) is None
    client = Client(ssl.TLSVersion.TLSv1_3)
    client.resumes_at(place.certificate("p1"))
    assert not client.resumes_at(place.certificate("p1"))


def test_a_root_key_that_was_checked_for_another_build_is_not_used(place: Place) -> None:
    place.new_root(of_build="CPython 2.7")
    client = Client(ssl.TLSVersion.TLSv1_3)
    client.resumes_at(place.certificate("p1"))
    assert not client.resumes_at(place.certificate("p1"))


@VERSIONS
def test_who_asks_for_certificates_gives_no_tickets(place: Place, version: ssl.TLSVersion) -> None:
    clients = ClientFiles(place.pair[0], required=False)
    client = Client(version)
    client.resumes_at(place.certificate("p1", clients))
    assert client.session is None or not client.session.has_ticket
    assert not client.resumes_at(place.certificate("p1", clients))
