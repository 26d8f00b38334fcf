"""Queries over HTTPS (RFC 8484): the requests of HTTP/2 on one connection, many at a time."""

from __future__ import annotations

from functools import partial

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings

from actors.bus.loop import Loop
from actors.net.tls_stream import TlsStream
from actors.resolver.stream import FramedStream, StreamClosed, StreamQuery
from actors.resolver.wire import STREAM_MAX, DnsQuery
from config.net.dns_servers import DnsServer

MEDIA_TYPE = "application/dns-message"
_ID = 0
"""Of all queries: so that caches on the way find equal ones equal (RFC 8484, section 4.1)."""
_FRAME_MAX = 16 * 1024
"""What HTTP/2 has without another setting (RFC 9113, section 4.2)."""
_CONTINUATION = 9


class HttpsStream(FramedStream):
    """An HTTP/2 connection to a name server."""

    protocols = ("h2",)
    read_size = 4 * 1024
    """Of the smallest frames that are 450, some 20 ms of work."""
    head_size = 9
    messages_each = 16
    """A response's frames: headers, at most 16 KiB of data in packets' size, more room and a ping."""

    def __init__(self, loop: Loop, server: DnsServer) -> None:
        self._http = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, header_encoding=None))
        self._http.local_settings = h2.settings.Settings(
            client=True, initial_values={h2.settings.SettingCodes.ENABLE_PUSH: 0}
        )
        self._server = server
        self._parts: dict[int, bytearray] = {}
        super().__init__(loop, server.name)

    def _has_room(self, query: DnsQuery) -> bool:
        http, settings = self._http, self._http.remote_settings
        room = min(http.outbound_flow_control_window, settings.initial_window_size, settings.max_frame_size)
        return http.open_outbound_streams < settings.max_concurrent_streams and room >= len(query.with_id(_ID))

    def _request(self, entry: StreamQuery) -> None:
        body, stream = entry.query.with_id(_ID), self._http.get_next_available_stream_id()
        server = self._server
        host = f"[{server.name}]" if ":" in server.name else server.name
        headers = [
            (":method", "POST"),
            (":scheme", "https"),
            (":authority", host if server.port == 443 else f"{host}:{server.port}"),
            (":path", server.path),
            ("accept", MEDIA_TYPE),
            ("content-type", MEDIA_TYPE),
            ("content-length", str(len(body))),
        ]
        self._http.send_headers(stream, headers)
        self._http.send_data(stream, body, end_stream=True)
        self._add(stream, entry)
        self._write(self._http.data_to_send())

    def _withdraw(self, key: int) -> None:
        super()._withdraw(key)
        self._parts.pop(key, None)
        try:
            self._http.reset_stream(key, h2.errors.ErrorCodes.CANCEL)
        except h2.exceptions.ProtocolError:
            return  # it has ended by itself
        self._write(self._http.data_to_send())

    def _begin(self) -> None:
        if not isinstance(self._transport, TlsStream) or self._transport.protocol != "h2":
            raise StreamClosed("it does not speak HTTP/2")
        self._http.initiate_connection()
        self._write(self._http.data_to_send())

    def _length_at(self, data: bytes, place: int) -> int:
        length = int.from_bytes(data[place : place + 3], "big")
        if length > _FRAME_MAX:
            raise StreamClosed("it breaks the rules of HTTP/2: a frame is too long")
        return length

    def _take(self, framed: bytes) -> None:
        if framed[3] == _CONTINUATION:
            raise StreamClosed("its headers are too long")
        try:
            events = self._http.receive_data(framed)
        except h2.exceptions.ProtocolError as error:
            raise StreamClosed(f"it breaks the rules of HTTP/2: {error}") from error
        for event in events:
            self._handle(event)
        self._write(self._http.data_to_send())
        self._send_queued()

    def _handle(self, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.ResponseReceived):
            status = next((value for name, value in event.headers if name in (":status", b":status")), "")
            if status not in ("200", b"200"):
                self._fail(event.stream_id, "it responds with another status than 200")
        elif isinstance(event, h2.events.DataReceived):
            self._http.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            if event.stream_id not in self._pending:
                return
            part = self._parts.setdefault(event.stream_id, bytearray())
            part += event.data
            if len(part) > STREAM_MAX:
                self._fail(event.stream_id, "its response is too long")
        elif isinstance(event, h2.events.StreamEnded):
            self._deliver(event.stream_id, bytes(self._parts.pop(event.stream_id, b"")), _ID)
        elif isinstance(event, h2.events.StreamReset):
            self._fail(event.stream_id, "it has reset the request")
        elif isinstance(event, h2.events.ConnectionTerminated):
            raise StreamClosed("it ends the connection")

    def _fail(self, stream: int, why: str) -> None:
        found = self._pending.get(stream)
        if found is not None:
            self._withdraw(stream)
            self._loop.call_soon(partial(found.lost, why))
