"""The product under soak: TLS at the API, a small disk of its own for the data, a configuration that can be reread."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import warnings
from contextlib import suppress
from typing import Any

import psutil
import urllib3

from tests.kit.certificates import make_pair
from tests.kit.product import Product
from tests.kit.wait import wait_until

DISK = "600m"
"""Room for the records of twenty minutes, and little enough to be filled at once."""
ACTORS = {"api", "tls", "metrics", "logs", "webhooks", "resolver", "pools", "zygote"}


class Installation(Product):
    """`disk` is true if the data are on a disk of their own, which only root can have."""

    def __init__(self, name: str = "", **env: str) -> None:
        super().__init__(env={"PROXYFLEET_WEBHOOKS__ALLOW_PRIVATE": "true", **env})
        self.name = name
        self.cert, self.key = make_pair(self.directory)
        self.base_url = self.base_url.replace("http:", "https:")
        self.session.verify = False
        warnings.simplefilter("ignore", urllib3.exceptions.InsecureRequestWarning)
        self._drain = 2
        self._ballast = self.data_dir / "ballast"
        self.data_dir.mkdir(mode=0o700)
        mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK},mode=0700", "tmpfs", str(self.data_dir)]
        self.disk = os.geteuid() == 0 and subprocess.run(mount, capture_output=True).returncode == 0

    def start(self, wait: bool = True) -> None:
        self._configure(self._drain)
        super().start(wait)

    def _configure(self, drain: int | str) -> None:
        tls = f'[server.tls]\nenabled = true\ncert_file = "{self.cert}"\nkey_file = "{self.key}"\n'
        self.configure(f'[server]\ndrain_timeout = {drain}\n{tls}[logging]\nformat = "json"\n')

    def reload(self, good: bool) -> None:
        """Another configuration, good or bad, and SIGHUP."""
        if good:
            self._drain = 5 - self._drain
        self._configure(self._drain if good else "'long'")
        os.kill(self.pid, signal.SIGHUP)

    def fill_disk(self) -> None:
        """Leave not a byte free."""
        with suppress(OSError), self._ballast.open("wb") as file:  # until it is full
            while True:
                file.write(b"\0" * (1 << 20))
                file.flush()

    def empty_disk(self) -> None:
        """There is room again."""
        self._ballast.unlink(missing_ok=True)

    def discard(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.stop(60)
        if self.disk:
            subprocess.run(["umount", "--lazy", str(self.data_dir)], capture_output=True)
        super().discard()

    def proxies(self, query: str = "") -> list[dict[str, Any]]:
        """All that it matches, of every page."""
        found: list[dict[str, Any]] = []
        for page in itertools.count(1):
            data = self.data("GET", f"/proxies?per_page=100&page={page}&{query}")
            found += data["proxies"]
            if page >= data["pagination"]["pages"]:
                break
        return found

    def by_kind(self) -> dict[str, list[psutil.Process]]:
        """The living processes of the product by kind: `supervisor`, `zygote`, `api`, …, `forwarding`."""
        found: dict[str, list[psutil.Process]] = {}
        for process in [psutil.Process(self.pid), *self.processes()]:
            with suppress(psutil.NoSuchProcess):  # it ended meanwhile
                if process.status() != psutil.STATUS_ZOMBIE:
                    name = "supervisor" if process.pid == self.pid else process.name()
                    found.setdefault("forwarding" if name.startswith("fwd-") else name, []).append(process)
        return found

    def everything_runs(self) -> bool:
        """True if all active proxies and all other actors run."""
        try:
            proxies = self.proxies("status=active")
            health = self.data("GET", "/health")["status"]
        except (AssertionError, OSError):
            return False
        runtimes = [proxy["runtime"] for proxy in proxies]
        return (
            self.by_kind().keys() >= ACTORS
            and health in ("healthy", "degraded")
            and all(each["state"] in ("running", "degraded", "sleeping") for each in runtimes)
            and not any(problem["reason"] == "process" for each in runtimes for problem in each["problems"])
        )

    def wait_whole(self, seconds: float) -> None:
        """Return when everything runs."""
        wait_until(self.everything_runs, "everything runs", seconds, 0.2)

    def lines(self) -> list[dict[str, Any]]:
        """The log, one entry a line; a line that is no JSON (the greeting) has the level `text`."""
        found = []
        for line in self.log.splitlines():
            entry: Any = None
            with suppress(ValueError):
                entry = json.loads(line)
            found.append(entry if isinstance(entry, dict) else {"level": "text", "message": line})
        return found
