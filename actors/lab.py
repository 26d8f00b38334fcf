"""The origin of `proxyfleet serve --lab`: a small HTTP server on loopback, to try proxies without an internet.

It has `/`, `/status/CODE`, `/bytes/NUMBER` and, for any other path, the request as JSON: what a proxy has made of it.
"""

from __future__ import annotations

import json
import logging
import re
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from actors.process import Actor, Boot

log = logging.getLogger(__name__)

PORT = 8088
"""Where it listens on 127.0.0.1, unless that is in use."""
RANGES = ["127.0.0.0/8", "::1/128"]
"""What the egress guard lets through beside `proxy.egress_allow`."""
BYTES_MAX = 100_000_000
BODY_MAX = 1_000_000
"""Bytes of a request's body that are read."""
LENGTH_DIGITS = 10
IDLE_MAX = 30.0
CHUNK = b"proxyfleet lab\n" * 4096
_PATH = re.compile(r"/(status|bytes)/([0-9]{1,9})\Z", re.ASCII)
_PAGE = b"""<!doctype html><meta charset="utf-8"><title>Proxyfleet lab</title>
<h1>Proxyfleet lab</h1><p>This page came through a proxy, or straight from the origin of the lab.
Others: /status/404, /bytes/1000000, /anything.</p>
"""


class LabOrigin(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server_version = "proxyfleet-lab"
    sys_version = ""
    timeout = IDLE_MAX

    def do_GET(self) -> None:
        """Respond to a request of any usual method."""
        body = self._body()
        if body is None:
            self._send(413, b"", "text/plain")
            return
        path = self.path.partition("?")[0]
        found = _PATH.fullmatch(path)
        if path == "/":
            self._send(200, _PAGE, "text/html; charset=utf-8")
        elif found is None:
            self._send(200, self._echo(body), "application/json")
        elif found[1] == "status":
            status = int(found[2])
            known = 200 <= status <= 599
            self._send(status if known else 400, b"" if known else b"a status is 200 to 599\n", "text/plain")
        else:
            self._send_bytes(min(int(found[2]), BYTES_MAX))

    do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = do_OPTIONS = do_GET  # noqa: N815

    def log_message(self, *_: Any) -> None:
        """Proxies have records of their requests."""

    def _body(self) -> bytes | None:
        """The body of the request; None of one that is too long or has no length."""
        length = self.headers.get("Content-Length", "0")
        is_short = length.isdecimal() and len(length) <= LENGTH_DIGITS and int(length) <= BODY_MAX
        if "Transfer-Encoding" in self.headers or not is_short:
            self.close_connection = True
            return None
        return self.rfile.read(int(length))

    def _echo(self, body: bytes) -> bytes:
        view = {
            "method": self.command,
            "path": self.path,
            "client": self.client_address[0],
            "headers": dict(self.headers.items()),
            "body_bytes": len(body),
        }
        return json.dumps(view, indent=2).encode() + b"\n"

    def _head(self, status: int, media_type: str, length: int) -> None:
        self.send_response(status)
        self.send_header("Content-Type", media_type)
        if status not in (204, 304):
            self.send_header("Content-Length", str(length))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()

    def _send(self, status: int, body: bytes, media_type: str) -> None:
        self._head(status, media_type, len(body))
        if self.command != "HEAD" and status not in (204, 304):
            self.wfile.write(body)

    def _send_bytes(self, number: int) -> None:
        self._head(200, "application/octet-stream", number)
        left = 0 if self.command == "HEAD" else number
        while left:
            left -= self.wfile.write(CHUNK[: min(left, len(CHUNK))])


class LabServer(ThreadingHTTPServer):
    """On a socket that listens already."""

    daemon_threads = True

    def __init__(self, listening: socket.socket) -> None:
        super().__init__(listening.getsockname()[:2], LabOrigin, bind_and_activate=False)
        self.socket.close()
        self.socket = listening

    def handle_error(self, _request: Any, client_address: Any) -> None:
        """A client that has gone is no error."""
        log.debug("a connection of %s has failed", client_address, exc_info=True)


class LabActor(Actor):
    """See the module. Its threads end with the process."""

    def __init__(self, boot: Boot, sockets: list[socket.socket]) -> None:
        super().__init__(boot, sockets)
        (listening,) = sockets
        listening.setblocking(True)
        threading.Thread(target=LabServer(listening).serve_forever, name="lab", daemon=True).start()
        self.ready()


def listening_address(listening: socket.socket) -> str:
    """Its URL."""
    host, port = listening.getsockname()[:2]
    return f"http://{host}:{port}/"
