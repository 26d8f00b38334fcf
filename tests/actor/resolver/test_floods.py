"""Name servers that send without end, or what breaks others: their connections are closed, and names of others are
resolved meanwhile."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path
from typing import Self

import msgpack
import pytest

from actors.net.resolver_protocol import FAILED, FOUND, PACKET_MAX, PROFILE, SOME, TIMED_OUT
from actors.net.tls_stream import TlsStream
from actors.resolver.profiles import TIMEOUT
from tests.actor.resolver.resolving import DEADLINE
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


class Asking:
    """An actor that asks the resolver by these name servers, the system's without any."""

    def __init__(self, resolver: ResolverProcess, *servers: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(DEADLINE)
        self._socket.connect(str(resolver.socket))
        self._socket.send(msgpack.packb([PROFILE, servers, 0, 86_400]))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._socket.close()

    def begin(self, number: int, name: str) -> None:
        """Ask for a name."""
        self._socket.send(msgpack.packb([number, name, "192.0.2.1"]))

    def reply(self) -> list[object]:
        """Number, status, time to live and what is found, of the next reply that is whole."""
        while True:
            packet = self._socket.recv(PACKET_MAX)
            assert packet, "the resolver has ended"
            reply: list[object] = msgpack.unpackb(packet)
            if reply[1] != SOME:
                return reply


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A certificate and its key."""
    cert, key = make_pair(tmp_path_factory.mktemp("pair"))
    return str(cert), str(key)


@pytest.fixture
def context(pair: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """Of a name server whose certificate resolvers trust."""
    cert, key = pair
    monkeypatch.setenv("SSL_CERT_FILE", cert)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    context.set_alpn_protocols(["h2", "dot"])
    return context


def check(resolver: ResolverProcess, *flooding: str) -> None:
    """Names by the server that floods fail; others are resolved."""
    with (
        ScriptedNameServer(zone({"*": ("192.0.2.1",)})) as good,
        Asking(resolver, *flooding) as flooded,
        Asking(resolver, good.address) as other,
    ):
        for number in range(1, 6):
            flooded.begin(number, f"f{number}.example.com")
        for number in range(1, 21):
            other.begin(number, f"live{number}.example.com")
            assert other.reply()[1::2] == [FOUND, ["192.0.2.1"]]
        assert {flooded.reply()[1] for _ in range(5)} <= {FAILED, TIMED_OUT}


@pytest.mark.parametrize("what", FLOODS)
def test_a_stream_without_end_is_closed_and_delays_no_other_name(
    tmp_path: Path, context: ssl.SSLContext, what: str
) -> None:
    transport, opening, flood = FLOODS[what]
    timeout = 1.0 if what == "no room for requests" else TIMEOUT  # its names fail then, others' with the connection
    if what == "tickets":
        context.num_tickets = 20_000
    resolv_conf = tmp_path / "resolv.conf"
    resolv_conf.write_text("nameserver 127.0.0.1\noptions use-vc\n")
    with (
        FloodingNameServer(flood, opening, None if transport == "tcp" else context) as server,
        ResolverProcess(tmp_path, timeout=timeout, resolv_conf=str(resolv_conf), port=server.port) as resolver,
    ):
        check(resolver, *([] if transport == "tcp" else [f"{transport}://127.0.0.1:{server.port}"]))
        wait_until(lambda: server.ended, "the connection is closed")


def test_datagrams_without_end_delay_no_other_name(tmp_path: Path) -> None:
    resolv_conf = tmp_path / "resolv.conf"
    resolv_conf.write_text("nameserver 127.0.0.1\noptions timeout:1 attempts:2\n")
    with (
        ScriptedNameServer(lambda _query, _transport: [bytes(64)] * 50_000) as server,
        ResolverProcess(tmp_path, resolv_conf=str(resolv_conf), port=server.port) as resolver,
    ):
        check(resolver)
        assert server.queries


def test_tls_without_content_ends_the_connection(pair: tuple[str, str]) -> None:
    cert, key = pair
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
