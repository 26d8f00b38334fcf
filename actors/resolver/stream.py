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


class FramedStream:
    """A connection to `address`; with the `tls_name` of its certificate it speaks TLS. Raises `OSError`."""

    protocols: tuple[str, ...] = ("dot",)
    read_size = READ_SIZE
    head_size = _LENGTH.size
    """Bytes at the beginning of a message that say how long it is."""
    messages_each = 1
    """Messages that the server may send for a query."""

    def __init__(self, loop: Loop, address: tuple[str, int], tls_name: str | None = None) -> None:
        self.closed = False
        self._loop = loop
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._tls = None if tls_name is None else TlsStream(self._socket, tls_context(*self.protocols), tls_name)
        self._ready = False
        self._out = bytearray()
        self._in = b""
        self._expected = UNASKED_MAX
        self._reads_on = False
        """Whether the rest of what has come is read in the next turn."""
        self._pending: dict[int, tuple[Received, Lost]] = {}
        self._deadline: Timer = loop.call_later(SILENT_MAX, partial(self.close, "it does not respond"))
        code = self._socket.connect_ex(address)
        loop.watch(self._socket.fileno(), _EDGE, self._on_ready)
        if code not in (0, 115):  # EINPROGRESS
            self.close(OSError(code, "").strerror or "it can't be reached")

    # --- queries ---

    def send(self, query: DnsQuery, received: Received, lost: Lost) -> Callable[[], None]:
        """Send a query. `received` gets its response, or `lost` gets why there is none; not in this very call."""
        number = self._new_number()
        self._add(number, received, lost)
        message = query.with_id(number)
        self._write(_LENGTH.pack(len(message)) + message)
        return partial(self._withdraw, number)

    @property
    def full(self) -> bool:
        """True when no more queries fit."""
        return len(self._pending) >= WAITING_MAX

    def _withdraw(self, key: int) -> None:
        self._pending.pop(key, None)

    def _add(self, key: int, received: Received, lost: Lost) -> None:
        if self._ready and not self._pending:
            self._extend()
        self._pending[key] = received, lost
        self._expected = min(self._expected + self.messages_each, UNASKED_MAX + WAITING_MAX)

    def _new_number(self) -> int:
        while True:
            number = secrets.randbits(16)
            if number not in self._pending:
                return number

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
        if found is not None and not found[0](message, number):
            found[1]("its response is not usable")

    # --- the connection ---

    def close(self, why: str = "the connection is closed") -> None:
        """Close it; the queries under way are lost."""
        if self.closed:
            return
        self.closed = True
        self._deadline.cancel()
        self._loop.unwatch(self._socket.fileno())
        self._socket.close()
        pending, self._pending = self._pending, {}
        for _received, lost in pending.values():
            self._loop.call_soon(partial(lost, why))

    def _write(self, data: bytes) -> None:
        self._out += data
        if len(self._out) > UNSENT_MAX:
            self.close("it reads no queries")
        elif self._ready:
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Send what waits: all queries of a turn of the loop together."""
        if self.closed or not self._ready:
            return
        try:
            while self._out:
                del self._out[: (self._tls or self._socket).send(bytes(self._out[:SEND_SIZE]))]
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
        try:
            if not self._ready:
                self._continue_start()
            count = 0
            while not self.closed:
                data = (self._tls or self._socket).recv(self.read_size)
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
        code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, "it can't be reached")
        if self._tls is not None:
            self._tls.handshake()
        self._ready = True
        self._begin()
        self._extend()
        self._flush()

    def _begin(self) -> None:
        """The connection stands. Raises `StreamClosed`."""

    def _extend(self) -> None:
        """The server is there: it has more time."""
        if self.closed:
            return
        self._deadline.cancel()
        self._deadline = self._loop.call_later(IDLE_MAX, self._check_silence)

    def _check_silence(self) -> None:
        self.close("it does not respond" if self._pending else "it was idle")


Opened = Callable[[FramedStream | str], None]


class Streams:
    """The connection to one server, made when the first query needs it. `connect` calls back with it, or why not."""

    def __init__(self, loop: Loop, connect: Callable[[Opened], None]) -> None:
        self._loop = loop
        self._connect = connect
        self._stream: FramedStream | None = None
        self._waiting: dict[int, tuple[DnsQuery, Received, Lost]] = {}
        self._cancels: dict[int, Callable[[], None]] = {}
        self._last = 0
        self._connecting = False

    def send(self, query: DnsQuery, received: Received, lost: Lost) -> Callable[[], None]:
        """As `FramedStream.send`."""
        stream = self._stream
        if stream is not None and not stream.closed and not stream.full:
            return stream.send(query, received, lost)
        self._last += 1
        number = self._last
        self._waiting[number] = query, received, lost
        if not self._connecting:
            self._connecting = True
            self._loop.call_soon(lambda: self._connect(self._opened))
        return partial(self._cancel, number)

    def close(self) -> None:
        """Close the connection."""
        if self._stream is not None:
            self._stream.close()

    def _cancel(self, number: int) -> None:
        if self._waiting.pop(number, None) is None:
            self._cancels.pop(number, _nothing)()

    def _opened(self, stream: FramedStream | str) -> None:
        self._connecting = False
        waiting, self._waiting = self._waiting, {}
        if isinstance(stream, str):
            for _query, _received, lost in waiting.values():
                lost(stream)
            return
        self._stream = stream
        for number, (query, received, lost) in waiting.items():
            self._cancels[number] = stream.send(
                query, partial(self._passed, number, received), partial(self._lost, number, lost)
            )

    def _passed(self, number: int, received: Received, message: bytes, found: int) -> bool:
        self._cancels.pop(number, None)
        return received(message, found)

    def _lost(self, number: int, lost: Lost, why: str) -> None:
        self._cancels.pop(number, None)
        lost(why)


def _nothing() -> None:
    return
