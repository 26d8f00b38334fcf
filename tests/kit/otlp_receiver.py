"""An OpenTelemetry collector on loopback, as far as tests need one: it decodes requests and responds as it is set."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

_KINDS = {"/v1/metrics": ExportMetricsServiceRequest, "/v1/logs": ExportLogsServiceRequest}

Point = tuple[str, frozenset[tuple[str, Any]]]
"""Name and attributes of a series."""


class Receiver:
    """For `with`. It responds with `status` and `headers`."""

    def __init__(self, port: int = 0) -> None:
        self.status = 200
        self.headers: dict[str, str] = {}
        self.pushed: list[tuple[str, dict[str, str], Any]] = []
        """Path, headers and message of each accepted request, oldest first."""
        self.refused = 0
        self.hold = threading.Event()
        self.hold.set()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = gzip.decompress(self.rfile.read(int(self.headers["content-length"])))
                receiver.hold.wait(600)
                if receiver.status == 200:
                    sent = {name.lower(): value for name, value in self.headers.items()}
                    receiver.pushed.append((self.path, sent, _KINDS[self.path].FromString(body)))
                else:
                    receiver.refused += 1
                self.send_response(receiver.status)
                for name, value in receiver.headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", "4")
                self.end_headers()
                self.wfile.write(b"done")

            def log_message(self, *_: Any) -> None:
                """Quiet."""

        class Server(ThreadingHTTPServer):
            def handle_error(self, *_: Any) -> None:
                """The client may have hung up: that is what is tested."""

        self._server = Server(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self.port = int(self._server.server_address[1])
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.hold.set()
        self._server.shutdown()
        self._server.server_close()

    def of(self, path: str) -> list[Any]:
        """The messages to this path."""
        return [message for each, _headers, message in list(self.pushed) if each == path]

    def series(self) -> dict[Point, Any]:
        """The data points of the newest push of metrics."""
        pushed = self.of("/v1/metrics")
        return series_of(pushed[-1]) if pushed else {}


def series_of(message: Any) -> dict[Point, Any]:
    """The data points of a push."""
    return {
        (metric.name, words(point.attributes)): point for metric in metrics_of(message) for point in _points(metric)
    }


def metrics_of(message: Any) -> Iterator[Any]:
    for resource in message.resource_metrics:
        for scope in resource.scope_metrics:
            yield from scope.metrics


def words(attributes: Any) -> frozenset[tuple[str, Any]]:
    return frozenset((each.key, getattr(each.value, each.value.WhichOneof("value"))) for each in attributes)


def _points(metric: Any) -> Any:
    return getattr(metric, metric.WhichOneof("data")).data_points
