"""Nodes ask each other by HTTP over TLS; what others send costs little, and gets nothing."""

from __future__ import annotations

import os
import resource
import select
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from api.cluster.links import internal_api as module
from api.cluster.links.certificates import Certificates, KnownNode, NodeCertificateError, connected, own_certificate
from api.cluster.links.internal_api import InternalApi, NodeConnection, NodeRefused, NodeUnreachable, Route, ask
from config.files.paths import DataDir
from tests.kit.tables import table
from tests.kit.wait import wait_until


class Stage:
    """A node that serves, and others that ask it."""

    def __init__(self, folder: Path) -> None:
        self.own = {name: own_certificate(DataDir(folder / name)) for name in ("a", "full", "edge", "stranger")}
        self.nodes = [
            KnownNode(f"nod_{name}", name, "edge" if name == "edge" else "full", self.own[name].pem)
            for name in ("a", "full", "edge")
        ]
        self.release = threading.Event()
        self.routes = {
            "/who": Route(lambda node, body: {"who": node and node.name, **body}, for_edges=True),
            "/full": Route(lambda _node, _body: {}),
            "/join": Route(self.join, for_strangers=True),
            "/fails": Route(self.fail),
        }
        self.api = InternalApi(("127.0.0.1", 0), Certificates(self.own["a"], lambda: self.nodes), lambda: self.routes)
        self.api.start()

    def close(self) -> None:
        self.release.set()
        self.api.close()

    def join(self, node: KnownNode | None, body: Mapping[str, Any]) -> Mapping[str, Any]:
        if body.get("wait"):
            self.release.wait(10)
        raise NodeRefused("no such token" if node is None else "known")

    def fail(self, node: KnownNode | None, body: Mapping[str, Any]) -> Mapping[str, Any]:
        raise ValueError(f"secret of {node}: {body}")

    def ask(self, who: str | None, path: str, within: float = 5, **body: Any) -> dict[str, Any]:
        own = None if who is None else self.own[who]
        return ask(self.api.address, self.own["a"].fingerprint, path, body, within, own)

    def raw(self, who: str | None, content: bytes) -> bytes:
        """All that comes back."""
        own = None if who is None else self.own[who]
        with connected(self.api.address, self.own["a"].fingerprint, time.monotonic() + 5, own) as secured:
            secured.sendall(content)
            found = b""
            while part := secured.recv(65536):
                found += part
            return found


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with closing(Stage(tmp_path)) as made:
        yield made


def test_a_node_is_known_by_its_certificate(stage: Stage) -> None:
    assert stage.ask("full", "/who", x=1) == {"who": "full", "x": 1}
    assert stage.ask("edge", "/who") == {"who": "edge"}


@table(
    "who, path, status, why",
    [
        (None, "/who", 403, "needs the certificate"),
        (None, "/nothing", 403, "needs the certificate"),
        ("full", "/nothing", 404, "no such request"),
        ("edge", "/full", 403, "an edge node may not"),
        (None, "/join", 403, "no such token"),
        ("edge", "/join", 403, "known"),
        ("full", "/fails", 500, "see the log"),
    ],
)
def test_others_are_refused(stage: Stage, who: str | None, path: str, status: int, why: str) -> None:
    with pytest.raises(NodeRefused, match=why) as caught:
        stage.ask(who, path)
    assert caught.value.status == status


def test_a_certificate_that_is_not_known_ends_the_connection(stage: Stage) -> None:
    with pytest.raises(NodeUnreachable):
        stage.ask("stranger", "/join")


def test_a_removed_node_gets_no_further_response_on_an_open_connection(stage: Stage) -> None:
    request = b"POST /who HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}"
    with connected(stage.api.address, stage.own["a"].fingerprint, time.monotonic() + 5, stage.own["full"]) as secured:
        secured.settimeout(5)
        secured.sendall(request)
        found = b""
        while not found.endswith(b'"full"}'):
            found += secured.recv(65536)
        assert found.startswith(b"HTTP/1.1 200")
        stage.nodes = [each for each in stage.nodes if each.name != "full"]
        secured.sendall(request)
        assert secured.recv(65536).startswith(b"HTTP/1.1 403")


@table(
    "content, status",
    [
        (b"GET /join HTTP/1.1\r\n\r\n", 501),
        (b"POST /join HTTP/1.1\r\n\r\n", 411),
        (b"POST /join HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n{}", 411),
        (b"POST /join HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 411),
        (b"POST /join HTTP/1.1\r\nContent-Length: 104857600\r\n\r\n", 413),
        (b"POST /join HTTP/1.1\r\nContent-Length: 2\r\n\r\n[]", 400),
        (b"POST /join HTTP/1.1\r\nContent-Length: 2\r\n\r\n{{", 400),
        (b"POST /join HTTP/1.1\r\nContent-Length: 16000\r\n\r\n" + b"[" * 16000, 400),
        (b"POST /join HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n", 431),
        (b"POST /join HTTP/1.1\r\n" + (b"A: " + b"b" * 1000 + b"\r\n") * 40 + b"\r\n", 431),
        (b"POST /" + b"a" * 70000 + b" HTTP/1.1\r\n\r\n", 414),
        (b"\x16\x03\x01\r\n\r\n", 400),
    ],
)
def test_what_is_no_good_request_gets_its_status_and_ends_the_connection(
    stage: Stage, content: bytes, status: int
) -> None:
    assert f" {status} ".encode() in stage.raw(None, content).partition(b"\r\n")[0] + b" "


def test_who_sends_slowly_is_closed_in_time(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TO_COME", 0.3)
    monkeypatch.setattr(module, "OF_STRANGER", 0.3)
    monkeypatch.setattr(module, "RETRY", 0.1)
    began = time.monotonic()
    with ExitStack() as stack:
        plain = [stack.enter_context(socket.create_connection(stage.api.address)) for _ in range(2)]
        secured = stack.enter_context(connected(stage.api.address, stage.own["a"].fingerprint, time.monotonic() + 5))
        secured.sendall(b"POST /join HTTP/1.1\r\nContent-Length: 9\r\n\r\n{")
        for each in (*plain, secured):
            each.settimeout(5)
            while each.recv(100):
                pass
    assert time.monotonic() - began < 4


def test_strangers_that_send_nothing_keep_no_node_from_asking(stage: Stage) -> None:
    with ExitStack() as stack:
        strangers = [
            stack.enter_context(socket.create_connection(stage.api.address, source_address=(f"127.0.1.{last}", 0)))
            for last in range(1, module.STRANGERS + 9)
        ]
        assert stage.ask("full", "/who") == {"who": "full"}
        for each in strangers[:9]:  # that of the node came, too
            each.settimeout(5)
            assert each.recv(1) == b""


LIMITS = module.STRANGERS, module.OF_NODES, module.OF_ONE


@table(
    "there, comes, goes",
    [
        ([], "a", None),
        (["a"] * (LIMITS[2] - 1), "a", None),
        (["b", *["a"] * LIMITS[2]], "a", 1),
        ([f"{each}" for each in range(LIMITS[0])], "a", 0),
        (["b", *["a"] * 2, *map(str, range(LIMITS[0] - 3))], "c", 1),
        (["b", *["a busy"] * 2, "a", *map(str, range(LIMITS[0] - 4))], "c", 3),
        (["a busy"] * LIMITS[2], "a", "comes"),
        ([f"{each}" for each in range(LIMITS[0])], "nod_a", None),
        ([f"nod_{each}" for each in range(LIMITS[1])], "a", None),
        ([f"nod_{each}" for each in range(LIMITS[1])], "nod_a", 0),
        (["nod_b", *["nod_a"] * LIMITS[2]], "nod_a", 1),
    ],
    ids=[
        "there is room",
        "there is room for another one of the same address",
        "an address has its own oldest one go",
        "the oldest stranger goes",
        "the oldest one of the address with most goes",
        "none goes whose request is handled",
        "all are handled",
        "strangers take no place of nodes",
        "nodes take no place of strangers",
        "the oldest one of nodes goes",
        "a node has its own oldest one go",
    ],
)
def test_who_goes_when_there_is_no_more_room(
    tmp_path: Path, there: list[str], comes: str, goes: int | str | None
) -> None:
    api = InternalApi(("127.0.0.1", 0), Certificates(own_certificate(DataDir(tmp_path / "a")), list), dict)

    def admitted(which: str) -> tuple[NodeConnection, socket.socket, bool]:
        name, _, busy = which.partition(" ")
        near, far = socket.socketpair()
        connection = NodeConnection(api, near, name)
        node = KnownNode(name, name, "full", "") if name.startswith("nod_") else None
        is_admitted = api.admits(connection, node)
        if busy:
            connection.has(float("inf"))
        return connection, far, is_admitted

    found = [admitted(each) for each in (*there, comes)]
    assert [is_admitted for _, _, is_admitted in found] == [True] * len(there) + [goes != "comes"]
    ended = [place for place, (_, far, _) in enumerate(found) if select.select([far], [], [], 0)[0]]
    assert ended == ([goes] if isinstance(goes, int) else [])
    for connection, far, _ in found:
        connection.end()
        far.close()


def test_it_serves_where_very_many_files_are_open(stage: Stage) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
        for _ in range(1100):
            stack.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        api = stack.enter_context(closing(InternalApi(("127.0.0.1", 0), stage.api.certificates, lambda: stage.routes)))
        api.start()
        own = stage.own["full"]
        assert ask(api.address, stage.own["a"].fingerprint, "/who", {}, 5, own) == {"who": "full"}


def test_one_that_hangs_is_given_up_in_time(stage: Stage) -> None:
    began = time.monotonic()
    with pytest.raises(NodeUnreachable, match=r"within 0.5 s"):
        stage.ask(None, "/join", 0.5, wait=True)
    assert time.monotonic() - began < 3


def test_another_machine_at_the_address_gets_nothing(stage: Stage) -> None:
    with pytest.raises(NodeCertificateError, match="nothing was sent"):
        ask(stage.api.address, stage.own["full"].fingerprint, "/join", {}, 5)


def test_what_is_no_node_is_said_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
    with pytest.raises(NodeUnreachable, match=f"{address[0]}:{address[1]}: Connection refused"):
        ask(address, "0" * 64, "/join", {}, 5)


def test_the_address_is_bound_when_it_gets_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY", 0.05)
    own = own_certificate(DataDir(tmp_path / "a"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = taken.getsockname()
        api = InternalApi(address, Certificates(own, list), dict)
        api.start()
    with closing(api):

        def is_served() -> bool:
            try:
                connected(address, own.fingerprint, time.monotonic() + 5).close()
            except OSError:
                return False
            return True

        wait_until(is_served, "it listens")
