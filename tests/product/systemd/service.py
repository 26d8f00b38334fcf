"""What an operator does with the service on a booted machine: sign in, make proxies, knock at them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import requests

from tests.kit.http_origins import Origin, serving
from tests.kit.steady_load import Knocking, by_tunnel, of_api, through_proxy
from tests.kit.wait import wait_until
from tests.product.systemd.machine import Machine

API = 8080
PASSWORD = "correct horse battery staple"
SERVICE = "proxyfleet.service"
DRAIN = 300
"""Seconds that connections may take to finish."""
CONFIG = f"""\
[server]
drain_timeout = {DRAIN}

[proxy]
egress_allow = ["127.0.0.0/8"]

[security.rate_limiting]
enabled = false
"""
PAUSE = 0.1
"""Seconds between questions to systemd, each of which is a process."""


class ServiceOn:
    """The service on a machine, with the password of its administrator."""

    def __init__(self, machine: Machine, password: str = PASSWORD) -> None:
        self.machine = machine
        self._password = password

    def start(self) -> None:
        self.machine.systemctl("start", SERVICE)

    @property
    def pid(self) -> int:
        """The supervisor's, as the machine counts."""
        return int(self.machine.show(SERVICE, "MainPID"))

    @property
    def state(self) -> str:
        return self.machine.show(SERVICE, "ActiveState")

    @property
    def stored(self) -> int:
        """Descriptors in the manager's store."""
        return int(self.machine.show(SERVICE, "NFileDescriptorStore"))

    def wait_for_stored(self, count: int) -> None:
        """Return when the manager's store has so many descriptors."""
        wait_until(lambda: self.stored == count, f"{count} listeners are stored", pause=PAUSE)

    def wait_for_another(self, than: int) -> None:
        """Return when the service runs again, as another process than this one."""
        wait_until(lambda: self.pid not in (0, than) and self.state == "active", "the service is back", pause=PAUSE)

    @contextlib.contextmanager
    def reloaded(self, text: str) -> Iterator[None]:
        """The configuration is this one meanwhile; it is taken over a moment later."""
        self.machine.write("/etc/proxyfleet/config.toml", text)
        self.machine.systemctl("reload", SERVICE)
        yield
        self.machine.write("/etc/proxyfleet/config.toml", CONFIG)
        self.machine.systemctl("reload", SERVICE)

    def api(self, method: str, path: str, body: Any = None) -> Any:
        """`data` of a call as the administrator, which must succeed."""
        with self.machine.network():
            response = requests.request(
                method, f"http://127.0.0.1:{API}/api/v1{path}", json=body, auth=("admin", self._password), timeout=120
            )
        assert response.ok, f"{method} {path}: {response.status_code} {response.text}"
        return response.json()["data"]

    def health(self) -> dict[str, Any]:
        health: dict[str, Any] = self.api("GET", "/health")
        return health

    def proxy(self, name: str, port: int | str, **fields: Any) -> dict[str, Any]:
        """A new proxy that runs."""
        made = self.api("POST", "/proxies", {"name": name, "port": port, "protocol": "http", **fields})["proxy"]
        return wait_until(lambda: self.running(made["id"]), f"{name} runs")

    def sleeper(self, name: str, port: int) -> dict[str, Any]:
        """A new proxy that sleeps."""
        made = self.proxy(name, port, sleep_after=1)
        wait_until(lambda: self.sleeps(made["id"]), f"{name} sleeps")
        return made

    def delete_proxies(self) -> None:
        for proxy in self.api("GET", "/proxies")["proxies"]:
            self.api("DELETE", f"/proxies/{proxy['id']}")

    def runtime(self, proxy_id: str) -> dict[str, Any]:
        """What runs of it."""
        proxy: dict[str, Any] = self.api("GET", f"/proxies/{proxy_id}")["proxy"]
        runtime: dict[str, Any] = proxy["runtime"]
        return runtime

    def sleeps(self, proxy_id: str) -> bool:
        return bool(self.runtime(proxy_id)["state"] == "sleeping")

    def running(self, proxy_id: str) -> dict[str, Any] | None:
        proxy: dict[str, Any] = self.api("GET", f"/proxies/{proxy_id}")["proxy"]
        return proxy if proxy["runtime"]["state"] == "running" else None

    def fetch(self, origin: Origin, port: int) -> int:
        """The status of a request through the proxy at this port."""
        proxies = {"http": f"http://127.0.0.1:{port}"}
        with self.machine.network():
            return requests.get(origin.url("/hello"), proxies=proxies, timeout=120).status_code

    @contextlib.contextmanager
    def origin(self) -> Iterator[Origin]:
        """An origin in the machine's network."""
        with self.machine.network():
            server = Origin()
        with serving(server):
            yield server

    def knocking(self, origin: Origin, port: int) -> Knocking:
        """New connections to a proxy of protocol `http`, tunnels through it, and calls of the API."""
        target = origin.url("/hello").split("/")[2]
        return Knocking(
            through_proxy(port, origin.url("/hello")), by_tunnel(port, target), of_api(API), inside=self.machine.network
        )
