"""Real HTTP targets for webhooks: each remembers what it received and responds as it is set."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from standardwebhooks.webhooks import Webhook

from actors.bus.messages.events import WebhookSpec
from config.model.webhooks import new_secret


@dataclass(frozen=True, slots=True)
class Received:
    """One request."""

    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def content(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(self.body)
        return content

    def verified(self, secret: str) -> Any:
        """Verified by `standardwebhooks`; raises when the signature is wrong."""
        return Webhook(secret).verify(self.body, self.headers)


Responds = Callable[[int, Received], tuple[int, dict[str, str]]]
"""Called with the number of the request, from 1; returns status and headers. It may block."""


def well(_number: int, _received: Received) -> tuple[int, dict[str, str]]:
    return 200, {}


class Target:
    """A server on loopback, for `with`."""

    def __init__(self, responds: Responds = well, address: tuple[str, int] = ("127.0.0.1", 0)) -> None:
        self.received: list[Received] = []
        self.responds = responds
        self.release = threading.Event()
        target = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                received = Received({name.lower(): value for name, value in self.headers.items()}, body)
                target.received.append(received)
                status, headers = target.responds(len(target.received), received)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", "6")
                self.end_headers()
                self.wfile.write(b"thanks")

            def do_GET(self) -> None:
                target.received.append(Received({"method": "GET"}, b""))
                self.send_error(404)

            def log_message(self, *_: Any) -> None:
                """Quiet."""

        class Server(ThreadingHTTPServer):
            request_queue_size = 128

            def handle_error(self, *_: Any) -> None:
                """The sender may have hung up: that is what is tested."""

        self._server = Server(address, Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self.port = self._server.server_address[1]
        self.url = f"http://{address[0]}:{self.port}/hook"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.release.set()
        self._server.shutdown()
        self._server.server_close()

    def hang(self, _number: int, _received: Received) -> tuple[int, dict[str, str]]:
        """A response that doesn't come before the end."""
        self.release.wait(600)
        return 200, {}

    @property
    def ids(self) -> list[str]:
        return [each.id for each in self.received]

    def spec(self, webhook_id: str = "wh_1", **fields: Any) -> WebhookSpec:
        """A webhook with this target that subscribes to everything."""
        given: dict[str, Any] = {
            "id": webhook_id,
            "name": webhook_id,
            "url": self.url,
            "events": ("*",),
            "headers": {},
            "enabled": True,
            "secrets": (new_secret(),),
            "previous_until": (),
            "created_at": 0.0,
        }
        return WebhookSpec(**{**given, **fields})
