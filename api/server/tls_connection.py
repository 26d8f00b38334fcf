"""One TLS client of the management API with its connection to the API: two directions, each in one state of `Half`.

    client == request ==> API
    client <== response == API

| request            | response    | what happens                                               | limit               |
|--------------------|-------------|------------------------------------------------------------|---------------------|
| `OPEN`             | `OPEN`      | not connected to the API: handshake, or first clear byte   | `HANDSHAKE_TIMEOUT` |
| any                | `OPEN`      | connected: bytes are relayed, under the API's deadlines    |                     |
| any                | `ENDED`     | the client receives the rest; what it sends is discarded   | `SEND_TIMEOUT`      |
| `OPEN`             | `FORWARDED` | a close_notify was sent, and the client's is awaited       | `LINGER`            |
| `ENDED` or further | `FORWARDED` | closed                                                     |                     |

A client that ends before its first clear byte is closed without a connection to the API.
"""

from __future__ import annotations

import logging
import select
import socket
import time
from collections.abc import Callable
from enum import Enum, auto
from typing import Any

from actors.bus.loop import Loop
from actors.net.proxy_protocol import build_v2
from actors.net.tls_stream import TlsStream

log = logging.getLogger(__name__)

HANDSHAKE_TIMEOUT = 10.0
SEND_TIMEOUT = 30.0
LINGER = 2.0
READ_SIZE = 64 * 1024
BUFFER_MAX = 256 * 1024
"""Bytes in one direction above which its source is not read."""


class Half(Enum):
    """The state of one direction."""

    OPEN = auto()
    """The source may send more."""
    ENDED = auto()
    """The source has ended; bytes may wait for the sink."""
    FORWARDED = auto()
    """The sink has received all bytes and the end."""


_LIMITS = {Half.ENDED: SEND_TIMEOUT, Half.FORWARDED: LINGER}
"""Seconds by the state of the response."""


class _Direction:
    """Bytes from a source to a sink, both non-blocking. Methods raise `OSError` when a connection is broken."""

    def __init__(self) -> None:
        self.half = Half.OPEN
        self.buffer = bytearray()

    @property
    def wants_more(self) -> bool:
        """Whether the source is read."""
        return self.half is Half.OPEN and len(self.buffer) < BUFFER_MAX

    def read(self, source: Any, discard: bool = False) -> None:
        """Read all that the source has, as far as there is room for it; of what is discarded as much at a time."""
        discarded = 0
        while self.wants_more and discarded < BUFFER_MAX:
            try:
                data = source.recv(READ_SIZE)
            except BlockingIOError:
                return
            if not data:
                self.half = Half.ENDED
            elif discard:
                discarded += len(data)
            else:
                self.buffer += data

    def write(self, sink: Any) -> None:
        """Send as much as the sink takes now, and then the end."""
        if self.buffer:
            try:
                del self.buffer[: sink.send(bytes(self.buffer))]
            except BlockingIOError:
                return
        if self.half is Half.ENDED and not self.buffer:
            self.half = Half.FORWARDED
            sink.shutdown(socket.SHUT_WR)


class TlsConnection:
    """One client. `deadline` is of the monotonic clock, None while the API's own deadlines hold.

    `on_closed` is called once, when both connections are closed.
    """

    def __init__(
        self,
        loop: Loop,
        client: socket.socket,
        stream: TlsStream,
        api_path: str,
        on_closed: Callable[[TlsConnection], None],
    ) -> None:
        self.deadline: float | None = time.monotonic() + HANDSHAKE_TIMEOUT
        self._loop = loop
        self._client = client
        self._stream = stream
        self._api: socket.socket | None = None
        self._api_path = api_path
        self._on_closed = on_closed
        self._request, self._response = _Direction(), _Direction()
        self._masks: dict[int, int] = {}
        self._watch()

    @property
    def closed(self) -> bool:
        """Whether both connections are closed."""
        return self._client.fileno() < 0

    def close(self) -> None:
        """Close both connections."""
        if self.closed:
            return
        for each in (self._client, self._api):
            if each is not None:
                self._loop.unwatch(each.fileno())
                each.close()
        self._on_closed(self)

    def _on_ready(self, _mask: int) -> None:
        try:
            self._pump()
        except OSError as error:  # a reset, a failed handshake, or an API that is gone: of this client only
            log.debug("a connection to the TLS terminator failed: %s", error)
            self.close()
        if not self.closed:
            self._watch()

    def _pump(self) -> None:
        request, response, before = self._request, self._response, self._response.half
        self._stream.flush()
        request.read(self._stream, discard=response.half is not Half.OPEN)
        if request.buffer and self._api is None:
            self._connect()
        if self._api is not None:
            request.write(self._api)
            response.read(self._api)
            response.write(self._stream)
            if response.half is not Half.OPEN:
                request.buffer.clear()
        if response.half is not before:
            self.deadline = time.monotonic() + _LIMITS[response.half]
        is_over = self._api is None or response.half is Half.FORWARDED
        if request.half is not Half.OPEN and is_over and not self._stream.unsent:
            self.close()

    def _connect(self) -> None:
        api = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        api.setblocking(False)
        try:
            api.connect(self._api_path)
        except OSError:
            api.close()
            raise
        self._api, self.deadline = api, None
        self._request.buffer[:0] = build_v2(self._client.getpeername()[:2], self._client.getsockname()[:2])

    def _watch(self) -> None:
        request, response = self._request, self._response
        self._set_interest(self._client, request.wants_more, bool(response.buffer) or self._stream.unsent)
        if self._api is not None:
            self._set_interest(self._api, response.wants_more, bool(request.buffer))

    def _set_interest(self, sock: socket.socket, reads: bool, writes: bool) -> None:
        mask = (select.EPOLLIN if reads else 0) | (select.EPOLLOUT if writes else 0)
        if self._masks.get(sock.fileno()) != mask:
            self._masks[sock.fileno()] = mask
            self._loop.unwatch(sock.fileno())
            if mask:
                self._loop.watch(sock.fileno(), mask, self._on_ready)
