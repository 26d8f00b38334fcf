"""Name servers that send without end, or what breaks others: their connections are closed, and names of others are
resolved meanwhile."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from actors.forwarding.net import resolver_link
from actors.forwarding.net.resolver import Resolved
from actors.forwarding.net.resolver_link import Profile
from actors.net.tls_stream import TlsStream
from tests.actor.resolver.test_link import Front
from tests.kit.certificates import make_pair
from tests.kit.name_servers import FloodingNameServer, ScriptedNameServer, zone
from tests.kit.resolver_process import ResolverProcess
from tests.kit.wait import wait_until


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    """A frame of HTTP/2 (RFC 9113, section 4.1)."""
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


DATA, HEADERS, SETTINGS, PUSH, PING, WINDOW, CONTINUATION = 0, 1, 4, 5, 6, 8, 9
END_HEADERS = 4
OK = b"\x88"
"""`:status: 200` (RFC 7541, appendix A)."""
BEGUN = frame(SETTINGS) + frame(HEADERS, END_HEADERS, 1, OK)
FLOODS = {
    "empty messages": ("tcp", b"", bytes(2)),
    "messages": ("tcp", b"", (64).to_bytes(2, "big") + bytes(64)),
    "one long message": ("tcp", b"", bytes((0x3F, 0xFF)) + bytes(0x3FFF)),
    "empty messages by TLS": ("tls", b"", bytes(2)),
    "messages by TLS": ("tls", b"", (512).to_bytes(2, "big") + bytes(512)),
    "tickets": ("tls", b"", b""),
    "pings": ("https", frame(SETTINGS), frame(PING, payload=bytes(8))),
    "settings": ("https", frame(SETTINGS), frame(SETTINGS)),
    "room": ("https", frame(SETTINGS), frame(WINDOW, payload=(1).to_bytes(4, "big"))),
    "unknown frames": ("https", frame(SETTINGS), frame(0xEE)),
    "empty data": ("https", BEGUN, frame(DATA, 0, 1)),
    "data": ("https", BEGUN, frame(DATA, 0, 1, bytes(1024))),
    "interim responses": ("https", frame(SETTINGS), frame(HEADERS, END_HEADERS, 1, b"\x08\x03100")),
    "headers": ("https", frame(SETTINGS) + frame(HEADERS, 0, 1, OK), frame(CONTINUATION, 0, 1)),
    "pushes": ("https", frame(SETTINGS), frame(PUSH, END_HEADERS, 1, (2).to_bytes(4, "big") + OK)),
    "no room for requests": ("https", frame(SETTINGS, payload=b"\0\4" + bytes(4)), b""),
    "headers that are no text": ("https", BEGUN, frame(HEADERS, END_HEADERS, 3, OK + b"\0\1a\1\xff")),
    "what is no frame": ("https", b"", b"\xff"),
}


@pytest.fixture(autouse=True)
def no_resolver_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is slow to get its turn does not hang."""
    monkeypatch.setattr(resolver_link, "HUNG_AFTER", 60.0)


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    cert, key = make_pair(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", cert)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    context.set_alpn_protocols(["h2", "dot"])
    return context


@contextmanager
def resolver_of_two(folder: Path, **params: object) -> Iterator[tuple[Front, Front]]:
    """A resolver, and in front of it one whose name server floods, and another."""
    fronts = Front(folder), Front(folder)
    with ResolverProcess(folder, **params):
        yield fronts
        for each in fronts:
            each.link.close()
            each.loop.close()


def check(fronts: tuple[Front, Front]) -> None:
    """Names by the server that floods fail; others are resolved."""
    flooded, other = fronts
    with ScriptedNameServer(zone({"*": ("192.0.2.1",)})) as good:
        other.link.set_profile(Profile((good.address,)))
        flood = [flooded.begin(f"f{number}.example.com") for number in range(5)]
        flooded.loop.turn(0.05)
        for number in range(20):
            assert other.resolve(f"live{number}.example.com") == Resolved(("192.0.2.1",))
        flooded.turn_until(lambda: all(flood))
        assert flooded.looked_up == other.looked_up == [], "the resolver was there all the time"


@pytest.mark.parametrize("what", FLOODS)
def test_a_stream_without_end_is_closed_and_delays_no_other_name(
    tmp_path: Path, context: ssl.SSLContext, what: str
) -> None:
    transport, opening, flood = FLOODS[what]
    if what == "tickets":
        context.num_tickets = 20_000
    resolv_conf = tmp_path / "resolv.conf"
    resolv_conf.write_text("nameserver 127.0.0.1\noptions use-vc\n")
    with (
        FloodingNameServer(flood, opening, None if transport == "tcp" else context) as server,
        resolver_of_two(tmp_path, resolv_conf=str(resolv_conf), port=server.port) as fronts,
    ):
        if transport != "tcp":
            fronts[0].link.set_profile(Profile((f"{transport}://127.0.0.1:{server.port}",)))
        check(fronts)
        wait_until(lambda: server.ended, "the connection is closed")


def test_datagrams_without_end_delay_no_other_name(tmp_path: Path) -> None:
    with (
        ScriptedNameServer(lambda _query, _transport: [bytes(64)] * 50_000) as server,
        resolver_of_two(tmp_path) as fronts,
    ):
        fronts[0].link.set_profile(Profile((server.address,)))
        check(fronts)


def test_tls_without_content_ends_the_connection(tmp_path: Path) -> None:
    cert, key = make_pair(tmp_path)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(cert, key)
    server.num_tickets = 20_000
    with (
        FloodingNameServer(b"", b"", server) as flooding,
        socket.create_connection(("127.0.0.1", flooding.port)) as connection,
    ):
        connection.settimeout(60.0)
        stream = TlsStream(connection, ssl.create_default_context(cafile=cert), "localhost")
        stream.handshake()
        with pytest.raises(OSError, match="without content"):
            stream.recv(1)
