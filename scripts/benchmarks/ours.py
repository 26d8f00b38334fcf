"""The product under measure, through what everybody can use: `proxyfleet serve`, its environment, and its API."""

from __future__ import annotations

import importlib.metadata
import itertools
import json
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import requests

from actors.bus.client import BusClient
from actors.bus.messages.supervision import DescribeProgram, Program
from actors.compiled import runs_compiled
from benchmarks.peers import GIGABYTE, Key, Speaks, self_signed
from benchmarks.processes import BenchError, Child, accepts, free_port, tree, wait_until
from benchmarks.report import OURS, PURE
from config.files.paths import RunDir

STORED_START_SECONDS = 120.0
"""How long a start may take that finds many proxies in the store, on a machine that does other things as well."""

PROGRAM = (str(Path(sys.executable).parent / "proxyfleet"),)

_NUMBERS = itertools.count(1)

PASSWORD = "benchmark-on-loopback"
"""Of the administrator."""


class Product:
    """One running installation, signed in as its administrator."""

    def __init__(
        self,
        folder: Path,
        environment: Mapping[str, str] | None = None,
        program: Sequence[str] = PROGRAM,
        name: str = OURS,
    ) -> None:
        """`environment` are settings beside those that every benchmark has. One of the name `PURE` is run by the
        checkout's sources, whatever runs this benchmark."""
        self.name = name
        self.port = free_port()
        self._given = dict(environment or {})
        self._folder = folder
        command = [*program, "serve", "--data-dir", str(folder / "data"), "--run-dir", str(folder / "run")]
        began = time.monotonic()
        self._child = Child("proxyfleet", command, folder, environment=self._environment())
        self._http = requests.Session()
        self._http.trust_env = False
        try:
            wait_until(self._healthy, "proxyfleet is healthy", STORED_START_SECONDS)
            self.ready_after = time.monotonic() - began
            """Seconds from the start of its process until it reports that it is healthy."""
            self._sign_in()
            self._check_version()
        except BaseException:
            self.end()
            raise

    def _environment(self) -> dict[str, str]:
        # modules are cached as they are where it is installed, else every start compiles them again
        left_out = ("PROXYFLEET_", "PYTHONDONTWRITEBYTECODE", *(("PYTHONPATH",) if self.name == PURE else ()))
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
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

    def _check_version(self) -> None:
        expected = self.name != PURE and runs_compiled()
        if self.call("GET", "/version")["compiled"] != expected:
            raise BenchError(f"{self.name} runs {'pure' if expected else 'compiled'} modules")

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

    def create(
        self, name: str, protocol: str = "http", timeout: int = 3600, workers: int = 1, key: Key = "ecdsa"
    ) -> tuple[str, int]:
        """A new proxy that takes as many connections as the benchmark opens: its id and port.

        `timeout` is how many seconds its tunnels may be idle, `key` the kind of its certificate for `https`.
        """
        port = free_port()
        settings = {"max_connections": 50_000, "timeout": timeout}
        about = {"name": name, "port": port, "protocol": protocol, "workers": workers}
        body: dict[str, Any] = {**about, "settings": settings}
        if protocol == "https":
            certificate = str(self_signed(self._folder, key))
            body["tls"] = {"cert_file": certificate, "key_file": certificate}
        return self.call("POST", "/proxies", body)["proxy"]["id"], port

    def forwarding_pid(self, proxy_id: str) -> int:
        """The process that carries the bytes of this proxy, once it runs."""
        return self.forwarding_pids(proxy_id)[0]

    def forwarding_pids(self, proxy_id: str, workers: int = 1) -> list[int]:
        """Those of all its workers, once they run."""
        found: list[int] = []

        def run() -> bool:
            runtime = self.call("GET", f"/proxies/{proxy_id}")["proxy"]["runtime"]
            found[:] = [each["pid"] for each in runtime["workers"] if each["state"] == "running" and each["pid"]]
            return runtime["state"] == "running" and len(found) == workers

        wait_until(run, f"proxy {proxy_id} runs", STORED_START_SECONDS)
        return found

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

    def actors(self) -> dict[str, int]:
        """The supervisor and the actors that are there beside those of proxies, as the log has them: pids by name."""
        named = re.findall(r" ([a-z]+) runs \(pid ([0-9]+)\)", self._child.output.read_text())
        return {"supervisor": self.pid, **{name: int(pid) for name, pid in named}}

    def version(self) -> str:
        """That of the distribution which is installed, and which kind of modules it runs."""
        kind = "compiled" if self.name != PURE and runs_compiled() else "pure"
        return f"{importlib.metadata.version('proxyfleet')} ({kind})"

    def end(self) -> None:
        """Stop it in order."""
        self._http.close()
        self._child.end()


class OurProxy:
    """One proxy of a running product, measured as the peers are. `protocol` is http, https or socks5."""

    keeps_alive = True
    carries = GIGABYTE

    def __init__(
        self, product: Product, protocol: str = "http", timeout: int = 3600, workers: int = 1, key: Key = "ecdsa"
    ) -> None:
        self.speaks: Speaks = "socks5" if protocol == "socks5" else "http"
        self.tls = protocol == "https"
        self.name = product.name
        self._product = product
        self.id, self.port = product.create(f"benchmark-{next(_NUMBERS)}", protocol, timeout, workers, key)
        self._pids = product.forwarding_pids(self.id, workers)

    def forwarding(self) -> list[int]:
        """Its workers alone."""
        return self._pids

    def everything(self) -> list[int]:
        """With the supervisor, the API, the log indexer, the metrics collector and the webhook sender."""
        return self._product.processes()

    def version(self) -> str:
        """The product's."""
        return self._product.version()

    def end(self) -> None:
        """Delete it."""
        self._product.call("DELETE", f"/proxies/{self.id}")
