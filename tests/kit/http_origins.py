"""Origins on loopback: one whose responses depend on the path, and one that runs a script on each connection."""

from __future__ import annotations

import base64
import hashlib
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_WEBSOCKET_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455 section 1.3


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Origin

    def do_GET(self) -> None:
        self.server.seen.append((self.command, self.path, dict(self.headers.items())))
        name = self.path.partition("?")[0].strip("/").replace("-", "_")
        getattr(self, f"_get_{name}", self._not_found)()

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_POST(self) -> None:
        self.server.seen.append((self.command, self.path, dict(self.headers.items())))
        chunked = self.headers.get("Transfer-Encoding", "").lower() == "chunked"
        self._answer(200, b"".join(self._chunks()) if chunked else self._counted())

    def _counted(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _chunks(self) -> Iterator[bytes]:
        while size := int(self.rfile.readline().split(b";")[0], 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            continue  # trailers

    def _answer(self, status: int, body: bytes = b"", **fields: str) -> None:
        self.send_response(status)
        for name, value in fields.items():
            self.send_header(name.replace("_", "-"), value)
        if status not in (204, 304):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD" and status not in (204, 304):
            self.wfile.write(body)

    def _not_found(self) -> None:
        self._answer(404, b"not here")

    def _get_hello(self) -> None:
        self._answer(200, b"hello")

    def _get_headers(self) -> None:
        self._answer(200, json.dumps(self.headers.items()).encode())

    def _get_ip(self) -> None:
        self._answer(200, json.dumps({"ip": "192.0.2.7"}).encode(), Content_Type="application/json")

    def _get_no_content(self) -> None:
        self._answer(204)

    def _get_not_modified(self) -> None:
        self._answer(304, ETag='"one"')

    def _get_error(self) -> None:
        self._answer(500, b"broken")

    def _get_megabyte(self) -> None:
        self._answer(200, b"m" * 2**20)

    def _get_hop(self) -> None:
        self._answer(200, b"hop", Connection="X-Private", X_Private="secret", Keep_Alive="timeout=5", X_Public="yes")

    def _get_chunked(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for piece in (b"one,", b"two,", b"three"):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\n\r\n")

    def _get_until_close(self) -> None:
        self.send_response(200)
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(b"to the end")
        self.close_connection = True

    def _get_websocket(self) -> None:
        key = self.headers["Sec-WebSocket-Key"].encode()
        accept = base64.b64encode(hashlib.sha1(key + _WEBSOCKET_GUID).digest()).decode()
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", accept)
        self.end_headers()
        while data := self.rfile.read1(65536):
            self.wfile.write(data)
        self.close_connection = True

    def log_message(self, *_arguments: Any) -> None:
        """Nothing: what was seen is in `Origin.seen`."""


class Origin(ThreadingHTTPServer):
    """An HTTP/1.1 origin; `seen` holds `(method, path, headers)` of each request as it arrived."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.seen: list[tuple[str, str, dict[str, str]]] = []
        self._tls = tls
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def url(self, path: str) -> str:
        """The URL of `path`, which begins with a slash."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}{path}"

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Serve one connection; the TLS handshake is done here, in the connection's own thread."""
        if self._tls:
            request = self._tls.wrap_socket(request, server_side=True)
        super().finish_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is part of many tests."""


@contextmanager
def serving(server: ThreadingHTTPServer) -> Iterator[None]:
    """Serve in a thread of its own until the block ends."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join(120)


@contextmanager
def scripted(script: Callable[[socket.socket], None]) -> Iterator[int]:
    """An origin that runs `script(connection)` in a thread for each connection; gives its port."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)

    def run(connection: socket.socket) -> None:
        with connection:
            connection.settimeout(30)
            try:
                script(connection)
            except OSError:
                return  # the proxy went away; the test checks its client's side

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return  # closed: the test is over
            threading.Thread(target=run, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield int(listener.getsockname()[1])
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
