"""The TLS terminator of the management API: a process in front of it with TLS to clients and plain bytes to the API.

    client == TLS ==> terminator -- Unix socket in the run directory, a PROXY protocol header first --> API

The header (version 2) has the client's address. No client can forge it: only this process can reach that socket, it
lies in a directory of mode 0700, and what clients send follows the header. A connection to the API is made when the
first clear bytes have come, so a slow or broken handshake costs the API nothing.

Connections are limited, of one address and in all: what is above is closed, or waits in the kernel.

A `TlsConnection` is one client with its connection to the API: two directions, each in one state of `Half`.

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
from collections import Counter
from collections.abc import Callable, Collection
from enum import Enum, auto
from typing import Any

from actors.bus.loop import Loop
from actors.bus.messages.common import CERTIFICATE, SUPERVISOR, Problem, ReportProblems
from actors.log_lines import ThrottledLog
from actors.net.accepting import pause_accepting
from actors.net.client_key import client_key, per_address
from actors.net.proxy_protocol import build_v2
from actors.net.tls_stream import Certificate, TlsStream
from actors.problems import ActiveProblems
from actors.process import Actor, Boot

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


DEADLINE_PERIOD = 0.5
CERTIFICATE_PERIOD = 30.0
"""Seconds between two checks of the certificate while no client connects."""
ACCEPTS_AT_ONCE = 64


class TlsTerminator(Actor):
    """Accepts connections at `sockets[0]`. `boot.settings`: `server`."""

    def __init__(self, boot: Boot, sockets: list[socket.socket]) -> None:
        """Raises `CertificateError` without a good certificate."""
        super().__init__(boot, sockets)
        server = boot.settings["server"]
        self._problems = ActiveProblems(self.loop, time.time, self._report)
        pair = server["tls"]["cert_file"], server["tls"]["key_file"]
        self._certificate = Certificate(*pair, self._on_certificate)
        self.loop.call_every(CERTIFICATE_PERIOD, self._certificate.check)
        self._max_connections: int = server["max_connections"]
        self._descriptors_log = ThrottledLog(log, "connections can't be accepted")
        self._connections: dict[TlsConnection, str] = {}
        """With the key of the client's address."""
        self._by_address: Counter[str] = Counter()
        self._listener: socket.socket | None = None
        self._draining = self._full = False
        self._listen(sockets[0])
        self.loop.call_every(DEADLINE_PERIOD, self._check_deadlines)
        self.ready()
        self._problems.report_soon()

    def settings_changed(self, _groups: Collection[str]) -> None:
        """See `Actor`: another limit of connections; those that are open stay."""
        self._max_connections = self.settings["server"]["max_connections"]
        self._accept_if_full()

    def drain(self, seconds: float) -> None:
        """Accept no more; connections end when the API ends them, at the latest when the time is up."""
        self._draining = True
        self._stop_listening()
        self.loop.call_later(seconds, self.finish)
        self._finish_if_drained()

    def close(self) -> None:
        """Close everything."""
        for connection in tuple(self._connections):
            connection.close()
        self._stop_listening()
        super().close()

    def _on_closed(self, connection: TlsConnection) -> None:
        address = self._connections.pop(connection)
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]
        self._accept_if_full()
        self._finish_if_drained()

    def _accept_if_full(self) -> None:
        if self._full and self._listener is not None:
            self._listen(self._listener)

    def _finish_if_drained(self) -> None:
        if self._draining and not self._connections:
            self.finish()

    def _on_certificate(self, problem: str | None) -> None:
        if problem is None:
            self._problems.ends(CERTIFICATE, "the certificate is good")
        else:
            self._problems.begins(CERTIFICATE, problem)

    def _report(self, problems: tuple[Problem, ...], over: tuple[Problem, ...]) -> None:
        self.mailbox.tell(SUPERVISOR, ReportProblems(self.boot.instance, problems, over, self._certificate.ends))

    def _listen(self, listener: socket.socket) -> None:
        listener.setblocking(False)
        self._listener, self._full = listener, False
        self.loop.watch(listener.fileno(), select.EPOLLIN, self._accept)

    def _stop_listening(self) -> None:
        if self._listener is not None:
            self.loop.unwatch(self._listener.fileno())
            self._listener.close()
            self._listener = None

    def _accept(self, _mask: int) -> None:
        for _ in range(ACCEPTS_AT_ONCE):
            if self._listener is None:
                return
            if len(self._connections) >= self._max_connections:
                self._full = True  # the others wait in the kernel until one has ended
                self.loop.unwatch(self._listener.fileno())
                return
            if not self._accept_from(self._listener):
                return

    def _accept_from(self, listener: socket.socket) -> bool:
        try:
            client, peer = listener.accept()
        except BlockingIOError:
            return False
        except OSError as error:
            self._on_accept_error(listener, error)
            return False
        self._begin(client, client_key(peer[0]))
        return True

    def _on_accept_error(self, listener: socket.socket, error: OSError) -> None:
        """The client is gone; or there is no descriptor, and it waits in the kernel for a moment."""
        if pause_accepting(self.loop, listener, error, lambda: self._resume_accepting(listener)):
            self._descriptors_log.error(error)
        else:
            log.debug("a connection ended before it was accepted: %s", error)

    def _resume_accepting(self, listener: socket.socket) -> None:
        if self._listener is listener:  # an old one is read once more before it is closed
            self.loop.watch(listener.fileno(), select.EPOLLIN, self._accept)

    def _begin(self, client: socket.socket, address: str) -> None:
        if self._by_address[address] >= per_address(self._max_connections):
            client.close()
            return
        client.setblocking(False)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._by_address[address] += 1
        stream = TlsStream(client, self._certificate.context(time.monotonic()))
        connection = TlsConnection(self.loop, client, stream, str(self.run_dir.api_inner), self._on_closed)
        self._connections[connection] = address

    def _check_deadlines(self) -> None:
        now = time.monotonic()
        for connection in tuple(self._connections):
            if connection.deadline is not None and now > connection.deadline:
                connection.close()
