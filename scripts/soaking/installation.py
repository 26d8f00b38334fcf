"""The product under soak: TLS at the API, a small disk of its own for the data, a configuration that can be reread."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import warnings
from pathlib import Path
from typing import Any

import psutil
import urllib3

from tests.kit.certificates import make_pair
from tests.kit.product import Product
from tests.kit.wait import wait_until

DISK = "600m"
"""Room for the records of twenty minutes, and little enough to be filled at once."""

_CONFIG = """
[server]
drain_timeout = {drain}
[server.tls]
enabled = true
cert_file = "{cert}"
key_file = "{key}"
[logging]
format = "json"
"""


class Installation(Product):
    """`disk` is true if the data are on a disk of their own, which only root can have."""

    def __init__(self) -> None:
        super().__init__(env={"PROXYFLEET_WEBHOOKS__ALLOW_PRIVATE": "true"}, config="")
        self.cert, self.key = make_pair(self.directory)
        self.base_url = self.base_url.replace("http:", "https:")
        self.session.verify = False
        warnings.simplefilter("ignore", urllib3.exceptions.InsecureRequestWarning)
        self._drain = 2
        self._ballast = self.data_dir / "ballast"
        self.data_dir.mkdir(mode=0o700)
        mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK},mode=0700", "tmpfs", str(self.data_dir)]
        self.disk = os.geteuid() == 0 and subprocess.run(mount, capture_output=True).returncode == 0

    def command(self) -> list[str]:
        self._config = _CONFIG.format(drain=self._drain, cert=self.cert, key=self.key)
        return super().command()

    def reload(self, good: bool = True) -> None:
        """Another configuration, good or bad, and SIGHUP."""
        self._drain = 5 - self._drain
        self.command()
        if not good:
            (self.directory / "config.toml").write_text("[server]\ndrain_timeout = 'long'\n")
        os.kill(self.pid, signal.SIGHUP)

    def fill_disk(self) -> None:
        """Leave not a byte free."""
        with self._ballast.open("wb") as file:
            try:
                while True:
                    file.write(b"\0" * (1 << 20))
                    file.flush()
            except OSError:
                return  # it is full

    def empty_disk(self) -> None:
        """There is room again."""
        self._ballast.unlink(missing_ok=True)

    def discard(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.stop(60)
        if self.disk:
            subprocess.run(["umount", "--lazy", str(self.data_dir)], capture_output=True)
            self.disk = False
        super().discard()

    # --- state ---

    def by_kind(self) -> dict[str, list[psutil.Process]]:
        """The living processes of the product by kind: `supervisor`, `zygote`, `api`, …, `forwarding`."""
        found: dict[str, list[psutil.Process]] = {}
        for process in [psutil.Process(self.pid), *self.processes()]:
            try:
                if process.status() != psutil.STATUS_ZOMBIE:
                    found.setdefault(self.kind(process), []).append(process)
            except psutil.NoSuchProcess:
                continue  # it ended meanwhile
        return found

    def kind(self, process: psutil.Process) -> str:
        """Of one process."""
        if process.pid == self.pid:
            return "supervisor"
        name = process.name()
        return "forwarding" if name.startswith("fwd-") else name

    def forwarding_name(self, proxy: dict[str, Any]) -> str:
        """The process name of a proxy's actor."""
        return f"fwd-{proxy['id'][-8:]}"

    def everything_runs(self) -> bool:
        """True if all active proxies and all other actors run."""
        try:
            proxies = self.data("GET", "/proxies?per_page=100&status=active")["proxies"]
            health = self.data("GET", "/health")["status"]
        except (AssertionError, OSError):
            return False
        kinds = self.by_kind().keys() >= {"zygote", "api", "tls", "metrics", "logs", "webhooks", "resolver", "pools"}
        runtimes = [proxy["runtime"] for proxy in proxies]
        return (
            kinds
            and health in ("healthy", "degraded")
            and all(each["state"] in ("running", "degraded", "sleeping") for each in runtimes)
            and not any(problem["reason"] == "process" for each in runtimes for problem in each["problems"])
        )

    def wait_whole(self, seconds: float) -> float:
        """Return when everything runs; how long that took."""
        began = time.monotonic()
        wait_until(self.everything_runs, "everything runs", seconds, 0.2)
        return time.monotonic() - began

    def lines(self) -> list[dict[str, Any]]:
        """The log, one entry a line; a line that is no JSON (the greeting) has the level `text`."""
        found = []
        for line in self.log.splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                entry = {"level": "text", "message": line}
            found.append(entry if isinstance(entry, dict) else {"level": "text", "message": line})
        return found

    def files(self) -> tuple[set[Path], set[Path]]:
        """The files in the data directory and in the run directory."""
        return set(self.data_dir.rglob("*")), set(self.run_dir.rglob("*"))
