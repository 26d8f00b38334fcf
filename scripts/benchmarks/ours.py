"""The product under measure, through what everybody can use: `proxyfleet serve`, its environment, and its API."""

from __future__ import annotations

import importlib.metadata
import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import requests

from actors.bus.client import BusClient
from actors.bus.messages.supervision import DescribeProgram, Program
from benchmarks.peers import GIGABYTE, Speaks, self_signed
from benchmarks.processes import BenchError, Child, accepts, free_port, tree, wait_until
from benchmarks.report import OURS
from config.files.paths import RunDir

STORED_START_SECONDS = 120.0
"""How long a start may take that finds many proxies in the store, on a machine that does other things as well."""

PASSWORD = "benchmark-on-loopback"
"""Of the administrator."""


class Product:
    """One running installation, signed in as its administrator."""

    def __init__(self, folder: Path, environment: Mapping[str, str] | None = None) -> None:
        """`environment` are settings beside those that every benchmark has."""
        self.port = free_port()
        self._given = dict(environment or {})
        self._folder = folder
        program = Path(sys.executable).parent / "proxyfleet"
        command = [str(program), "serve", "--data-dir", str(folder / "data"), "--run-dir", str(folder / "run")]
        began = time.monotonic()
        self._child = Child("proxyfleet", command, folder, environment=self._environment())
        self._http = requests.Session()
        self._http.trust_env = False
        try:
            wait_until(self._healthy, "proxyfleet is healthy", STORED_START_SECONDS)
            self.ready_after = time.monotonic() - began
            """Seconds from the start of its process until it reports that it is healthy."""
            self._sign_in()
        except BaseException:
            self.end()
            raise

    def _environment(self) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PROXYFLEET_")}
        return inherited | {
            "PROXYFLEET_SERVER__PORT": str(self.port),
            "PROXYFLEET_ADMIN_PASSWORD": PASSWORD,
            "PROXYFLEET_PROXY__EGRESS_ALLOW": json.dumps(["127.0.0.0/8", "::1"]),
            "PROXYFLEET_SECURITY__RATE_LIMITING__ENABLED": "false",
            **self._given,
        }

    def _healthy(self) -> bool:
        if self._child.process.poll() is not None:
            raise BenchError(f"proxyfleet ended: {self._child.output.read_text()[-2000:]}")
        try:
            return accepts(self.port) and self._http.get(f"http://127.0.0.1:{self.port}/health", timeout=5).ok
        except requests.Timeout:  # the socket is there before the API, which may have much to read
            return False

    def _sign_in(self) -> None:
        response = self.call("POST", "/auth/login", {"username": "admin", "password": PASSWORD})
        self._http.headers["Authorization"] = f"Bearer {response['access_token']}"

    def session(self) -> requests.Session:
        """Another client of the API, signed in as the first one, for a thread of its own."""
        made = requests.Session()
        made.trust_env = False
        made.headers.update(self._http.headers)
        return made

    def call(
        self, method: str, path: str, body: dict[str, Any] | None = None, session: requests.Session | None = None
    ) -> Any:
        """The `data` of the response. Raises `BenchError` unless it is a success."""
        url = f"http://127.0.0.1:{self.port}/api/v1{path}"
        response = (session or self._http).request(method, url, json=body, timeout=30)
        if not response.ok:
            raise BenchError(f"{method} {path}: {response.status_code} {response.text[:500]}")
        return response.json()["data"]

    def scrape(self, token: str) -> str:
        """What Prometheus gets."""
        headers = {"Authorization": f"Bearer {token}"}
        return requests.get(f"http://127.0.0.1:{self.port}/metrics", headers=headers, timeout=30).text

    def create(self, name: str, protocol: str = "http", timeout: int = 3600) -> tuple[str, int]:
        """A new proxy that takes as many connections as the benchmark opens: its id and port.

        `timeout` is how many seconds its tunnels may be idle.
        """
        port = free_port()
        settings = {"max_connections": 50_000, "timeout": timeout}
        body: dict[str, Any] = {"name": name, "port": port, "protocol": protocol, "settings": settings}
        if protocol == "https":
            certificate = str(self_signed(self._folder))
            body["tls"] = {"cert_file": certificate, "key_file": certificate}
        return self.call("POST", "/proxies", body)["proxy"]["id"], port

    def forwarding_pid(self, proxy_id: str) -> int:
        """The process that carries the bytes of this proxy, once it runs."""
        found: list[int] = []

        def runs() -> bool:
            runtime = self.call("GET", f"/proxies/{proxy_id}")["proxy"]["runtime"]
            found[:] = [runtime["pid"]] if runtime["state"] == "running" and runtime["pid"] else []
            return bool(found)

        wait_until(runs, f"proxy {proxy_id} runs")
        return found[0]

    @property
    def pid(self) -> int:
        """The supervisor."""
        return self._child.process.pid

    def started_at(self) -> float | None:
        """When the supervisor's program was started, if it says so; it doesn't while it is just upgraded."""
        with BusClient(self.run_dir) as asking:
            reply = asking.ask(DescribeProgram(), timeout=1.0)
        return reply.started_at if isinstance(reply, Program) and reply.ready else None

    @property
    def run_dir(self) -> RunDir:
        """Where its sockets are."""
        return RunDir(self._folder / "run")

    def processes(self) -> list[int]:
        """The supervisor and all that descends from it."""
        return tree(self._child.process.pid)

    def version(self) -> str:
        """That of the distribution which is installed."""
        return importlib.metadata.version("proxyfleet")

    def end(self) -> None:
        """Stop it in order."""
        self._http.close()
        self._child.end()


class OurProxy:
    """One proxy of a running product, measured as the peers are. `protocol` is http, https or socks5."""

    name = OURS
    keeps_alive = True
    carries = GIGABYTE

    def __init__(self, product: Product, protocol: str = "http", timeout: int = 3600) -> None:
        self.speaks: Speaks = "socks5" if protocol == "socks5" else "http"
        self.tls = protocol == "https"
        self._product = product
        self.id, self.port = product.create("benchmark", protocol, timeout)
        self._pid = product.forwarding_pid(self.id)

    def forwarding(self) -> list[int]:
        """The forwarding actor alone."""
        return [self._pid]

    def everything(self) -> list[int]:
        """With the supervisor, the API, the log indexer, the metrics collector and the webhook sender."""
        return self._product.processes()

    def version(self) -> str:
        """The product's."""
        return self._product.version()

    def end(self) -> None:
        """Delete it."""
        self._product.call("DELETE", f"/proxies/{self.id}")
