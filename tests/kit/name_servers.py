"""Small name servers in threads of the test, on loopback, at a port of their own: for what no real one does."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Self

import dns.flags
import dns.message
import dns.rdatatype
import dns.rrset

Response = dns.message.Message | bytes | None
Handler = Callable[[dns.message.Message, str], Response | list[bytes]]
"""From a query and `udp` or `tcp` to what is sent: a message, octets, several of them, or nothing."""

SOA = "ns.example. root.example. 1 3600 600 86400 {minimum}"


def records(query: dns.message.Message, *lines: tuple[str, int, str, str]) -> dns.message.Message:
    """A response with these records: owner, TTL, kind and text."""
    response = dns.message.make_response(query, recursion_available=True)
    for owner, ttl, kind, text in lines:
        response.answer.append(dns.rrset.from_text(owner, ttl, "IN", kind, text))
    return response


def negative(query: dns.message.Message, code: int, minimum: int | None, ttl: int = 3600) -> dns.message.Message:
    """A response without records; `minimum` is that of the SOA record, None for no such record."""
    response = dns.message.make_response(query, recursion_available=True)
    response.set_rcode(code)
    if minimum is not None:
        text = SOA.format(minimum=minimum)
        response.authority.append(dns.rrset.from_text("example.", ttl, "IN", "SOA", text))
    return response


def zone(addresses: Mapping[str, Sequence[str]], ttl: int = 60, minimum: int | None = 60) -> Handler:
    """The handler of a server that knows these names, all below `*` being one entry."""

    def handle(query: dns.message.Message, _transport: str) -> dns.message.Message:
        name = query.question[0].name.to_text().rstrip(".").lower()
        known = addresses.get(name, addresses.get("*"))
        if known is None:
            return negative(query, 3, minimum)
        kind = dns.rdatatype.to_text(query.question[0].rdtype)
        wanted = [each for each in known if (":" in each) is (kind == "AAAA")]
        lines = [(query.question[0].name.to_text(), ttl, kind, each) for each in wanted]
        return records(query, *lines) if lines else negative(query, 0, minimum)

    return handle


def _pair() -> tuple[socket.socket, socket.socket]:
    """Sockets for datagrams and for connections at one port: the kernel chooses it for the one, and it must be free for
    the other."""
    while True:
        tcp = socket.create_server(("127.0.0.1", 0), backlog=64)
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            udp.bind(tcp.getsockname())
        except OSError:
            tcp.close()
            udp.close()
        else:
            return udp, tcp


class ScriptedNameServer:
    """`queries` has name, kind and transport of each query as it came."""

    def __init__(self, handle: Handler, ignores: bytes = b"") -> None:
        """Queries for names with `ignores` in them get no response, at hardly any cost."""
        self.handle = handle
        self._ignores = ignores
        self.queries: list[tuple[str, str, str]] = []
        self._udp, self._tcp = _pair()
        self.port: int = self._udp.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self.sources: list[int] = []
        """The source ports of queries by UDP."""
        for serve in (self._serve_udp, self._serve_tcp):
            threading.Thread(target=serve, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        for sock in (self._udp, self._tcp):
            with suppress(OSError):  # a socket for datagrams has no peer, but its thread wakes
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def asked(self, name: str) -> list[tuple[str, str, str]]:
        """The queries for a name."""
        return [each for each in self.queries if each[0].lower() == name]

    def _responses(self, data: bytes, transport: str) -> list[bytes]:
        if self._ignores and self._ignores in data.lower():
            return []
        query = dns.message.from_wire(data)
        question = query.question[0]
        kind = dns.rdatatype.to_text(question.rdtype)
        self.queries.append((question.name.to_text().rstrip("."), kind, transport))
        response = self.handle(query, transport)
        if isinstance(response, list):
            return response
        if isinstance(response, dns.message.Message):
            return [response.to_wire()]
        return [] if response is None else [response]

    def _serve_udp(self) -> None:
        while True:
            try:
                data, peer = self._udp.recvfrom(4096)
                if peer is None:
                    return  # shut down
                self.sources.append(peer[1])
                for each in self._responses(data, "udp"):
                    self._udp.sendto(each, peer)
            except OSError:
                return

    def _serve_tcp(self) -> None:
        while True:
            try:
                connection, _peer = self._tcp.accept()
            except OSError:
                return
            threading.Thread(target=self._serve_stream, args=(connection,), daemon=True).start()

    def _serve_stream(self, connection: socket.socket) -> None:
        with suppress(ConnectionError), connection, connection.makefile("rb") as stream:
            while len(length := stream.read(2)) == 2:
                for each in self._responses(stream.read(int.from_bytes(length, "big")), "tcp"):
                    connection.sendall(len(each).to_bytes(2, "big") + each)


class SilentNameServer:
    """Takes all queries and never responds."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._socket.close()


class FloodingNameServer:
    """Sends `opening` on each connection and then `flood`, again and again, for as long as it is read.

    With a `context` it speaks TLS. Without a `flood` it reads instead. `ended` counts the connections that the other
    side has closed.
    """

    def __init__(self, flood: bytes, opening: bytes = b"", context: ssl.SSLContext | None = None) -> None:
        self._opening, self._flood = opening, flood * max(1, 16_384 // max(1, len(flood)))
        self._context = context
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        self.ended = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _peer = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._flood_one, args=(connection,), daemon=True).start()

    def _flood_one(self, connection: socket.socket) -> None:
        connection.settimeout(60.0)
        with suppress(OSError), connection:
            stream = self._context.wrap_socket(connection, server_side=True) if self._context else connection
            with stream:
                stream.sendall(self._opening)
                while self._flood:
                    stream.sendall(self._flood)
                while stream.recv(4096):
                    continue
        self.ended += 1
