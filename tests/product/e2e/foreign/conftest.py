"""One certificate and one nginx for a worker; a new proxy of any protocol for each test."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from websockets.sync.server import ServerConnection, serve

from tests.kit.certificates import make_pair
from tests.kit.product import Product
from tests.product.e2e.foreign.entrances import MEGABYTES, Entrance, MakeEntrance
from tests.product.e2e.foreign.programs import Site, nginx


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The files of a certificate for localhost and 127.0.0.1, which signed itself, and of its key."""
    return make_pair(tmp_path_factory.mktemp("pair"))


@pytest.fixture(scope="session")
def site(pair: tuple[str, str]) -> Iterator[Site]:
    with nginx(*pair) as running:
        (running.files / "hello").write_text("hello")
        (running.files / "lines.txt").write_text("a line\n" * 10_000)
        (running.files / "two-megabytes").write_bytes(MEGABYTES)
        yield running


@pytest.fixture
def entrance(product: Product, pair: tuple[str, str]) -> Iterator[MakeEntrance]:
    """`entrance(scheme, **fields)`: a new proxy for clients that speak this scheme of curl's `-x`."""
    made: list[str] = []

    def make(scheme: str, **fields: Any) -> Entrance:
        protocol = {"socks4a": "socks4", "socks5h": "socks5"}.get(scheme, scheme)
        tls = {"tls": {"cert_file": pair[0], "key_file": pair[1]}} if protocol == "https" else {}
        detail = product.proxy(protocol=protocol, **tls, **fields)
        made.append(detail["id"])
        return Entrance(product, detail, scheme, pair[0])

    yield make
    for identifier in made:
        product.api("DELETE", f"/proxies/{identifier}")


def _echo(connection: ServerConnection) -> None:
    for message in connection:
        connection.send(message)


@pytest.fixture(scope="session")
def echoes(pair: tuple[str, str]) -> Iterator[dict[str, str]]:
    """The URLs of a server of `websockets` that sends back what it is sent, by scheme."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*pair)
    servers = {"ws": serve(_echo, "127.0.0.1", 0), "wss": serve(_echo, "127.0.0.1", 0, ssl=context)}
    threads = [threading.Thread(target=server.serve_forever) for server in servers.values()]
    for thread in threads:
        thread.start()
    yield {scheme: f"{scheme}://127.0.0.1:{server.socket.getsockname()[1]}/" for scheme, server in servers.items()}
    for server in servers.values():
        server.shutdown()
    for thread in threads:
        thread.join(10)
