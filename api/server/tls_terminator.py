"""TLS for the management API: a process in front of it that speaks TLS to clients and plain bytes to the API.

    client == TLS ==> front -- Unix socket in the run directory, a PROXY protocol header first --> API

The header (version 2) tells the API the client's address. No client can forge it: only this process can reach that
socket, it lies in a directory of mode 0700, and what clients send comes behind the header. A connection to the API is
made when the first clear bytes have come, so a slow or broken handshake costs the API nothing.

Every connection has `HANDSHAKE_TIMEOUT` for its handshake and first byte; from there on the API's own deadlines hold.
One address has only so many connections, and so has the front in all: what is above waits in the kernel or is closed.
"""

from __future__ import annotations

import logging
import select
import socket
import time
from collections import Counter
from collections.abc import Collection
from typing import Any

from actors.bus.messages.common import SUPERVISOR
from actors.bus.messages.problems import CERTIFICATE, Problem, ReportProblems
from actors.net.client_key import client_key
from actors.net.descriptor_exhaustion import ACCEPT_PAUSE, OUT_OF_DESCRIPTORS
from actors.net.listener_drain import DRAIN_SECONDS, reject_new_syns
from actors.net.proxy_protocol import build_v2
from actors.net.tls_stream import Certificate, TlsStream
from actors.problems import Problems
from actors.process import Actor, Boot
from actors.throttled_log import ThrottledLog
from api.server.connection_limits import per_address
from api.server.listener_handover import ListenerReceiver

log = logging.getLogger(__name__)

HANDSHAKE_TIMEOUT = 10.0
SEND_TIMEOUT = 30.0
"""Seconds that a client has to take the rest, once the API has ended the connection."""
LINGER = 2.0
"""Seconds that a client has to take note of the end."""
MOVE_WAIT = 0.5
"""Seconds after which a new address is taken: the answer to who asked for it is written by then."""
READ_SIZE = 64 * 1024
BUFFER_MAX = 256 * 1024
"""Bytes in one direction above which the sender has to wait."""
LOOK_PERIOD = 0.5
CERTIFICATE_PERIOD = 30.0
"""Seconds between two looks at the certificate while no client makes the front look."""
ACCEPTS_AT_ONCE = 64


class TlsTerminator(Actor):
    """Takes connections at `sockets[0]`. `boot.settings`: `server`."""

    def __init__(self, boot: Boot, sockets: list[socket.socket]) -> None:
        """Raises `CertificateError` without a good certificate."""
        super().__init__(boot, sockets)
        server = boot.settings["server"]
        self._problems = Problems(self.loop, time.time, self._report)
        self._certificate = Certificate(server["tls"]["cert_file"], server["tls"]["key_file"], self._judge_certificate)
        self.loop.call_every(CERTIFICATE_PERIOD, self._certificate.check)
        self._most: int = server["max_connections"]
        self._scarcity = ThrottledLog(log, "connections can't be accepted")
        self._links: set[_Connection] = set()
        self._by_address: Counter[str] = Counter()
        self._listener: socket.socket | None = None
        self._draining = self._full = False
        self._door = ListenerReceiver(self.loop, self.run_dir.api_door, self._move, MOVE_WAIT)
        self.inner = str(self.run_dir.api_inner)
        self._listen(sockets[0])
        self.loop.call_every(LOOK_PERIOD, self._look)
        self.ready()
        self._problems.report_soon()

    def settings_changed(self, _groups: Collection[str]) -> None:
        """See `Actor`: there may be more connections, or fewer, from now on; those that there are stay."""
        self._most = self.settings["server"]["max_connections"]
        if self._full and self._listener is not None:
            self._listen(self._listener)

    def drain(self, seconds: float) -> None:
        """Accept no more; connections end when the API ends them, at the latest when the time is up."""
        self._draining = True
        self._stop_listening()
        self.loop.call_later(seconds, self.finish)
        self._look()

    def close(self) -> None:
        """Close everything."""
        for link in tuple(self._links):
            link.close()
        self._stop_listening()
        self._door.close()
        super().close()

    def forget(self, link: _Connection, address: str) -> None:
        """A connection has ended."""
        self._links.discard(link)
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]
        if self._full and self._listener is not None:
            self._listen(self._listener)
        if self._draining and not self._links:
            self.finish()

    def _judge_certificate(self, trouble: str | None) -> None:
        if trouble is None:
            self._problems.ends(CERTIFICATE, "the certificate is good")
        else:
            self._problems.begins(CERTIFICATE, trouble)

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

    def _move(self, listener: socket.socket) -> None:
        """Who has begun to connect to the old socket is still let in."""
        older, self._listener = self._listener, None
        if older is not None:
            reject_new_syns(older)
            self.loop.unwatch(older.fileno())
            self.loop.watch(older.fileno(), select.EPOLLIN, lambda _mask: self._let_in_all(older))
            self.loop.call_later(DRAIN_SECONDS, lambda: self._leave(older))
        self._listen(listener)

    def _leave(self, older: socket.socket) -> None:
        self._let_in_all(older)
        self.loop.unwatch(older.fileno())
        older.close()

    def _let_in_all(self, older: socket.socket) -> None:
        while self._let_in(older):
            continue

    def _accept(self, _mask: int) -> None:
        for _ in range(ACCEPTS_AT_ONCE):
            if self._listener is None:
                return
            if len(self._links) >= self._most:
                self._full = True  # the others wait in the kernel until one has ended
                self.loop.unwatch(self._listener.fileno())
                return
            if not self._let_in(self._listener):
                return

    def _let_in(self, listener: socket.socket) -> bool:
        try:
            client, peer = listener.accept()
        except BlockingIOError:
            return False
        except OSError as error:
            self._cannot_accept(listener, error)
            return False
        self._admit(client, client_key(peer[0]))
        return True

    def _cannot_accept(self, listener: socket.socket, error: OSError) -> None:
        """Nobody is there any more; or there is no descriptor, and the client waits in the kernel for a moment."""
        if error.errno not in OUT_OF_DESCRIPTORS:
            log.debug("a connection ended before it was accepted: %s", error)
            return
        self._scarcity.error(error)
        self.loop.unwatch(listener.fileno())
        self.loop.call_later(ACCEPT_PAUSE, lambda: self._accept_again(listener))

    def _accept_again(self, listener: socket.socket) -> None:
        if self._listener is listener:  # an older one is asked once more before it is closed
            self.loop.watch(listener.fileno(), select.EPOLLIN, self._accept)

    def _admit(self, client: socket.socket, address: str) -> None:
        if self._by_address[address] >= per_address(self._most):
            client.close()
            return
        client.setblocking(False)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._by_address[address] += 1
        stream = TlsStream(client, self._certificate.context(time.monotonic()))
        self._links.add(_Connection(self, client, stream, address))

    def _look(self) -> None:
        """End what has taken too long; at the end, end when all is done."""
        now = time.monotonic()
        for link in tuple(self._links):
            if link.deadline is not None and now > link.deadline:
                link.close()
        if self._draining and not self._links:
            self.finish()


class _Connection:
    """One client with its connection to the API. `deadline` is None while the API's own deadlines hold."""

    def __init__(self, front: TlsTerminator, client: socket.socket, stream: TlsStream, address: str) -> None:
        self.deadline: float | None = time.monotonic() + HANDSHAKE_TIMEOUT
        self._front = front
        self._client = client
        self._stream = stream
        self._address = address
        self._api: socket.socket | None = None
        self._up = bytearray()
        self._down = bytearray()
        self._client_ended = self._api_ended = self._close_notify_sent = self._half_closed = self._closed = False
        self._masks: dict[int, int] = {}
        self._watch()

    def close(self) -> None:
        """Both connections are closed."""
        if self._closed:
            return
        self._closed = True
        for each in (self._client, self._api):
            if each is not None:
                self._front.loop.unwatch(each.fileno())
                each.close()
        self._front.forget(self, self._address)

    def _touched(self, _mask: int) -> None:
        try:
            self._pump()
        except OSError as error:  # a reset, a failed handshake, or an API that is gone: of this client alone
            log.debug("a connection of %s ends: %s", self._address, error)
            self.close()
        if not self._closed:
            self._watch()

    def _pump(self) -> None:
        self._stream.flush()
        self._read_client()
        if self._up and self._api is None:
            self._connect()
        self._send(self._up, self._api)
        self._end_request()
        self._read_api()
        self._send(self._down, self._stream)
        if self._api_ended and self.deadline is None:
            self.deadline = time.monotonic() + SEND_TIMEOUT
        if self._api_ended and not self._down and not self._close_notify_sent:
            self._close_notify_sent = True
            self._stream.shutdown(socket.SHUT_WR)
            self.deadline = time.monotonic() + LINGER
        if self._client_ended and (self._api is None or self._api_ended) and not self._down and not self._stream.unsent:
            self.close()

    def _read_client(self) -> None:
        while not self._client_ended and len(self._up) < BUFFER_MAX:
            try:
                data = self._stream.recv(READ_SIZE)
            except BlockingIOError:
                return
            if data:
                self._up += data if not self._api_ended else b""
            else:
                self._client_ended = True

    def _end_request(self) -> None:
        """The client sends no more and the API has had it all: the end for an API that is not just answering."""
        if self._client_ended and self._api is not None and not self._up and not self._half_closed:
            self._half_closed = True
            if not self._api_ended:
                self._api.shutdown(socket.SHUT_WR)

    def _connect(self) -> None:
        api = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        api.setblocking(False)
        try:
            api.connect(self._front.inner)
        except OSError:
            api.close()
            raise
        self._api, self.deadline = api, None
        header = build_v2(self._client.getpeername()[:2], self._client.getsockname()[:2])
        self._up[:0] = header

    def _read_api(self) -> None:
        while self._api is not None and not self._api_ended and len(self._down) < BUFFER_MAX:
            try:
                data = self._api.recv(READ_SIZE)
            except BlockingIOError:
                return
            self._down += data
            self._api_ended = not data

    def _send(self, waiting: bytearray, to: Any) -> None:
        """As much of `waiting` as `to` takes now."""
        if not waiting or to is None:
            return
        try:
            sent = to.send(bytes(waiting))
        except BlockingIOError:
            return
        del waiting[:sent]

    def _watch(self) -> None:
        reads = not self._client_ended and len(self._up) < BUFFER_MAX
        self._set_interest(self._client, reads, bool(self._down) or self._stream.unsent)
        if self._api is not None:
            self._set_interest(self._api, not self._api_ended and len(self._down) < BUFFER_MAX, bool(self._up))

    def _set_interest(self, sock: socket.socket, reads: bool, writes: bool) -> None:
        mask = (select.EPOLLIN if reads else 0) | (select.EPOLLOUT if writes else 0)
        if self._masks.get(sock.fileno()) != mask:
            self._masks[sock.fileno()] = mask
            self._front.loop.unwatch(sock.fileno())
            if mask:
                self._front.loop.watch(sock.fileno(), mask, self._touched)
