"""Real products as nodes of one fleet, on a PostgreSQL server of their own that can be stopped.

with Nodes() as nodes:
    nodes.init(nodes.product())
    nodes.server.stop()
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from types import MappingProxyType
from typing import Any, Self, TypeVar

from tests.kit.ports import free_port
from tests.kit.postgresql_server import Server
from tests.kit.product import Product
from tests.kit.wait import wait_until
from tests.product.cli.shell import Shell

P = TypeVar("P", bound=Product)


class Nodes:
    """The database of a fleet, and the products that are or become its nodes; all end with the block."""

    def __init__(self, server: Server | None = None) -> None:
        """`server` ends with the block, too."""
        self._stack = ExitStack()
        self.server = server or Server()
        self._stack.callback(self._remove_server)
        self.dsn = self.server.dsn()
        self.addresses: dict[Product, str] = {}
        """Where products listen for other nodes."""

    def _remove_server(self) -> None:
        """The one that is there then: a failover puts another one in its place."""
        self.server.remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()

    def product(self, **settings: str) -> Product:
        """One that runs and stands alone. `settings` are variables without their prefix."""
        return self.of(Product, settings)

    def of(
        self, make: Callable[..., P], settings: Mapping[str, str] = MappingProxyType({}), host: str = "127.0.0.1"
    ) -> P:
        """As `product`, one that this makes; other nodes reach it at this host."""
        env = {f"PROXYFLEET_{name}": value for name, value in settings.items()}
        address = f"{host}:{free_port(host)}"
        made = self._stack.enter_context(make(env={"PROXYFLEET_CLUSTER__LISTEN": address, **env}))
        self.addresses[made] = address
        return made

    def init(self, product: Product, name: str = "first") -> Any:
        """Make it the first node: what the command says."""
        status, done = command(product, "init", "--dsn", self.dsn, "--name", name, "--address", self.addresses[product])
        assert status == 0, done
        return json.loads(done)

    def join(self, product: Product, by: Product, name: str, role: str = "full") -> None:
        """Make it a node of the fleet that another one is of."""
        line = by.data("POST", "/nodes/tokens", {"name": name, "role": role})["line"]
        status, done = command(product, "join", line, "--address", self.addresses[product])
        assert status == 0, done
        product.forget_token()

    @contextmanager
    def outage(self, how: signal.Signals) -> Iterator[None]:
        """For the time of the block the database is stopped (SIGSTOP: it hangs) or ended by this signal."""
        if how != signal.SIGSTOP:
            self.server.stop(how)
            try:
                yield
            finally:
                self.server.start()
            return
        processes = [self.server.process.pid, *self.server.backends()]
        for pid in processes:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in processes:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)


def command(product: Product, *words: str) -> tuple[int, str]:
    """`proxyfleet cluster …` on the machine of this product, as JSON: its exit status, and what it printed."""
    places = ["--data-dir", str(product.data_dir)]
    if words[0] in ("init", "join", "leave", "rekey"):
        places += ["--run-dir", str(product.run_dir)]
    line = [*product.line, "cluster", *words, *places, "-o", "json"]
    locks = ("leave", "rekey") if product.processes() else ("leave", "rekey", "init", "join")
    if words[0] not in locks and type(product).line is Product.line:  # in this process, which saves the start of one
        ran = Shell(product.directory, **product.environment())(*line[len(product.line) :])
        return ran.status, ran.out or ran.err
    done = subprocess.run(line, env=product.environment(), capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout or done.stderr


def states(product: Product) -> dict[str, str]:
    """The state of each node by its name, as this one sees them."""
    return {each["name"]: each["state"] for each in product.data("GET", "/nodes")["nodes"]}


def current(product: Product) -> dict[str, Any]:
    """Wait until it is connected and has all commits: what `cluster status` says then."""
    return json.loads(wait_until(lambda: _ok(command(product, "status")), "the node is connected and current"))  # type: ignore[no-any-return]


def _ok(done: tuple[int, str]) -> str | None:
    return done[1] if done[0] == 0 and json.loads(done[1])["behind_seconds"] == 0 else None
