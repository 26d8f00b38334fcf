"""The product under measure, through what everybody can use: `proxyfleet serve`, its environment, and its API."""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import requests

from actors.compiled import runs_compiled
from benchmarks.processes import BenchError
from benchmarks.programs import Speaks, self_signed
from config import VERSION
from tests.kit.ports import free_port
from tests.kit.product import Product as Installation
from tests.kit.wait import wait_until

OURS, PURE = "proxyfleet", "proxyfleet-pure"
"""The second is ours without compiled modules, beside a product that has them."""
_NUMBERS = itertools.count(1)


class Product(Installation):
    """One installation. With the name `PURE` it is run by the checkout's sources, whatever runs this benchmark."""

    def __init__(self, name: str = OURS, env: Mapping[str, str] | None = None) -> None:
        super().__init__(env)
        self.name = name
        self.compiled = name != PURE and runs_compiled()
        self.ready_after = 0.0
        """Seconds from the start of its process until it reported that it is healthy."""

    def run(self) -> Product:
        """Start it. Raises `BenchError` when it runs other modules than it should."""
        began = time.monotonic()
        try:
            self.start()
            self.ready_after = time.monotonic() - began
            if self.data("GET", "/version")["compiled"] != self.compiled:
                raise BenchError(f"{self.name} runs {'pure' if self.compiled else 'compiled'} modules")
        except BaseException:
            self.discard()
            raise
        return self

    def command(self) -> list[str]:
        python, *rest = super().command()
        return [python, "-P", *rest]  # of the current directory nothing is imported, which may be a checkout

    def environment(self) -> dict[str, str]:
        # modules are cached as they are where it is installed, else every start compiles them again
        left_out = {"PYTHONDONTWRITEBYTECODE", *(("PYTHONPATH",) if self.name == PURE else ())}
        return {name: value for name, value in super().environment().items() if name not in left_out}

    def everything(self) -> list[int]:
        """The supervisor and all that descends from it."""
        return [self.pid, *(each.pid for each in self.processes())]

    def create(self, **fields: Any) -> dict[str, Any]:
        """A new proxy for as many connections as the benchmark opens; it may not run yet."""
        body = {"name": f"bench-{next(_NUMBERS)}", "port": free_port(), "protocol": "http", **fields}
        made: dict[str, Any] = self.data("POST", "/proxies", body)["proxy"]
        return made

    def delete(self, proxy: dict[str, Any]) -> None:
        """One that was created."""
        self.data("DELETE", f"/proxies/{proxy['id']}")

    def workers(self, proxy: dict[str, Any]) -> list[int]:
        """The processes that carry the bytes of this proxy, once all of them run."""

        def run() -> list[int]:
            runtime = self.data("GET", f"/proxies/{proxy['id']}")["proxy"]["runtime"]
            pids = [each["pid"] for each in runtime["workers"] if each["state"] == "running" and each["pid"]]
            return pids if runtime["state"] == "running" and len(pids) == proxy["workers"] else []

        return wait_until(run, f"{proxy['name']} runs")

    def running(self) -> int:
        """How many proxies run."""
        found, page, more = 0, 1, True
        while more:
            data = self.data("GET", f"/proxies?per_page=100&page={page}")
            found += sum(proxy["runtime"]["state"] == "running" for proxy in data["proxies"])
            page, more = page + 1, data["pagination"]["has_next"]
        return found

    def client(self) -> requests.Session:
        """Another client of the API, for a thread of its own."""
        made = requests.Session()
        made.trust_env = False
        made.headers["Authorization"] = f"Bearer {self.token}"
        return made

    def version(self) -> str:
        """That of the distribution, and which kind of modules it runs."""
        return f"{VERSION} ({'compiled' if self.compiled else 'pure'})"

    def end(self) -> None:
        """Stop it and remove its folder."""
        self.discard()


class OurProxy:
    """One proxy of a running product, measured as the peers are. `protocol` is http, https or socks5."""

    def __init__(self, product: Product, folder: Path, protocol: str = "http", workers: int = 1, **more: Any) -> None:
        """`more` are settings of the proxy, and `key` what kind of key its certificate has."""
        self.speaks: Speaks = "socks5" if protocol == "socks5" else "http"
        self.tls = protocol == "https"
        self._product = product
        body: dict[str, Any] = {"protocol": protocol, "workers": workers}
        if self.tls:
            certificate = str(self_signed(folder, *more.pop("key", ())))
            body["tls"] = {"cert_file": certificate, "key_file": certificate}
        settings = {"max_connections": 50_000, "timeout": 3600, **more}
        self.proxy = product.create(**body, settings=settings)
        self.port = self.proxy["port"]
        self._pids = product.workers(self.proxy)

    def forwarding(self) -> list[int]:
        return self._pids

    def everything(self) -> list[int]:
        return self._product.everything()

    def version(self) -> str:
        return self._product.version()

    def end(self) -> None:
        self._product.delete(self.proxy)


def store_proxies(data: Path, bodies: Iterable[dict[str, Any]], status: str) -> list[str]:
    """Put the proxies of these creates into a new data directory, by the product's own classes; their ids.

    Through the API it would take as many processes for a moment.
    """
    from api.store import Write, open_store
    from config.files.paths import open_data_dir
    from config.model.proxies import ProxyCreate, new_record

    writes = []
    for body in bodies:
        record = new_record(ProxyCreate(**body), "prx_" + secrets.token_hex(8), time.time(), 30)
        stored = record.model_copy(update={"status": status}).model_dump(mode="json")
        writes.append(Write("proxies", record.id, stored, 0))
    store = open_store(open_data_dir(data))
    store.commit(writes)
    store.close()
    return [each.id for each in writes]
