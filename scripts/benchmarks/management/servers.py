"""The two servers under measure, each with the same proxies configured: the product, and the yardstick."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

from benchmarks.ours import PASSWORD, Product
from benchmarks.processes import BenchError, Child, Missing, free_port, tree
from benchmarks.report import OURS

YARDSTICK = "fastapi"
DISTRIBUTIONS = ("fastapi", "uvicorn[standard]", "bcrypt")
FIRST_PORT = 1024


class Server(Protocol):
    """An API under measure. `ids` are those of the proxies that are configured; `key` is an API key."""

    name: str
    port: int
    key: str
    ids: list[str]

    def everything(self) -> list[int]:
        """All processes that it consists of."""

    def version(self) -> str:
        """Its version."""

    def end(self) -> None:
        """Stop it."""


class OurApi:
    """The product with `count` inactive proxies, which were in its store before it started."""

    name = OURS

    def __init__(self, folder: Path, count: int) -> None:
        self.ids = configure(folder / "data", count)
        self._product = Product(folder)
        self.port = self._product.port
        try:
            self.key: str = self._product.call("POST", "/api-keys", {"name": "benchmark"})["key"]
        except BenchError:
            self._product.end()
            raise

    def everything(self) -> list[int]:
        return self._product.processes()

    def version(self) -> str:
        return self._product.version()

    def end(self) -> None:
        self._product.end()


def configure(data: Path, count: int) -> list[str]:
    """Put so many inactive proxies into a new data directory; their ids."""
    ports = (FIRST_PORT + number % 60_000 for number in range(count))
    bodies = ({"name": f"configured-{number}", "port": port, "protocol": "http"} for number, port in enumerate(ports))
    return store_proxies(data, bodies, "inactive")


def store_proxies(data: Path, bodies: Iterable[dict[str, Any]], status: str) -> list[str]:
    """Put the proxies of these creates into a new data directory, by the product's own classes; their ids.

    Through the API it would take as many processes for a moment and as many rewritten files.
    """
    from api.store import open_store
    from api.store.storage import TABLE, GenerationStorage
    from config.files.paths import open_data_dir
    from config.model.proxies import ProxyCreate, new_record

    directory = open_data_dir(data)
    store = open_store(directory)
    revision = store.revision
    store.close()
    storage = GenerationStorage(directory.store / "proxies.json", create=False)
    entries = storage.read()[TABLE]
    for number, body in enumerate(bodies):
        record = new_record(ProxyCreate(**body), "prx_" + secrets.token_hex(8), time.time(), 30)
        stored = record.model_copy(update={"status": status}).model_dump(mode="json")
        entries[record.id] = {"revision": revision + 1 + number, "body": stored}
    storage.write({TABLE: entries})
    storage.close()
    return list(entries)


class Yardstick:
    """FastAPI under uvicorn, one worker, with its access log, out of the environment that `install` makes."""

    name = YARDSTICK

    def __init__(self, folder: Path, peers_dir: Path, count: int) -> None:
        python = _environment(peers_dir) / "bin" / "python"
        if not python.exists():
            raise Missing(f"{YARDSTICK} is not installed in {peers_dir} (scripts/bench --install installs it)")
        self.key, self.port = "pf_" + secrets.token_hex(20), free_port()
        self.ids = [f"prx_{number:016x}" for number in range(count)]
        self._python = str(python)
        where = ["--app-dir", str(Path(__file__).parent), "--host", "127.0.0.1", "--port", str(self.port)]
        command = [self._python, "-m", "uvicorn", "yardstick:app", *where]
        self._child = Child(YARDSTICK, command, folder, _variables(count, self.key))
        try:
            self._child.wait_for_port(self.port)
        except BenchError:
            self.end()
            raise

    def everything(self) -> list[int]:
        return tree(self._child.process.pid)

    def version(self) -> str:
        asked = "import fastapi, uvicorn; print(fastapi.__version__, 'under uvicorn', uvicorn.__version__)"
        return subprocess.run([self._python, "-c", asked], capture_output=True, text=True).stdout.strip()

    def end(self) -> None:
        self._child.end()


def _variables(count: int, key: str) -> dict[str, str]:
    from config.passwords import hash_password

    hashed = hash_password(PASSWORD)
    own = {"BENCH_PROXIES": str(count), "BENCH_KEY": key, "BENCH_PASSWORD_HASH": hashed}
    return {**os.environ, **own, "PYTHONDONTWRITEBYTECODE": "1"}


def _environment(peers_dir: Path) -> Path:
    """Not that of the other peers: mitmproxy wants older releases of what FastAPI needs."""
    return peers_dir / YARDSTICK


def install(peers_dir: Path) -> list[str]:
    """Make the yardstick's environment; the distributions that could not be installed."""
    folder = _environment(peers_dir)
    if not (folder / "bin" / "python").exists():
        made = subprocess.run([sys.executable, "-m", "venv", str(folder)], stdin=subprocess.DEVNULL)
        if made.returncode != 0:
            return list(DISTRIBUTIONS)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run([*pip, *DISTRIBUTIONS], stdin=subprocess.DEVNULL)
    return [] if done.returncode == 0 else list(DISTRIBUTIONS)
