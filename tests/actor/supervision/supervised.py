"""A supervisor with actors of the test's own."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any, Self

import psutil

from actors.bus.codec import Envelope, decode, encode
from actors.bus.messages.common import SUPERVISOR, Done
from actors.bus.messages.specs import ProxySpec
from actors.bus.messages.supervision import (
    ApplyProxies,
    ListenerReserved,
    QueryRuntime,
    ReplaceProxies,
    ReserveListener,
    Runtime,
    RuntimeReport,
)
from tests.kit.folders import FOLDERS
from tests.kit.ports import free_port
from tests.kit.wait import wait_until

OTHERS = 6
"""The zygote, and the actors that always run."""
BREATH = 0.005
"""Seconds from one call of a `Caller` to the next: without it, it takes a core of the machine for itself."""


class Supervised:
    """The supervisor's process. Its log is in `log`."""

    def __init__(self, drain: float = 5.0, **entries: str) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="pf-", dir=FOLDERS))
        self.port = free_port()
        self._drain = drain
        self._entries = entries
        self.process = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        """Start it (again)."""
        arguments = [str(self.directory), str(self.port), str(self._drain), json.dumps(self._entries)]
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.kit.standin_actors", *arguments], stdout=log, stderr=log
            )
        return self.process

    @property
    def log(self) -> str:
        return (self.directory / "log").read_text()

    def ask(self, message: Any, to: str = SUPERVISOR) -> Any:
        """The reply to `message`, sent on the bus by the stand-in of the API."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as connection:
            connection.sendall(json.dumps([to, encode(Envelope(message)).hex()]).encode() + b"\n")
            return decode(bytes.fromhex(connection.makefile("r").readline())).message

    def put(self, spec: ProxySpec) -> None:
        """As the API creates or changes a proxy."""
        if spec.active:
            reserved = self.ask(ReserveListener(spec.id, spec.host, spec.port))
            assert isinstance(reserved, ListenerReserved), reserved
        assert self.ask(ApplyProxies((spec,))) == Done()

    def fleet(self) -> RuntimeReport:
        fleet = self.ask(QueryRuntime(()))
        assert isinstance(fleet, RuntimeReport)
        return fleet

    def asleep_since(self, step: int) -> RuntimeReport:
        """As the API asks again and again."""
        fleet = self.ask(QueryRuntime((), stopped=False, asleep_since=step))
        assert isinstance(fleet, RuntimeReport)
        return fleet

    def runtime(self, proxy_id: str) -> Runtime:
        return self.fleet().proxies[proxy_id]

    def running(self, proxy_id: str, but_not: int | None = None) -> Runtime:
        """The runtime of a proxy once it runs, in another process than `but_not`."""

        def is_so() -> Runtime | None:
            runtime = self.runtime(proxy_id)
            return runtime if runtime.state == "running" and runtime.pid != but_not else None

        return wait_until(is_so, f"{proxy_id} runs")

    def wait_ready(self) -> None:
        wait_until(lambda: "ready" in self.log or self.process.poll() is not None, "the supervisor is ready", 120)
        assert self.process.poll() is None, self.log

    def family(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def zygote(self) -> psutil.Process:
        return next(each for each in self.family() if each.name() == "zygote")

    def empty(self) -> None:
        """It has no proxies and no objects, their processes have ended, and its log says only that it is ready."""
        assert self.ask(ReplaceProxies((), ())) == Done()
        wait_until(lambda: len(self.family()) == OTHERS, "only those are left that always run")
        (self.directory / "log").write_text("ready\n")

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def discard(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)


def greeting(port: int) -> tuple[int, int, int]:
    """Pid, instance and revision that an `Echo` writes to a new connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        pid, instance, revision = connection.makefile("r").readline().split()
        return int(pid), int(instance), int(revision)


class Caller:
    """Connects to a port again and again in a thread; a refused or dropped connection is a failure."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.pids: list[int] = []
        self.failures: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._call, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_what: object) -> None:
        self._stop.set()
        self._thread.join(120)

    def _call(self) -> None:
        while not self._stop.wait(BREATH):
            try:
                self.pids.append(greeting(self.port)[0])
            except ConnectionRefusedError as error:
                self.failures.append(f"refused: {error}")
            except (OSError, ValueError) as error:
                if not isinstance(error, ConnectionResetError | ValueError):
                    self.failures.append(repr(error))


def refuses(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except ConnectionRefusedError:
        return True
    return False
