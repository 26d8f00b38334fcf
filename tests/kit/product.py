"""The whole product as real processes, for end-to-end tests.

    with Product() as product:
        port = product.free_port()
        proxy = product.data("POST", "/proxies", {"name": "one", "port": port, "protocol": "http"})["proxy"]

It lies in a short directory of its own, listens at a port of its own, lets targets on loopback through the
egress guard and has no rate limits. What it prints is in `log`.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil
import requests

from tests.kit.folders import FOLDERS
from tests.kit.ports import free_port
from tests.kit.wait import wait_until

PASSWORD = "correct horse battery staple"
START_SECONDS = 300.0
"""A start costs two seconds of one core; there are machines on which twenty others want it, too."""
STOP_SECONDS = 120.0
STARTS = "PRODUCT_STARTS"
"""The environment variable that names a file for the starts of products; each adds a line, as `_note_start` has it.

Its name is none of a setting, since children that inherit it would refuse that.
"""


class Product:
    """One installation: started by `with` (or `start`), stopped at its end; its data is kept between starts."""

    def __init__(
        self,
        env: Mapping[str, str] | None = None,
        config: str | None = None,
        wrapper: Sequence[str] = (),
        directory: Path | None = None,
    ) -> None:
        """`wrapper` is a command that runs the product, as `nice` would; `directory` is an empty one for it."""
        self._wrapper = list(wrapper)
        self.directory = directory or Path(tempfile.mkdtemp(prefix="pf-", dir=FOLDERS))
        self.data_dir = self.directory / "data"
        self.run_dir = self.directory / "run"
        self.port = free_port()
        self.base_url = f"http://127.0.0.1:{self.port}"
        self.publish = f"tcp://127.0.0.1:{free_port()}"
        self.process: subprocess.Popen[bytes] | None = None
        self.session = requests.Session()
        self.session.trust_env = False
        self._log_file = self.directory / "log"
        self._config_file = self.directory / "config.toml"
        self.configured = config
        self._env = dict(env or {})
        self.password = self._env.get("PROXYFLEET_ADMIN_PASSWORD", PASSWORD)
        """The administrator's."""
        self._token: str | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.discard()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            sys.stderr.write(f"--- log of the product ---\n{self.log}")
        self.discard()

    # --- its life ---

    def start(self, wait: bool = True) -> None:
        """Start it and, if `wait`, return when `GET /health` responds with 200."""
        with self._log_file.open("ab") as log:
            self.process = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.environment()
            )
        begun = time.monotonic()
        try:
            if wait:
                self.wait_healthy()
        finally:
            _note_start(time.monotonic() - begun)

    @property
    def line(self) -> list[str]:
        """The program, before the words of a command."""
        return [sys.executable, "-m", "supervisor"]

    def command(self) -> list[str]:
        """How it is started."""
        command = [*self._wrapper, *self.line, "serve"]
        if self.configured is not None:
            self.configure(self.configured)
            command += ["--config", str(self._config_file)]
        return [*command, "--data-dir", str(self.data_dir), "--run-dir", str(self.run_dir), "--port", str(self.port)]

    def environment(self) -> dict[str, str]:
        """Its environment: ours without proxy variables and settings, plus what tests need."""
        clean = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("PROXYFLEET_") and not name.lower().endswith("_proxy") and name != "NOTIFY_SOCKET"
        }
        return {
            **clean,
            "PROXYFLEET_ADMIN_PASSWORD": PASSWORD,
            "PROXYFLEET_PROXY__EGRESS_ALLOW": '["127.0.0.0/8","::1"]',
            "PROXYFLEET_SECURITY__RATE_LIMITING__ENABLED": "false",
            "PROXYFLEET_METRICS__PUBLISH": self.publish,
            **self._env,
        }

    def configure(self, text: str) -> None:
        """Its configuration file, for the next start and for a reload."""
        self.configured = text
        self._config_file.write_text(text)

    def wait_healthy(self, seconds: float = START_SECONDS) -> None:
        """Return when `GET /health` responds with 200; raise `AssertionError` with the log when it doesn't in time."""
        try:
            wait_until(self._healthy_or_dead, "the product is healthy", seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log}") from None
        if self.process is not None and self.process.poll() is not None:
            raise AssertionError(f"the product ended with {self.process.returncode}\n{self.log}")

    def stop(self, seconds: float = STOP_SECONDS) -> int:
        """Ask it to end (SIGTERM) and return its exit status."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(seconds)

    def kill(self) -> None:
        """SIGKILL to the supervisor alone; the others have to notice by themselves."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def kill_all(self) -> None:
        """SIGKILL to every process of it at once, as a power cut would; none is left when it returns."""
        assert self.process is not None
        family = self.processes()
        for process in [psutil.Process(self.process.pid), *family]:
            _kill(process)
        self.process.wait()
        # they hold the locks and listen at the ports until they have ended
        wait_until(lambda: not any(map(_lives, family)), "all processes have ended", STOP_SECONDS)

    def discard(self) -> None:
        """End what still runs and remove its directory."""
        if self.process is not None and self.process.poll() is None:
            family = self.processes()
            self.process.terminate()
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()
            for process in family:
                _kill(process)
        self.session.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    # --- what can be seen of it ---

    @property
    def pid(self) -> int:
        """The supervisor's process id."""
        assert self.process is not None
        return self.process.pid

    @property
    def log(self) -> str:
        """All that it printed so far, over all its starts."""
        return self._log_file.read_text(errors="replace") if self._log_file.exists() else ""

    def forget_log(self) -> None:
        """`log` begins anew."""
        os.truncate(self._log_file, 0)

    def processes(self) -> list[psutil.Process]:
        """The processes below the supervisor that live now; each actor's `name()` is its name on the bus."""
        try:
            family = psutil.Process(self.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []
        return [process for process in family if process.is_running()]

    def lasting(self) -> list[psutil.Process]:
        """`processes` without those that check something for a moment and end, which have no name of their own."""
        return [process for process in self.processes() if _name(process) and not _name(process).startswith("python")]

    def actor(self, name: str) -> psutil.Process:
        """The process of an actor: `api`, `metrics`, `logs`, `webhooks`. (Of a proxy: ask for its `runtime.pid`.)"""
        return wait_until(lambda: next((p for p in self.processes() if _name(p) == name), None), f"actor {name} runs")

    def free_port(self) -> int:
        """A port for a proxy or an origin."""
        return free_port()

    # --- its interface ---

    @property
    def token(self) -> str:
        """An access token of the administrator; signed in at first use."""
        if self._token is None:
            response = self.session.post(
                f"{self.base_url}/api/v1/auth/login", json={"username": "admin", "password": self.password}, timeout=120
            )
            assert response.status_code == 200, response.text
            self._token = str(response.json()["data"]["access_token"])
        return self._token

    def forget_token(self) -> None:
        """The administrator signs in anew at the next use of `token`."""
        self._token = None

    def api(self, method: str, path: str, json: Any = None, timeout: float = 120.0, **more: Any) -> requests.Response:
        """One call as the administrator; `path` is below `/api/v1`. Returns the response, whatever its status."""
        headers = {"Authorization": f"Bearer {self.token}", **more.pop("headers", {})}
        url = f"{self.base_url}/api/v1{path}"
        return self.session.request(method, url, json=json, headers=headers, timeout=timeout, **more)

    def data(self, method: str, path: str, json: Any = None) -> Any:
        """`data` of one call that must succeed."""
        response = self.api(method, path, json)
        assert response.status_code in (200, 201), f"{method} {path}: {response.status_code} {response.text}"
        return response.json()["data"]

    def proxy(self, **fields: Any) -> dict[str, Any]:
        """Create a proxy (by default `http` at a free port) and return its detail once it runs."""
        body = {"name": f"proxy-{os.urandom(4).hex()}", "port": self.free_port(), "protocol": "http", **fields}
        made = self.data("POST", "/proxies", body)["proxy"]
        return wait_until(lambda: self._running(made["id"]), f"proxy {made['name']} runs")

    def _running(self, proxy_id: str) -> dict[str, Any] | None:
        proxy: dict[str, Any] = self.data("GET", f"/proxies/{proxy_id}")["proxy"]
        return proxy if proxy["runtime"]["state"] == "running" else None

    def _healthy_or_dead(self) -> bool:
        if self.process is None or self.process.poll() is not None:
            return True
        try:
            return self.session.get(f"{self.base_url}/health", timeout=5).status_code == 200
        except requests.RequestException:
            return False


def _note_start(seconds: float) -> None:
    """Add the test and the seconds until the product was healthy (0: no one waited) to the file of `STARTS`."""
    if file := os.environ.get(STARTS):
        test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
        with Path(file).open("a") as lines:
            lines.write(f"{test}\t{seconds:.1f}\n")


def _name(process: psutil.Process) -> str:
    with suppress(psutil.NoSuchProcess):
        return process.name()
    return ""


def _lives(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def _kill(process: psutil.Process) -> None:
    with suppress(psutil.NoSuchProcess):  # it ended by itself
        process.kill()
