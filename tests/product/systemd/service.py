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


class ServiceOn:
    """The service on a machine."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

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

    def api(self, method: str, path: str, body: Any = None) -> Any:
        """`data` of a call as the administrator, which must succeed."""
        with self.machine.network():
            response = requests.request(
                method, f"http://127.0.0.1:{API}/api/v1{path}", json=body, auth=("admin", PASSWORD), timeout=120
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

    def runtime(self, proxy_id: str) -> dict[str, Any]:
        """What runs of it."""
        proxy: dict[str, Any] = self.api("GET", f"/proxies/{proxy_id}")["proxy"]
        runtime: dict[str, Any] = proxy["runtime"]
        return runtime

    def running(self, proxy_id: str, other_than: int | None = None) -> dict[str, Any] | None:
        proxy: dict[str, Any] = self.api("GET", f"/proxies/{proxy_id}")["proxy"]
        runtime = proxy["runtime"]
        return proxy if runtime["state"] == "running" and runtime["pid"] != other_than else None

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
            through_proxy(port, origin.url("/hello")),
            by_tunnel(port, target),
            of_api(API),
            inside=self.machine.network,
        )
