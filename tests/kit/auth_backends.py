"""Authentication back ends: real HTTP servers on loopback that remember what they were asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from actors.bus.messages.specs import BackendSpec
from config.model.webhooks import new_secret
from tests.kit.forwarding_rig import LOOPBACK_ALLOWED
from tests.kit.webhook_targets import Received

PRIVATE_ALLOWED = replace(LOOPBACK_ALLOWED, private_backends=True)

Decides = Callable[[dict[str, Any]], Any]
"""Called with the content of a request; what it returns is sent as JSON, and bytes as they are. It may block."""


class AuthBackend:
    """A server on loopback, for `with`. `status` and `headers` are those of its responses."""

    def __init__(self, decides: Decides, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        self.decides = decides
        self.status = status
        self.headers = dict(headers or {})
        self.received: list[Received] = []
        self.release = threading.Event()
        self.secret = new_secret()
        backend = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                received = Received({name.lower(): value for name, value in self.headers.items()}, body)
                backend.received.append(received)
                decided = backend.decides(received.content)
                content = decided if isinstance(decided, bytes) else json.dumps(decided).encode()
                self.send_response(backend.status)
                for name, value in backend.headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: Any) -> None:
                """Quiet."""

        class Server(ThreadingHTTPServer):
            request_queue_size = 128

            def handle_error(self, *_: Any) -> None:
                """The proxy may have hung up: that is what is tested."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/auth"
        self._up = True

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.die()

    def die(self) -> None:
        """Connections to it are refused from now on."""
        self.release.set()
        if self._up:
            self._up = False
            self._server.shutdown()
            self._server.server_close()

    def hang(self, _content: dict[str, Any]) -> dict[str, Any]:
        """Allow, but not before the end."""
        self.release.wait(30)
        return {"allow": True}

    def spec(self, **fields: Any) -> BackendSpec:
        """What a proxy is configured with to ask it."""
        return replace(BackendSpec(self.url, self.secret), **fields)

    @property
    def asked(self) -> list[str]:
        """The user names that it was asked about, in order."""
        return [each.content["username"] for each in self.received]
