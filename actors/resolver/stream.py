"""Queries by UDP, and on one connection, by TCP (RFC 7766) or TLS (RFC 7858): many at a time, each found again by its
id.

A query by UDP has a socket of its own: so its source port is one that the kernel has picked at random. The socket
is connected: the kernel drops what comes from any other address or port.
"""

from __future__ import annotations

import secrets
import select
import socket
import ssl
import struct
from collections import OrderedDict
from collections.abc import Callable
from functools import cache, partial

from actors.bus.loop import Loop, Timer
from actors.net.tls_stream import TlsStream
from actors.resolver.wire import STREAM_MAX, DnsQuery

AT_ONCE = 16
FORGED_MAX = 64
"""Messages that are no response, after which the query is taken to be under attack and given up."""

Received = Callable[[bytes, int], bool]
Lost = Callable[[str], None]


class UdpQuery:
    """`received` gets messages and the query's id until it returns True; `lost` gets why no response can come.

    Neither is called in the very call that makes it.
    """

    def __init__(self, loop: Loop, server: tuple[str, int], query: DnsQuery, received: Received, lost: Lost) -> None:
        self._loop = loop
        self._received = received
        self._lost: Lost | None = lost
        self._forged = 0
        self._number = secrets.randbits(16)
        self._socket: socket.socket | None = None
        try:
            self._send(server, query)
        except OSError as error:
            why = error.strerror or str(error)
            loop.call_soon(lambda: self._fail(why))

    def close(self) -> None:
        """Forget it; nothing is called any more."""
        self._lost = None
        sock, self._socket = self._socket, None
        if sock is not None:
            self._loop.unwatch_closed(sock.fileno())
            sock.close()

    def _send(self, server: tuple[str, int], query: DnsQuery) -> None:
        host, _, zone = server[0].partition("%")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = sock = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        sock.connect((host, server[1], 0, socket.if_nametoindex(zone)) if zone else (host, server[1]))
        self._loop.watch(sock.fileno(), select.EPOLLIN, self._on_readable)
        sock.send(query.with_id(self._number))

    def _fail(self, why: str) -> None:
        lost = self._lost
        self.close()
        if lost is not None:
            lost(why)

    def _on_readable(self, _mask: int) -> None:
        for _ in range(AT_ONCE):
            sock = self._socket
            if sock is None:
                return
            try:
                message = sock.recv(65535)
            except BlockingIOError:
                return
            except OSError as error:  # an ICMP message: nothing listens there
                self._fail(error.strerror or str(error))
                return
            if self._received(message, self._number):
                return
            self._forged += 1
            if self._forged >= FORGED_MAX:
                self._fail("too many forged responses")


IDLE_MAX = 10.0
"""Seconds that a connection is kept without a query under way."""
SILENT_MAX = 5.0
"""Seconds that a server may be silent while queries wait, or a connection may take to be made."""
READ_SIZE = 32 * 1024
TURN_BYTES = 64 * 1024
"""Bytes of one connection after which others get their turn."""
SEND_SIZE = 64 * 1024
UNSENT_MAX = 2 * 1024 * 1024
"""Bytes that may wait for a server that reads none; so many has no number of queries that fits."""
WAITING_MAX = 4096
UNASKED_MAX = 64
"""Messages beyond those that were asked for, after which a connection is closed."""

_EDGE = select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP | select.EPOLLET
_LENGTH = struct.Struct("!H")


class StreamClosed(Exception):
    """The connection is of no more use; the text is the reason."""


@cache
def tls_context(*protocols: str) -> ssl.SSLContext:
    """For connections to name servers, whose certificates are verified against the system's authorities."""
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if protocols:
        context.set_alpn_protocols(protocols)
    return context


class StreamQuery:
    """A query on a connection. `key` is what its response is found by, None while it is queued."""

    __slots__ = ("key", "lost", "query", "received")

    def __init__(self, query: DnsQuery, received: Received, lost: Lost) -> None:
        self.query = query
        self.received = received
        self.lost = lost
        self.key: int | None = None


class FramedStream:
    """A connection that is made by `connect`; with the `tls_name` of its certificate it speaks TLS."""

    protocols: tuple[str, ...] = ("dot",)
    read_size = READ_SIZE
    head_size = _LENGTH.size
    """Bytes at the beginning of a message that say how long it is."""
    messages_each = 1
    """Messages that the server may send for a query."""

    def __init__(self, loop: Loop, tls_name: str | None = None) -> None:
        self.closed = False
        self._loop = loop
        self._tls_name = tls_name
        self._socket: socket.socket | None = None
        self._transport: socket.socket | TlsStream | None = None
        self._ready = False
        self._out = bytearray()
        self._in = b""
        self._expected = UNASKED_MAX
        self._reads_on = False
        """Whether the rest of what has come is read in the next turn."""
        self._queued: OrderedDict[StreamQuery, None] = OrderedDict()
        self._pending: dict[int, StreamQuery] = {}
        self._deadline: Timer | None = None

    def connect(self, address: tuple[str, int]) -> None:
        """Make the connection; the queries that wait for it are lost if it can't be made."""
        if self.closed:
            return
        self._wait(SILENT_MAX, partial(self.close, "it does not respond"))
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        try:
            self._socket = sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            name = self._tls_name
            self._transport = sock if name is None else TlsStream(sock, tls_context(*self.protocols), name)
            self._loop.watch(sock.fileno(), _EDGE, self._on_ready)
            sock.connect(address)
        except BlockingIOError:
            return  # as usual
        except OSError as error:
            self.close(error.strerror or str(error))

    # --- queries ---

    def send(self, query: DnsQuery, received: Received, lost: Lost) -> Callable[[], None]:
        """Send a query. `received` gets its response, or `lost` gets why there is none; not in this very call."""
        entry = StreamQuery(query, received, lost)
        self._queued[entry] = None
        self._send_queued()
        return partial(self._cancel, entry)

    @property
    def full(self) -> bool:
        """True when no more queries fit."""
        return len(self._pending) + len(self._queued) >= WAITING_MAX

    def _cancel(self, entry: StreamQuery) -> None:
        if entry.key is None:
            self._queued.pop(entry, None)
        elif self._pending.get(entry.key) is entry:
            self._withdraw(entry.key)

    def _withdraw(self, key: int) -> None:
        """Forget a query that was sent."""
        del self._pending[key]

    def _send_queued(self) -> None:
        while self._ready and self._queued and self._has_room(next(iter(self._queued)).query):
            self._request(self._queued.popitem(last=False)[0])

    def _has_room(self, _query: DnsQuery) -> bool:
        """Whether the server lets this query be sent now."""
        return True

    def _request(self, entry: StreamQuery) -> None:
        """Send a query."""
        number = secrets.randbits(16)
        while number in self._pending:
            number = secrets.randbits(16)
        self._add(number, entry)
        message = entry.query.with_id(number)
        self._write(_LENGTH.pack(len(message)) + message)

    def _add(self, key: int, entry: StreamQuery) -> None:
        """A response with this key is for a query; to be called before it is sent."""
        if not self._pending:
            self._extend()
        entry.key = key
        self._pending[key] = entry
        self._expected = min(self._expected + self.messages_each, UNASKED_MAX + WAITING_MAX)

    def _consume(self, data: bytes) -> None:
        """Bytes from the server. Raises `StreamClosed`, also when too many messages come that were not asked for."""
        data, place = self._in + data, 0
        while not self.closed and len(data) - place >= self.head_size:
            end = place + self.head_size + self._length_at(data, place)
            if end > len(data):
                break
            self._expected -= 1
            if self._expected < 0:
                raise StreamClosed("it sends more than it was asked for")
            self._take(data[place:end])
            place = end
        self._in = data[place:]

    def _length_at(self, data: bytes, place: int) -> int:
        """How long the message is that begins there, without its head. Raises `StreamClosed` when that is too long."""
        (length,) = _LENGTH.unpack_from(data, place)
        if length > STREAM_MAX:
            raise StreamClosed("its response is too long")
        return int(length)

    def _take(self, framed: bytes) -> None:
        """A whole message with its head."""
        message = framed[self.head_size :]
        if len(message) >= _LENGTH.size:
            (number,) = _LENGTH.unpack_from(message)
            self._deliver(number, message, number)

    def _deliver(self, key: int, message: bytes, number: int) -> None:
        self._extend()
        found = self._pending.pop(key, None)  # None: it was cancelled
        if found is not None and not found.received(message, number):
            found.lost("its response is not usable")

    # --- the connection ---

    def close(self, why: str = "the connection is closed") -> None:
        """Close it; the queries that wait or are under way are lost."""
        if self.closed:
            return
        self.closed = True
        if self._deadline is not None:
            self._deadline.cancel()
        if self._socket is not None:
            self._loop.unwatch(self._socket.fileno())
            self._socket.close()
        for entry in (*self._pending.values(), *self._queued):
            self._loop.call_soon(partial(entry.lost, why))
        self._pending.clear()
        self._queued.clear()

    def _write(self, data: bytes) -> None:
        self._out += data
        if len(self._out) > UNSENT_MAX:
            self.close("it reads no queries")
        elif self._ready:
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Send what waits: all queries of a turn of the loop together."""
        if self.closed or self._transport is None or not self._ready:
            return
        try:
            while self._out:
                del self._out[: self._transport.send(bytes(self._out[:SEND_SIZE]))]
        except BlockingIOError:
            return
        except OSError as error:
            self.close(error.strerror or str(error))

    def _on_ready(self, _mask: int) -> None:
        if not self._reads_on:
            self._read()

    def _read_on(self) -> None:
        self._reads_on = False
        if not self.closed:
            self._read()

    def _read(self) -> None:
        assert self._transport is not None
        try:
            if not self._ready:
                self._continue_start()
            count = 0
            while not self.closed:
                data = self._transport.recv(self.read_size)
                if not data:
                    raise StreamClosed("it has closed the connection")
                self._consume(data)
                count += len(data)
                if count >= TURN_BYTES or self._loop.turn_exceeded():
                    self._reads_on = True  # no edge comes for what is there already
                    self._loop.call_soon(self._read_on)
                    return
        except BlockingIOError:
            self._flush()
        except (OSError, StreamClosed) as error:
            self.close(getattr(error, "strerror", None) or str(error))

    def _continue_start(self) -> None:
        """Connect, then the handshake. Raises `BlockingIOError` while it isn't complete."""
        assert self._socket is not None
        code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, "it can't be reached")
        if isinstance(self._transport, TlsStream):
            self._transport.handshake()
        self._ready = True
        self._begin()
        self._extend()
        self._send_queued()
        self._flush()

    def _begin(self) -> None:
        """The connection stands. Raises `StreamClosed`."""

    def _extend(self) -> None:
        """The server is there: it has more time."""
        if not self.closed:
            self._wait(IDLE_MAX, self._check_silence)

    def _wait(self, seconds: float, ended: Callable[[], None]) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self._loop.call_later(seconds, ended)

    def _check_silence(self) -> None:
        self.close("it does not respond" if self._pending or self._queued else "it was idle")
