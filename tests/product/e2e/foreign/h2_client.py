"""A client that speaks HTTP/2 to a proxy, one request or tunnel at a time."""

from __future__ import annotations

import socket
import ssl
from types import TracebackType
from typing import Self

import h2.config
import h2.connection
import h2.events

Fields = list[tuple[str, str]]
CONFIGURATION = h2.config.H2Configuration(client_side=True, header_encoding="utf-8")


class H2Client:
    """One connection. `address` is its own."""

    def __init__(self, port: int, certificate: str) -> None:
        context = ssl.create_default_context(cafile=certificate)
        context.set_alpn_protocols(["h2"])
        plain = socket.create_connection(("127.0.0.1", port), 20, ("127.0.0.6", 0))
        self._sock = context.wrap_socket(plain, server_hostname="localhost")
        assert self._sock.selected_alpn_protocol() == "h2"
        self._h2 = h2.connection.H2Connection(CONFIGURATION)
        self._h2.initiate_connection()
        self._events: list[h2.events.Event] = []
        self.address: tuple[str, int] = self._sock.getsockname()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: type[BaseException] | None, _e: BaseException | None, _t: TracebackType | None) -> None:
        self._sock.close()

    def request(self, fields: Fields, ends: bool = True) -> tuple[int, int]:
        """Send a request; returns its stream and the status of the response, 0 if the stream was reset."""
        stream = self._h2.get_next_available_stream_id()
        self._h2.send_headers(stream, fields, end_stream=ends)
        while True:
            event = self._next(stream)
            if isinstance(event, h2.events.ResponseReceived):
                return stream, int(dict(event.headers)[":status"])
            if isinstance(event, h2.events.StreamReset):
                return stream, 0

    def get(self, url: str, *fields: tuple[str, str]) -> tuple[int, bytes]:
        """Status and body of the response to a plain request."""
        scheme, _, rest = url.partition("://")
        authority, slash, path = rest.partition("/")
        target = [(":method", "GET"), (":scheme", scheme), (":authority", authority), (":path", slash + path)]
        stream, status = self.request([*target, *fields])
        return status, self.receive(stream) if status else b""

    def connect(self, authority: str, *fields: tuple[str, str]) -> tuple[int, int]:
        """The stream of a tunnel (RFC 9113 8.5), and the status of the response."""
        return self.request([(":method", "CONNECT"), (":authority", authority), *fields], ends=False)

    def send(self, stream: int, data: bytes, ends: bool = False) -> None:
        """Send bytes of a body or of a tunnel."""
        self._h2.send_data(stream, data, end_stream=ends)

    def receive(self, stream: int, enough: int = 1 << 30) -> bytes:
        """What comes on a stream up to its end, or until it is `enough`."""
        data = b""
        while len(data) < enough:
            event = self._next(stream)
            if isinstance(event, h2.events.DataReceived):
                data += event.data
            elif isinstance(event, (h2.events.StreamEnded, h2.events.StreamReset)):
                break
        return data

    def _next(self, stream: int) -> h2.events.Event:
        """The next event of a stream."""
        while True:
            for event in self._events:
                if getattr(event, "stream_id", None) == stream:
                    self._events.remove(event)
                    return event
            self._sock.sendall(self._h2.data_to_send())
            data = self._sock.recv(65536)
            assert data, "the connection ended"
            self._events += self._received(data)

    def _received(self, data: bytes) -> list[h2.events.Event]:
        events = self._h2.receive_data(data)
        for event in events:
            if isinstance(event, h2.events.DataReceived) and event.flow_controlled_length:
                self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        return events
