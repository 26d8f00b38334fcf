"""Real HTTP sources of lists: each responds as it is set, and remembers the headers of its requests."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


@dataclass(slots=True)
class Content:
    """A response. `pieces` is its body, sent as it comes; without `length` its end is that of the connection."""

    pieces: Iterable[bytes] = ()
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    length: int | None = None


def content(text: str | bytes, **headers: str) -> Content:
    """A whole body; `_` in the name of a header is `-`."""
    body = text if isinstance(text, bytes) else text.encode()
    return Content((body,), 200, {name.replace("_", "-"): value for name, value in headers.items()}, len(body))


class Source:
    """A server on loopback, for `with`. A request with the ETag of `now` gets 304."""

    def __init__(self, now: Content) -> None:
        self.now = now
        self.by_path: dict[str, Content] = {}
        self.requests: list[dict[str, str]] = []
        source = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                source.requests.append({name.lower(): value for name, value in self.headers.items()})
                self.respond(source.by_path.get(self.path, source.now))

            def respond(self, now: Content) -> None:
                etag = now.headers.get("etag")
                if etag is not None and self.headers.get("if-none-match") == etag:
                    self.send_response(304)
                    self.end_headers()
                    return
                self.send_response(now.status)
                for name, value in now.headers.items():
                    self.send_header(name, value)
                if now.length is not None:
                    self.send_header("content-length", str(now.length))
                self.end_headers()
                for piece in now.pieces:
                    self.wfile.write(piece)

            def log_message(self, *_: Any) -> None:
                """Quiet."""

        class Server(ThreadingHTTPServer):
            def handle_error(self, *_: Any) -> None:
                """The client may have hung up: that is what is tested."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port: int = self._server.server_address[1]
        self.url = self.url_of("/list.txt")
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    def url_of(self, path: str) -> str:
        """The URL of what `by_path` has."""
        return f"http://127.0.0.1:{self.port}{path}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
