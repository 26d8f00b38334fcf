"""One connection of the management API: its phases with their deadlines, and the bodies of its requests.

| phase          | meaning                                                        | limit             | next        |
|----------------|----------------------------------------------------------------|-------------------|-------------|
| `PROXY_HEADER` | behind TLS: the header with the client's address is incomplete |                   | `FRESH`     |
| `FRESH`        | no request has begun                                           |                   | `READING`   |
| `READING`      | the head of a request is being read                            | `HEAD_TIMEOUT`    | `OPEN`      |
|                | its body is being read                                         | `REQUEST_TIMEOUT` | `OPEN`      |
| `OPEN`         | a request is being served, or the next one is awaited          |                   | `READING`   |
|                | its response says that it is rejected, and is the last one     |                   | `REJECTED`  |
| `REJECTED`     | that response is being written                                 |                   | `LINGERING` |
| `LINGERING`    | our half is closed; what the client still sends is discarded   | `LINGER`          | closed      |

Every phase may end with the connection: at its limit, after `IDLE_TIMEOUT` without traffic, when the
client takes less than `MIN_SEND_RATE` of a response, or when the client closes it. A rejected connection is closed in
two steps (RFC 9112, section 9.6): closed at once with bytes unread, the kernel would send a reset, and the client might
lose the response that says what is wrong.
"""

from __future__ import annotations

import fcntl
import logging
import math
import socket
import sys
import termios
import time
from enum import Enum, auto
from io import BytesIO
from typing import Any

from waitress.channel import HTTPChannel
from waitress.utilities import InternalServerError

from actors.net.proxy_protocol import BadHeader, read_header
from api.server.parser import Parser
from api.server.tasks import ErrorResponse, Response

log = logging.getLogger(__name__)

HEAD_TIMEOUT = 10.0
REQUEST_TIMEOUT = 60.0
IDLE_TIMEOUT = 60.0
SEND_WINDOW = 60.0
MIN_SEND_RATE = 4096
"""Bytes a second that a client has to take of a response, as the mean of `SEND_WINDOW` seconds: a client that reads an
export byte by byte would occupy its thread for ever."""
LINGER = 2.0
FIRST_REQUEST = 0.5
ALIVE_FOR = 0.2
"""Seconds that a connection may still send its first request, or another one, when the server drains."""


class ChannelPhase(Enum):
    """See the table of this module."""

    PROXY_HEADER = auto()
    FRESH = auto()
    READING = auto()
    OPEN = auto()
    REJECTED = auto()
    LINGERING = auto()


class Channel(HTTPChannel):
    """One connection. It belongs to the server's thread, but for `service` and what that calls."""

    parser_class = Parser
    task_class = Response
    error_task_class = ErrorResponse
    request: Parser | None = None
    """The request that is being read."""
    requests: list[Parser]
    """Those that are complete; the first one is being served."""
    client: str | None = None
    """Whose connections it counts among."""
    response_is_whole = False
    """Whether the application has nothing to add to what is to be sent."""
    _next_waits = False
    """Whether the next one of several requests that came together is to be served when all is sent."""

    def __init__(self, server: Any, *arguments: Any, **options: Any) -> None:
        super().__init__(server, *arguments, **options)
        self._enter(ChannelPhase.PROXY_HEADER if server.behind_tls else ChannelPhase.FRESH)
        self._proxy_header = b""
        self._active, self._sent = self._entered, 0
        self._window: tuple[float, int] | None = None
        """Since when something waits to be sent, `SEND_WINDOW` seconds at most, and what the client had taken then."""

    def _enter(self, phase: ChannelPhase) -> None:
        self._entered = time.monotonic()  # first: the server's thread may read both in between
        self.phase = phase

    # --- requests ---

    def service(self) -> None:
        self.server.serving.channel = self
        self.response_is_whole = False
        request = self.requests[0]
        try:
            if request.awaits_decision and self.connected and self._body_is_wanted(request):
                self._read_body(request)
            else:
                super().service()
                if not self.connected:
                    self._give_up()
                self._start_next()
        except BaseException:
            self._give_up()
            raise

    def serve_next(self) -> None:
        """Serve the next request as soon as what is to be sent has been sent, so that a client that sends requests
        and reads nothing costs the memory of one response and no thread. The caller has `requests_lock`."""
        self._next_waits = True

    def _start_next(self) -> None:
        if not self._next_waits:
            return
        with self.requests_lock:
            if self._next_waits and not self.total_outbufs_len:
                self._next_waits = False
                self.server.task_dispatcher.add_task(self)

    def _give_up(self) -> None:
        """After an error that has left no response, with which the connection would wait for ever; or when it is
        closed, and others came with its request."""
        with self.requests_lock:
            for request in self.requests:
                request.close()
            self.requests, self._next_waits, self.will_close = [], False, True
        self.server.pull_trigger()

    def _body_is_wanted(self, request: Parser) -> bool:
        try:
            return self._is_accepted(request)
        except Exception:
            log.exception("a request can't be judged by its head")
            request.error = InternalServerError("")
            return False

    def _is_accepted(self, request: Parser) -> bool:
        """Call the application with the head only. The response that rejects the request is kept for its task."""
        started: list[Any] = []
        environ = Response(self, request).get_environment()
        body = self.server.application({**environ, "wsgi.input": BytesIO()}, lambda *start: started.extend(start))
        content = b"".join(body)
        if request.gate is not None and request.gate.opened:
            return True
        request.rejection = started[0], started[1], content
        return False

    def _read_body(self, request: Parser) -> None:
        """Resume reading where the parser has stopped.

        The request leaves the queue last: with an empty queue the server's thread flushes without a lock, and it and
        `send_continue` would send the same bytes.
        """
        with self.requests_lock:
            self.request = request
            self._enter(ChannelPhase.READING)
            request.resume()
            if request.waits_for_continue:
                self.send_continue()
            self.requests.pop(0)
        if not self.connected:  # closed in the meantime, when the channel had no request
            request.reservation.release()
        self.server.pull_trigger()

    def reject(self) -> None:
        """The response that is written now is the last one, and the client may still be sending."""
        with self.requests_lock:
            self._enter(ChannelPhase.REJECTED)

    def received(self, data: bytes) -> bool:
        if self.phase is ChannelPhase.PROXY_HEADER:
            data = self._behind_proxy_header(data)
            if not data:
                return False
        if self.phase in (ChannelPhase.FRESH, ChannelPhase.OPEN):
            self._enter(ChannelPhase.READING)
        more = bool(super().received(data))
        with self.requests_lock:  # a thread that asked for a body may bring the request back
            if self.request is None and self.phase is ChannelPhase.READING:
                self._enter(ChannelPhase.OPEN)
        return more

    def _behind_proxy_header(self, data: bytes) -> bytes:
        """What follows the header of the TLS terminator, which names the client; nothing until it is complete."""
        self._proxy_header += data
        try:
            header = read_header(self._proxy_header)
        except BadHeader as error:
            log.error("malformed PROXY header from the TLS terminator: %s", error)
            self.handle_close()
            return b""
        if header is None:
            return b""
        if header.source is not None:
            self.addr = header.source
        self._enter(ChannelPhase.FRESH)
        return self._proxy_header[header.size :]

    # --- responses ---

    def write_soon(self, data: Any) -> int:
        try:
            return int(super().write_soon(data))
        except OSError as error:  # a file for a long response: what is to be sent isn't known any more
            self.server.buffers_log.error(error)
            self.will_close = True
            raise

    def _flush_outbufs_below_high_watermark(self) -> None:
        if not self.response_is_whole:  # else the next one waits, not this thread
            super()._flush_outbufs_below_high_watermark()

    def handle_write(self) -> None:
        super().handle_write()
        self._start_next()

    # --- the end ---

    def handle_close(self) -> None:
        if self.phase is not ChannelPhase.REJECTED:
            self._close()
            return
        self._enter(ChannelPhase.LINGERING)
        self.will_close = False
        try:
            self.socket.shutdown(socket.SHUT_WR)
        except OSError:  # the client is gone already
            self._close()

    def _close(self) -> None:
        super().handle_close()
        if self.request is not None:
            self.request.reservation.release()
        self._start_next()  # the requests that wait end in a thread, like all others

    def del_channel(self, *arguments: Any, **options: Any) -> None:
        super().del_channel(*arguments, **options)
        client, self.client = self.client, None
        if client is not None:
            self.server.connection_ended(client)

    def readable(self) -> bool:
        return self.phase is ChannelPhase.LINGERING or bool(super().readable())

    def handle_read(self) -> None:
        try:
            data = self.socket.recv(self.adj.recv_bytes)
        except BlockingIOError:
            return
        except OSError:
            self.handle_close()
            return
        if not data:
            self._end_of_requests()
        elif self.phase is not ChannelPhase.LINGERING:  # then it is discarded
            self._active = time.monotonic()
            self.received(data)

    def handle_expt(self) -> None:
        """TCP's urgent data: unread, they would end each turn of the loop at once."""
        self.handle_close()

    def _end_of_requests(self) -> None:
        """The client has closed its half, and may still read the response that is being sent."""
        if self.phase is ChannelPhase.LINGERING or not self.total_outbufs_len:
            self.handle_close()
        else:
            self.close_when_flushed = True

    # --- deadlines: `now` is of the monotonic clock ---

    @property
    def idle(self) -> bool:
        """Nothing is being read, served or written, and nothing has come that waits to be read.

        Closed with bytes unread, the kernel would send a reset, and a request that has come would fail.
        """
        return self.phase is not ChannelPhase.READING and not self.is_answering and not self._counted(termios.FIONREAD)

    @property
    def is_answering(self) -> bool:
        """Whether a request is being served, or the response to it is being sent."""
        return bool(self.requests or self.total_outbufs_len)

    def overdue(self, now: float) -> bool:
        """Whether its phase takes too long. While a request is answered the rest of the next one is not read."""
        if self.phase is ChannelPhase.READING and self.is_answering:
            self._entered = now
        return now - self._entered > self._limit()

    def _limit(self) -> float:
        if self.phase is ChannelPhase.LINGERING:
            return LINGER
        if self.phase is not ChannelPhase.READING:
            return math.inf
        return REQUEST_TIMEOUT if self.request is not None and self.request.headers_finished else HEAD_TIMEOUT

    def silent(self, now: float) -> bool:
        """Whether nothing is served or sent, and nothing has come or gone for too long."""
        return now - self._active > IDLE_TIMEOUT and self.idle

    def may_send_request(self, drained: float) -> bool:
        """Whether a request may still begin when the server has drained for so many seconds."""
        is_new = self.phase in (ChannelPhase.PROXY_HEADER, ChannelPhase.FRESH)
        return drained < (FIRST_REQUEST if is_new else ALIVE_FOR)

    def send(self, data: bytes, do_close: bool = True) -> int:
        in_the_loop = self.server.is_this_thread  # in others the map of the loop must not be changed
        count = int(super().send(data, do_close and in_the_loop))
        self._sent += count
        if count:
            self._active = time.monotonic()
        return count

    def stalled(self, now: float) -> bool:
        """Whether the client takes next to nothing of a response, which occupies a thread when it is a long one."""
        if not self.total_outbufs_len:
            self._window = None
            return False
        began, before = self._window or (now, self.taken)
        is_over = now - began > SEND_WINDOW
        self._window = (now, self.taken) if is_over else (began, before)
        return is_over and self.taken - before < MIN_SEND_RATE * SEND_WINDOW

    @property
    def taken(self) -> int:
        """The bytes that the client has taken: those in the kernel's buffer, which takes megabytes at once and nothing
        for minutes, don't count."""
        return self._sent - self._counted(termios.TIOCOUTQ)

    def _counted(self, request: int) -> int:
        """The bytes that the kernel has in one of the socket's buffers: tty_ioctl(4)."""
        return int.from_bytes(fcntl.ioctl(self.socket, request, bytes(4)), sys.byteorder)
