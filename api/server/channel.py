"""One connection of the management API: deadlines, the order of its end, and the bodies of its requests."""

from __future__ import annotations

import logging
import socket
import time
from io import BytesIO
from typing import Any

from waitress.channel import HTTPChannel

from actors.net.proxy_protocol import BadHeader, read_header
from api.server.parser import Parser
from api.server.tasks import Answer, Refusal

log = logging.getLogger(__name__)

HEAD_TIMEOUT = 10.0
REQUEST_TIMEOUT = 60.0
STALLED_AFTER = 60.0
"""Seconds after which a client that takes less than `SLOWEST` of an answer counts as gone."""
SLOWEST = 4096
"""Bytes a second, on the average: who reads an export a byte at a time would hold its place for ever."""
LINGER = 2.0
OUTDATED = 2.0
FIRST_REQUEST = 0.5
KEPT_ALIVE = 0.2
"""Seconds that a connection may still send its first request, or another one, when the last requests have begun."""


class Channel(HTTPChannel):  # type: ignore[misc]
    """One connection. `began` is when the request that is being read began, None between requests.

    One that is outdated came by an address that the API has left: its next answer is its last, and it is closed when it
    asks nothing for `OUTDATED`; at once would be under the hands of who is just asking.

    One that `lingers` is closed in two steps (RFC 9112, section 9.6): our half first, and the rest when the client has
    heard the answer or had `LINGER` seconds. Closed at once with bytes unread, the kernel would send a reset, and
    the client might lose the answer that says what was wrong.
    """

    parser_class = Parser
    task_class = Answer
    error_task_class = Refusal
    served = False
    began: float | None = None
    lingers = False
    outdated_since: float | None = None
    lingering_until: float | None = None
    known = False
    header = b""
    request: Parser | None = None
    watched_since: float | None = None
    taken = 0

    def service(self) -> None:
        request = self.requests[0]
        if request.asks and self.connected and self._body_is_wanted(request):
            self._take_in_body(request)
        else:
            super().service()

    def _body_is_wanted(self, request: Parser) -> bool:
        """Ask the application, which has nothing but the head. A refusal is kept for the answer."""
        said: list[Any] = []
        environ = Answer(self, request).get_environment()
        body = self.server.application({**environ, "wsgi.input": BytesIO()}, lambda *given: said.extend(given))
        content = b"".join(body)
        if request.gate is not None and request.gate.opened:
            return True
        request.refused = said[0], said[1], content
        return False

    def _take_in_body(self, request: Parser) -> None:
        """Read on where the parser has stopped."""
        with self.requests_lock:
            self.requests.pop(0)
            self.request, self.began = request, time.monotonic()
            request.go_on()
            if request.waits_for_continue:
                self.send_continue()
        if not self.connected:  # closed in the meantime, when the channel had no request
            request.reservation.release()
        self.server.pull_trigger()

    def handle_close(self) -> None:
        if not self.lingers or self.lingering_until is not None:
            self._close()
            return
        self.lingering_until = time.monotonic() + LINGER
        self.will_close = False
        try:
            self.socket.shutdown(socket.SHUT_WR)
        except OSError:  # the client is gone already
            self._close()

    def _close(self) -> None:
        super().handle_close()
        if self.request is not None:
            self.request.reservation.release()

    def readable(self) -> bool:
        return self.lingering_until is not None or bool(super().readable())

    def handle_read(self) -> None:
        if self.lingering_until is None:
            super().handle_read()
            return
        try:
            self.recv(65536)  # to be forgotten; at the end of the stream it closes this channel
        except OSError:
            self.handle_close()

    def _announced(self, data: bytes) -> bytes:
        """What is behind the header of the TLS front, whose client this is from then on; nothing before it is whole."""
        if self.known:
            return data
        self.header += data
        try:
            header = read_header(self.header)
        except BadHeader as error:
            log.error("the TLS front sent no good header: %s", error)
            self.handle_close()
            return b""
        if header is None:
            return b""
        if header.source is not None:
            self.addr = header.source
        self.known = True
        return self.header[header.size :]

    def received(self, data: bytes) -> bool:
        if self.server.behind_tls:
            data = self._announced(data)
            if not data:
                return False
        if self.began is None:
            self.began = time.monotonic()
        more = bool(super().received(data))
        with self.requests_lock:  # a thread that has asked for a body may bring the request back
            if self.request is None:
                self.began = None
                self.served = True
        return more

    @property
    def between_requests(self) -> bool:
        """Nothing is being read, done or written."""
        return self.began is None and not self.requests and not self.total_outbufs_len

    def lapsed(self, now: float) -> bool:
        """Whether it came by an address that was left, and nothing has come since then."""
        return self.outdated_since is not None and now - self.outdated_since > OUTDATED and self.between_requests

    def may_send_more(self, waited: float) -> bool:
        """Whether a request may still come, so many seconds after the last requests have begun."""
        return waited < (KEPT_ALIVE if self.served else FIRST_REQUEST)

    def send(self, data: bytes, do_close: bool = True) -> int:
        count = int(super().send(data, do_close))
        self.taken += count
        return count

    def stalled(self, now: float) -> bool:
        """Whether the client takes next to nothing of an answer, which holds a thread when it is a long one."""
        if self.total_outbufs_len == 0 or self.watched_since is None:
            self.watched_since, self.taken = now, 0
        if now - self.watched_since <= STALLED_AFTER:
            return False
        slow = self.taken < SLOWEST * STALLED_AFTER
        self.watched_since, self.taken = now, 0
        return slow

    @property
    def loiters(self) -> bool:
        """Is a request being read, rather than the rest of what a refused client sends?"""
        return self.lingering_until is None and self.request is not None

    def overdue(self, now: float) -> bool:
        """Whether the request that is being read takes too long, or the client's half of a close."""
        if self.lingering_until is not None:
            return now > self.lingering_until
        if self.began is None or self.request is None:
            return False
        limit = REQUEST_TIMEOUT if self.request.headers_finished else HEAD_TIMEOUT
        return now - self.began > limit
