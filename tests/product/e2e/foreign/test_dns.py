"""dnsmasq asked through a socks5 proxy with PySocks: by UDP ASSOCIATE, and by TCP."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import pytest
import socks

from tests.product.e2e.foreign.entrances import Entrance, MakeEntrance
from tests.product.e2e.foreign.programs import dnsmasq, needs

pytestmark = [pytest.mark.product, needs("dnsmasq")]

SECONDS = 15
NAME, ADDRESS = "host.example", "192.0.2.77"


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, int]]:
    with dnsmasq(NAME, ADDRESS) as port:
        yield "127.0.0.1", port


def through(proxy: Entrance, kind: socket.SocketKind) -> socks.socksocket:
    sock = socks.socksocket(socket.AF_INET, kind)
    sock.set_proxy(socks.SOCKS5, "127.0.0.1", proxy.port, True, "ada", "p@ss word")
    sock.settimeout(SECONDS)
    return sock


def query(identifier: int) -> bytes:
    """A question for the address of `NAME` (RFC 1035 section 4.1)."""
    labels = b"".join(bytes([len(label)]) + label.encode() for label in NAME.split("."))
    return struct.pack("!6H", identifier, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!2H", 1, 1)


def check(response: bytes, identifier: int) -> None:
    named, flags, questions, responses, *_ = struct.unpack("!6H", response[:12])
    assert (named, flags & 0x800F, questions, responses) == (identifier, 0x8000, 1, 1)
    assert response.endswith(socket.inet_aton(ADDRESS))


@pytest.fixture
def proxy(entrance: MakeEntrance) -> Entrance:
    return entrance("socks5", auth={"enabled": True, "username": "ada", "password": "p@ss word"})


def test_queries_by_udp_associate_are_answered(proxy: Entrance, server: tuple[str, int]) -> None:
    with through(proxy, socket.SOCK_DGRAM) as sock:
        for identifier in range(1, 51):
            sock.sendto(query(identifier), server)
            response, sender = sock.recvfrom(65535)
            assert sender == server
            check(response, identifier)
    (record,) = proxy.records(1)
    assert (record["method"], record["target_url"]) == ("UDP", f"127.0.0.1:{server[1]}")
    assert (record["status_code"], record["user"]) == (200, "ada")
    assert record["bytes_out"] > 50 * len(query(1))


def test_one_association_reaches_a_server_by_its_name(proxy: Entrance, server: tuple[str, int]) -> None:
    with through(proxy, socket.SOCK_DGRAM) as sock:
        sock.sendto(query(7), ("localhost", server[1]))
        response, sender = sock.recvfrom(65535)
        assert sender == server
        check(response, 7)


def test_a_query_by_tcp_is_answered(proxy: Entrance, server: tuple[str, int]) -> None:
    with through(proxy, socket.SOCK_STREAM) as sock:
        sock.connect(server)
        sock.sendall(struct.pack("!H", len(query(9))) + query(9))
        stream = sock.makefile("rb")
        (length,) = struct.unpack("!H", stream.read(2))
        check(stream.read(length), 9)
