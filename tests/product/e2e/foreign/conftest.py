"""One certificate and one nginx for a worker; a new proxy of any protocol for each test."""

from __future__ import annotations

import asyncio
import base64
import ssl
import threading
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

import pytest
from websockets.asyncio.server import Server, ServerConnection, serve

from tests.kit.certificates import make_pair
from tests.kit.product import Product
from tests.product.e2e.foreign.entrances import MEGABYTES, Entrance, MakeEntrance
from tests.product.e2e.foreign.programs import Site, find, nginx, run

T = TypeVar("T")


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


async def _echo(connection: ServerConnection) -> None:
    async for message in connection:
        await connection.send(message)


@pytest.fixture(scope="session")
def echoes(pair: tuple[str, str]) -> Iterator[dict[str, str]]:
    """The URLs of a server of `websockets` that sends back what it is sent, by scheme."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*pair)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def start(tls: ssl.SSLContext | None) -> Server:
        return await serve(_echo, "127.0.0.1", 0, ssl=tls, max_size=None)

    async def end() -> None:
        for server in servers.values():
            server.close()
            await server.wait_closed()

    def run(work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, loop).result(30)

    servers = {"ws": run(start(None)), "wss": run(start(context))}
    yield {scheme: f"{scheme}://127.0.0.1:{_port(server)}/" for scheme, server in servers.items()}
    run(end())
    loop.call_soon_threadsafe(loop.stop)
    thread.join(120)
    loop.close()


def _port(server: Server) -> int:
    return int(next(iter(server.sockets)).getsockname()[1])


@pytest.fixture(scope="session")
def trust(pair: tuple[str, str]) -> str:
    """The flag that makes Chromium trust our certificate: by the hash of its public key."""
    openssl = find("openssl")
    key = run(openssl, "x509", "-in", pair[0], "-pubkey", "-noout").stdout
    der = base64.b64decode("".join(key.splitlines()[1:-1]))
    digest = run(openssl, "dgst", "-sha256", "-r", stdin=der).stdout.split()[0]
    return f"--ignore-certificate-errors-spki-list={base64.b64encode(bytes.fromhex(digest)).decode()}"
