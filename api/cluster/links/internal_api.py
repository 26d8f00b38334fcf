"""Where nodes ask each other: JSON over HTTP over TLS, at the address `cluster.listen`; and how they ask.

The other side shows the certificate of a node. Only what says so (`Route.for_strangers`) needs none: that is joining,
whose secret is in its body. Each request looks the node up anew, so one that was removed gets no further response, on
connections that are open either. Everything is bounded: connections, of strangers and of nodes, heads, bodies, and how
long a request may take to come. A request that is refused costs one handshake. Where there is no more room the oldest
connection goes that no request is handled of: of the same node, of the same address, or of the address that has most.
So who fills the places of strangers loses them to whom comes, and nodes have places of their own.

The API's process binds the address, with SO_REUSEPORT, and needs no second process: an installation that becomes a node
listens at once, and the next process of an upgrade takes over without a gap but for what is in the queue.
"""

from __future__ import annotations

import http.client
import json
import logging
import select
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from io import BufferedIOBase
from typing import Any

from actors.log_lines import ThrottledLog
from actors.net.client_key import client_key
from api.cluster.links.certificates import (
    Certificates,
    KnownNode,
    NodeCertificateError,
    OwnCertificate,
    connected,
    fingerprint_of,
)
from api.periodic_work import LoopThread
from config import OperatorError
from config.model.nodes import INTERNAL_ADDRESS
from config.model.nodes.tokens import place_of

log = logging.getLogger(__name__)

OF_NODES, STRANGERS, OF_ONE = 128, 32, 8
"""Connections at once: of nodes; of those that have not (yet) the certificate of one; of one node, or one address."""
OF_STRANGER, TO_COME = 2.0, 5.0
"""Seconds that a handshake has, and then the head of a stranger's request; and the body of any."""
IDLE = 60.0
"""Seconds after which a connection of a node that sends nothing is closed."""
HEAD, BODY_OF_STRANGERS, BODY, REPLY = 16 * 1024, 16 * 1024, 4 * 2**20, 16 * 2**20
"""Bytes that headers may have together; and a body of a request of a stranger, of a node, and of a response."""
RETRY = 1.0
"""Seconds between two tries to bind the address."""
SILENCE = 2.3
"""Seconds without a reply after which it is found out whether the other node still responds at all."""
CONNECT = 3.0
"""Seconds that another node has until it is connected, whatever time a request to it has."""
LINGER, LINGER_READS = 0.5, 32
"""Seconds without anything, and how often something is read, behind the last response of a connection."""
_BACKLOG = 64


class NodeRefused(OperatorError):
    """The other node has refused a request, or this one refuses one: with this HTTP status, and why."""

    def __init__(self, text: str, status: int = 403) -> None:
        super().__init__(text)
        self.status = status


class NodeUnreachable(OperatorError):
    """The other node can't be reached, or doesn't respond in time."""


Handle = Callable[[KnownNode | None, Mapping[str, Any]], Mapping[str, Any]]
"""Called with the node that asks, None for a stranger, and the body of the request; the reply. Raises `NodeRefused`."""


@dataclass(frozen=True, slots=True)
class Route:
    """What responds to `POST` at a path."""

    handle: Handle
    for_strangers: bool = False
    for_edges: bool = False
    """Whether edge nodes may ask it, too."""


class InternalApi(LoopThread):
    """Serves the routes, from `start` until `close`."""

    def __init__(
        self, address: tuple[str, int], certificates: Certificates, routes: Callable[[], Mapping[str, Route]]
    ) -> None:
        """Without a host it listens on all addresses of the machine."""
        super().__init__("internal api", self._serve, 2 * RETRY)
        self.address = address
        self.certificates = certificates
        self.routes = routes
        self._listener: socket.socket | None = None
        self._connections: dict[NodeConnection, None] = {}  # the oldest first
        self._lock = threading.Lock()
        self._bind_log = ThrottledLog(log, "other nodes can't reach this one")

    def start(self) -> None:
        """Listen, at once or when the address is free."""
        self._bind()
        super().start()

    def close(self) -> None:
        """End it, and all connections."""
        super().close()
        with self._lock:
            for each in self._connections:
                each.end()
        if self._listener is not None:
            self._listener.close()

    def admits(self, connection: NodeConnection, node: KnownNode | None = None) -> bool:
        """Whether there is room for this one, perhaps in place of another: a stranger's, or now that of a node."""
        with self._lock:
            peer, is_stranger = (connection.peer, True) if node is None else (node.id, False)
            others = [each for each in self._connections if each.is_stranger is is_stranger]
            crowd = [each for each in others if each.peer == peer]
            if len(crowd) < OF_ONE and len(others) >= (STRANGERS if is_stranger else OF_NODES):
                ((most, _),) = Counter(each.peer for each in others).most_common(1)
                crowd = [each for each in others if each.peer == most]
            elif len(crowd) < OF_ONE:
                crowd = []
            goes = next((each for each in crowd if not each.is_handled), None)
            if crowd and goes is None:
                return False
            if goes is not None:
                goes.end()
                del self._connections[goes]
            connection.peer, connection.is_stranger = peer, is_stranger
            self._connections[connection] = None
            return True

    def forget(self, connection: NodeConnection) -> None:
        """It has ended."""
        with self._lock:
            self._connections.pop(connection, None)

    def _bind(self) -> None:
        host, port = self.address
        both = not host and socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if both or ":" in host else socket.AF_INET
        try:
            self._listener = socket.create_server(
                (host, port), family=family, backlog=_BACKLOG, reuse_port=True, dualstack_ipv6=both
            )
        except OSError as error:
            self._bind_log.error(f"cluster.listen {host}:{port}: {error.strerror or error}")
            return
        self._listener.setblocking(False)
        self.address = self._listener.getsockname()[:2]

    def _serve(self) -> float:
        if self._listener is None:
            self.pause(RETRY)
            self._bind()
            return 0.0
        with suppress(OSError):
            if can_be_read(self._listener, RETRY / 2):
                self._accept(*self._listener.accept())
        now = time.monotonic()
        with self._lock:
            for each in [each for each in self._connections if each.until < now]:
                each.end()
        return 0.0

    def _accept(self, plain: socket.socket, peer: Any) -> None:
        connection = NodeConnection(self, plain, client_key(peer[0]))
        if not self.admits(connection):
            plain.close()
            return
        try:
            threading.Thread(target=connection.serve, name="internal api", daemon=True).start()
        except RuntimeError:  # there can be no more threads
            self.forget(connection)
            plain.close()


class NodeConnection:
    """One that came. `until` is of the monotonic clock: then it is ended, whatever it does."""

    def __init__(self, api: InternalApi, plain: socket.socket, peer: str) -> None:
        self.api = api
        self.peer = peer
        self.is_stranger = True
        self.until = time.monotonic() + OF_STRANGER
        self._plain = plain
        self._secured: ssl.SSLSocket | None = None

    def serve(self) -> None:
        """Serve it, in a thread of its own."""
        try:
            self._plain.settimeout(OF_STRANGER)
            context = self.api.certificates.server_context()
            with context.wrap_socket(self._plain, server_side=True, do_handshake_on_connect=False) as self._secured:
                self._secured.do_handshake()  # now `end` ends it
                node = self.node()
                if node is None or self.api.admits(self, node):
                    _Requests(self, self._secured)
        except (OSError, ValueError, NodeCertificateError) as error:  # of this connection alone
            log.debug("a connection of %s to the internal API has ended: %s", self.peer, error)
        finally:
            self._plain.close()
            self.api.forget(self)

    def node(self) -> KnownNode | None:
        """Whose it is, now."""
        return None if self._secured is None else self.api.certificates.node_of(self._secured)

    @property
    def is_handled(self) -> bool:
        """Whether a request of it is under way, which ends by itself."""
        return self.until == float("inf")

    def end(self) -> None:
        """End it, from any thread: what waits for it gets an error."""
        for each in (self._plain, self._secured):
            if each is not None:
                with suppress(OSError):
                    socket.socket.shutdown(each, socket.SHUT_RDWR)

    def has(self, seconds: float) -> None:
        """From now on it has so many seconds."""
        self.until = time.monotonic() + seconds


class _Head:
    """What a request has before its body, of which so many bytes are read at most."""

    def __init__(self, file: BufferedIOBase) -> None:
        self._file, self._left = file, HEAD

    def readline(self, size: int) -> bytes:
        """The next line. Raises `LineTooLong`."""
        line = self._file.readline(min(size, self._left + 1))
        self._left -= len(line)
        if self._left < 0:
            raise http.client.LineTooLong("head")
        return line


class _Requests(BaseHTTPRequestHandler):
    """The requests of a connection, until it ends: one of a stranger."""

    disable_nagle_algorithm = True  # heads and bodies are sent one after the other
    protocol_version = default_request_version = "HTTP/1.1"
    server_version = "proxyfleet"
    sys_version = ""

    def __init__(self, of: NodeConnection, secured: ssl.SSLSocket) -> None:
        self._of = of
        super().__init__(secured, (of.peer, 0), None)  # type: ignore[arg-type]

    def handle_one_request(self) -> None:
        """Of a node the next one may come later."""
        self._of.has(OF_STRANGER if self._of.is_stranger else IDLE)
        self.connection.settimeout(IDLE)
        super().handle_one_request()

    def parse_request(self) -> bool:
        """With headers that are short together."""
        whole = self.rfile
        self.rfile = _Head(whole)  # type: ignore[assignment]
        try:
            return super().parse_request()
        finally:
            self.rfile = whole

    def do_POST(self) -> None:
        """Respond to a request."""
        try:
            status, reply = 200, self._reply()
        except NodeRefused as error:
            status, reply = error.status, {"error": str(error)}
        except NodeCertificateError as error:
            status, reply = 400, {"error": str(error)}
        except Exception:
            log.exception("a request of another node has failed")
            status, reply = 500, {"error": "it has failed: see the log of that node"}
        self._respond(status, reply)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002
        """As other responses."""
        self._respond(code, {"error": message or "refused"})

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as the class has it
        """Nothing: what is asked is in the audit trail, or changes nothing."""

    def _reply(self) -> Mapping[str, Any]:
        node = self._of.node()
        route = self._of.api.routes().get(self.path)
        if node is None and (route is None or not route.for_strangers):
            raise NodeRefused("this needs the certificate of a node of the fleet")
        if route is None:
            raise NodeRefused("there is no such request", 404)
        if node is not None and node.role != "full" and not (route.for_edges or route.for_strangers):
            raise NodeRefused("an edge node may not ask this")
        body = self._body(BODY if node is not None else BODY_OF_STRANGERS)
        self._of.until = float("inf")  # while it is handled
        return route.handle(node, body)

    def _body(self, most: int) -> Mapping[str, Any]:
        length = self.headers.get("Content-Length", "")
        if "Transfer-Encoding" in self.headers or not (length.isascii() and length.isdecimal() and len(length) < 10):
            raise NodeRefused("the length of the body is needed", 411)
        if int(length) > most:
            raise NodeRefused(f"the body may have {most} bytes", 413)
        self._of.has(TO_COME)
        try:
            body = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError):
            raise NodeRefused("the body is no JSON", 400) from None
        if not isinstance(body, dict):
            raise NodeRefused("the body is no object", 400)
        return body

    def _respond(self, status: int, reply: Mapping[str, Any]) -> None:
        self._of.has(TO_COME)
        content = json.dumps(reply).encode()
        self.close_connection = self.close_connection or status != 200 or self._of.is_stranger
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(content)
        if self.close_connection:
            self._linger()

    def _linger(self) -> None:
        """Read what still comes: else the response would be lost with it."""
        with suppress(OSError):
            socket.socket.shutdown(self.connection, socket.SHUT_WR)
            self.connection.settimeout(LINGER)
            for _ in range(LINGER_READS):
                if not socket.socket.recv(self.connection, 65536):
                    return


Place = tuple[tuple[str, int], str]
"""Address of a node, and the fingerprint of its certificate."""


def place_of_node(document: Mapping[str, Any] | None) -> Place:
    """Where a node is asked, by its document, if there is one. Raises `NodeUnreachable`, `NodeCertificateError`."""
    address = document and document["addresses"].get(INTERNAL_ADDRESS)
    pem = document and document["certificate"]["pem"]
    if not address or not pem:
        raise NodeUnreachable("it has no address at which other nodes can ask it, or no certificate")
    return place_of(address), fingerprint_of(pem)


def ask(
    address: tuple[str, int],
    fingerprint: str,
    path: str,
    body: Mapping[str, Any],
    within: float,
    own: OwnCertificate | None = None,
) -> dict[str, Any]:
    """Ask the node with this fingerprint, at this address; with our certificate, if given. The reply.

    Raises `NodeCertificateError` when another one is there, `NodeRefused`, `NodeUnreachable`.
    """
    place, until = f"{address[0]}:{address[1]}", time.monotonic() + within
    try:
        with opened(address, fingerprint, until, within, own) as secured:
            return exchange(secured, path, body, until, within)[0]
    except NodeRefused as error:
        raise NodeRefused(f"{place}: {error}", error.status) from error
    except NodeUnreachable as error:
        raise NodeUnreachable(f"{place}: {error}") from error


def opened(
    address: tuple[str, int], fingerprint: str, until: float, within: float, own: OwnCertificate | None = None
) -> ssl.SSLSocket:
    """As `connected`, but raises `NodeUnreachable` and no `OSError`."""
    with _as_unreachable(until, within):
        return connected(address, fingerprint, min(until, time.monotonic() + CONNECT), own)


def exchange(
    secured: ssl.SSLSocket,
    path: str,
    body: Mapping[str, Any],
    until: float,
    within: float,
    on_silence: Callable[[], object] | None = None,
) -> tuple[dict[str, Any], bool]:
    """The reply to one request, and whether the connection takes another one. It is ended at `until` (monotonic).

    `within` is what errors say of the time that it had. When nothing has come after `SILENCE`, `on_silence` is called,
    and what it raises ends the request. Raises `NodeRefused` and `NodeUnreachable`.
    """
    left = max(until - time.monotonic(), 0.001)
    timer = threading.Timer(left, _end, [secured])
    timer.daemon = True
    with _as_unreachable(until, within):
        secured.settimeout(left)
        timer.start()
        try:
            return _exchanged(secured, path, body, on_silence)
        finally:
            timer.cancel()


@contextmanager
def _as_unreachable(until: float, within: float) -> Iterator[None]:
    try:
        yield
    except (OSError, http.client.HTTPException) as error:
        late = time.monotonic() >= until
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise NodeUnreachable(f"no response within {round(within, 1):g} s" if late else reason) from error


def _exchanged(
    secured: ssl.SSLSocket, path: str, body: Mapping[str, Any], on_silence: Callable[[], object] | None
) -> tuple[dict[str, Any], bool]:
    connection = http.client.HTTPConnection("node")
    connection.sock = secured
    connection.request("POST", path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    if on_silence is not None and not can_be_read(secured, SILENCE):
        on_silence()
    response = connection.getresponse()
    content = response.read(REPLY + 1)
    if response.length and len(content) <= REPLY:
        raise http.client.IncompleteRead(content)
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or len(content) > REPLY:
        raise NodeUnreachable(f"is no node of a fleet: its response has the status {response.status}")
    if response.status != 200:
        raise NodeRefused(str(found.get("error"))[:500], response.status)
    return found, not response.will_close


def can_be_read(connection: socket.socket, within: float = 0.0) -> bool:
    """Whether there is something to be read of a connection, or its end, within so many seconds."""
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(within * 1000))


def _end(secured: ssl.SSLSocket) -> None:
    with suppress(OSError):
        socket.socket.shutdown(secured, socket.SHUT_RDWR)
