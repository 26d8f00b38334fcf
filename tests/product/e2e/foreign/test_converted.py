"""squid and the product with its converted configuration decide alike: allowed, refused, or asked for a password."""

from __future__ import annotations

import base64
import shutil
import socket
import socketserver
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import bcrypt
import pytest

from api.import_export.convert import converted
from api.import_export.convert.comparison import compare
from tests.kit.folders import FOLDERS
from tests.kit.ports import free_port
from tests.kit.product import Product
from tests.product.e2e.foreign.programs import needs, squid_with
from tests.product.e2e.foreign.squid_configurations import (
    CONFIGURATIONS,
    HOSTS,
    PEERS,
    REQUESTS,
    USERS,
    Configuration,
    Request,
)

pytestmark = [pytest.mark.product, needs("squid")]

PATHS = {"account": "accounts", "proxy": "proxies", "policy": "policies", "pool": "pools", "list": "lists"}
"""Of each kind that an import makes, in the order in which they can be deleted."""


@pytest.fixture
def folder() -> Iterator[Path]:
    """Open to the account that squid changes to."""
    made = Path(tempfile.mkdtemp(prefix="pf-", dir=FOLDERS))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


class Upstream(socketserver.StreamRequestHandler):
    """Responds to each request by its own address, and to CONNECT as if there were a tunnel."""

    def handle(self) -> None:
        line = self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        status = 200 if line.startswith(b"CONNECT") else PEERS[self.server.server_address[0]]
        length = b"" if line.startswith(b"CONNECT") else b"Content-Length: 0\r\n"
        self.wfile.write(b"HTTP/1.1 %d OK\r\n%sConnection: close\r\n\r\n" % (status, length))


@pytest.fixture(scope="module")
def upstreams() -> Iterator[list[int]]:
    """Their ports."""
    with ExitStack() as stack:
        servers = [stack.enter_context(socketserver.ThreadingTCPServer((host, 0), Upstream)) for host in PEERS]
        for server in servers:
            server.daemon_threads = True
            threading.Thread(target=server.serve_forever, daemon=True).start()
            stack.callback(server.shutdown)
        yield [server.server_address[1] for server in servers]


OUTCOMES = {403: "refused", 407: "asked", 200: "by the first, or in a tunnel", 203: "by the second"}
NOWHERE = (b"X-Squid-Error: ERR_READ_ERROR", b"X-Squid-Error: ERR_CANNOT_FORWARD")
"""What squid adds to its response where a request must not go directly, and no upstream takes it."""


def outcome(port: int, request: Request) -> str:
    """How the proxy at `port` decides: whether by an upstream, and by which, as far as its response says."""
    authority = f"{request.host}:{request.port}"
    target = authority if request.method == "CONNECT" else f"http://{authority}{request.path}"
    fields = [f"Host: {authority}", "Connection: close"]
    if request.method not in ("CONNECT", "GET", "HEAD", "TRACE"):
        fields.append("Content-Length: 0")
    if request.user:
        credentials = base64.b64encode(f"{request.user}:{USERS[request.user]}".encode()).decode()
        fields.append(f"Proxy-Authorization: Basic {credentials}")
    head = "\r\n".join([f"{request.method} {target} HTTP/1.1", *fields, "", ""])
    with socket.create_connection(("127.0.0.1", port), 30, source_address=(request.client, 0)) as client:
        client.sendall(head.encode())
        lines = list(iter(client.makefile("rb").readline, b"\r\n"))
    assert lines[0].startswith(b"HTTP/1."), (request, lines)
    if any(line.startswith(NOWHERE) for line in lines):
        return "refused"
    return OUTCOMES.get(int(lines[0].split()[1]), "directly")


def written(configuration: Configuration, folder: Path, ports: list[int], peers: list[int]) -> str:
    """The configuration with its files, in which alice and bob have passwords, and carol has another one."""
    for name, content in (configuration.files or {}).items():
        (folder / name).write_text(content)
    hashes = [
        f"{user}:{bcrypt.hashpw((password + ('!' if user == 'carol' else '')).encode(), bcrypt.gensalt(4)).decode()}"
        for user, password in USERS.items()
        if user
    ]
    (folder / "passwords").write_text("\n".join(hashes) + "\n")
    (folder / "hosts").write_text("".join(f"{address} {name}\n" for name, address in HOSTS.items()))
    names = {f"port{index}": port for index, port in enumerate(ports)}
    names |= {f"peer{index}": port for index, port in enumerate(peers)}
    return configuration.lines.format(folder=folder, **names)


@pytest.fixture
def imported(product: Product) -> Iterator[Any]:
    """`imported(document)` imports it, and deletes at the end what it has made. The guard is lifted by the product's
    own configuration; names are resolved as squid does."""
    made: list[dict[str, Any]] = []

    def take(document: dict[str, Any]) -> list[int]:
        for proxy in document["proxies"]:
            proxy["port"] = free_port()
            proxy["dns"] = {"hosts": {name: [address] for name, address in HOSTS.items()}}
        made.extend(product.data("POST", "/config/import", document)["changes"])
        return [proxy["port"] for proxy in document["proxies"]]

    yield take
    for kind, path in PATHS.items():
        for each in made:
            if each["kind"] == kind:
                product.data("DELETE", f"/{path}/{each['id']}")


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_squid_and_the_product_decide_alike(name: str, folder: Path, upstreams: list[int], imported: Any) -> None:
    configuration = CONFIGURATIONS[name]
    theirs = [free_port() for _ in range(configuration.listeners)]
    file = folder / "squid.conf"
    file.write_text(written(configuration, folder, theirs, upstreams))
    found = converted(file, "squid")
    assert found.problems == []
    assert found.report.counts()["refuses"] == 0, "\n".join(found.report.lines())
    ours = imported(found.document)
    differences, outcomes = [], Counter[str]()
    with squid_with(file, folder / "hosts", theirs[-1]) as log:
        for request in configuration.requests():
            wanted = outcome(theirs[request.listener], request)
            got = outcome(ours[request.listener], request)
            outcomes[wanted] += 1
            if wanted != got:
                differences.append((request, f"squid {wanted}, product {got}"))
        compared = compare(found.document, [log], lambda file: file.open("rb"))
    assert differences == []
    assert compared.alike > REQUESTS / 2
    assert not compared.different, "\n".join(compared.texts())
    assert outcomes["refused"] > 10
    assert outcomes["directly"] > 10
    assert outcomes["by the first, or in a tunnel"] > 5 or not configuration.upstreams
    assert outcomes["by the second"] > 5 or configuration.upstreams < 2
    assert outcomes["asked"] > 20 or len(configuration.users) == 1
