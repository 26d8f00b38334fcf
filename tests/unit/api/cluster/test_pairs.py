"""Certificates that were uploaded at one node of a fleet, and which nodes get them from there."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from api.cluster.links.certificates import Certificates, KnownNode, own_certificate
from api.cluster.links.internal_api import InternalApi, NodeRefused, Route, ask
from api.cluster.links.pairs import PATH, Pairs, pairs_for_nodes
from api.engine.commit import Engine
from config.files.pairs import Pair, files_of, keep_pair, read_pair
from config.files.paths import open_data_dir
from config.files.secret_box import secret_box_of
from config.model.nodes import NodeRecord, NodeRole
from tests.kit.certificates import make_pair


class Fleet:
    """The node `a`, at which a pair was uploaded, and `b`, which asks it."""

    def __init__(self, folder: Path, stack: ExitStack, role: NodeRole) -> None:
        self.data = {name: open_data_dir(folder / name) for name in "ab"}
        self.own = {name: own_certificate(data) for name, data in self.data.items()}
        self.engines = {
            name: stack.enter_context(closing(Engine(data, secret_box_of(data)))) for name, data in self.data.items()
        }
        engine = self.engines["a"]
        known = Certificates(self.own["a"], lambda: [KnownNode.of(each.body) for each in engine.find("nodes")])
        route = Route(pairs_for_nodes(engine), for_edges=True)
        self.api = stack.enter_context(closing(InternalApi(("127.0.0.1", 0), known, lambda: {PATH: route})))
        self.api.start()
        of_nodes: dict[str, NodeRole] = {"a": "full", "b": role}
        for name, of_node in of_nodes.items():
            record = NodeRecord(id=f"nod_{name}", name=name, created_at=1.0, role=of_node)
            own = {"fingerprint": self.own[name].fingerprint, "pem": self.own[name].pem}
            place = {"internal": "{}:{}".format(*self.api.address)}
            self.put("nodes", {**record.model_dump(mode="json"), "certificate": own, "addresses": place})
        self.pairs = Pairs(self.engines["b"], "nod_b", self.own["b"])

    def put(self, collection: str, body: dict[str, Any]) -> None:
        for each in self.engines.values():
            each.put(collection, body, 0)

    def proxy(self, cert_file: Path, nodes: dict[str, Any]) -> dict[str, Any]:
        body = {"id": "prx_1", "name": "tls", "nodes": nodes, "tls": {"cert_file": str(cert_file)}}
        self.put("proxies", body)
        return body

    def ask(self, **body: Any) -> dict[str, Any]:
        """As `b`."""
        return ask(self.api.address, self.own["a"].fingerprint, PATH, body, 5, self.own["b"])


@pytest.fixture
def role() -> NodeRole:
    return "full"


@pytest.fixture
def fleet(tmp_path: Path, role: NodeRole) -> Iterator[Fleet]:
    with ExitStack() as stack:
        yield Fleet(tmp_path, stack, role)


@pytest.fixture
def pair(fleet: Fleet, tmp_path: Path) -> Pair:
    made = Pair(*(Path(each).read_bytes() for each in make_pair(tmp_path)))
    keep_pair(fleet.data["a"].keys, made, tuple)
    return made


@pytest.mark.parametrize("role", ["full", "edge"])
def test_a_node_gets_the_pair_of_a_proxy_that_it_runs_before_it_serves_that(fleet: Fleet, pair: Pair) -> None:
    keys = fleet.data["b"].keys
    fleet.pairs.have([fleet.proxy(keys / f"{pair.name}.crt", {"names": ["b"]})])
    assert read_pair(keys, pair.name) == pair
    assert {stat.S_IMODE(each.stat().st_mode) for each in files_of(keys, pair.name)} == {0o600}


def test_what_it_did_not_get_then_it_gets_later(fleet: Fleet, pair: Pair) -> None:
    keys = fleet.data["b"].keys
    fleet.proxy(keys / f"{pair.name}.crt", {"all": True})
    fleet.pairs.act()
    assert read_pair(keys, pair.name) == pair


def test_it_asks_for_nothing_that_has_another_path_or_is_for_other_nodes(fleet: Fleet, pair: Pair) -> None:
    keys = fleet.data["b"].keys
    for file, nodes in (
        (fleet.data["a"].keys / f"{pair.name}.crt", {"all": True}),
        (keys / f"{pair.name}.crt", {"names": ["a"]}),
        (keys / "secrets.crt", {"all": True}),
    ):
        fleet.pairs.have([{"id": "prx_1", "nodes": nodes, "tls": {"cert_file": str(file)}}])
    assert [*keys.glob("tls-*")] == []


@pytest.mark.parametrize("role", ["edge"])
def test_an_edge_node_gets_no_pair_but_those_of_its_proxies(fleet: Fleet, pair: Pair) -> None:
    fleet.proxy(fleet.data["a"].keys / f"{pair.name}.crt", {"names": ["a"]})
    for wanted in ({"name": pair.name, "proxy": "prx_1"}, {"name": pair.name, "proxy": "prx_2"}, {"name": pair.name}):
        with pytest.raises(NodeRefused, match="no proxy of this node"):
            fleet.ask(**wanted)


def test_nothing_but_pairs_is_given(fleet: Fleet, pair: Pair) -> None:
    (fleet.data["a"].keys / "secrets.crt").write_text("secret")
    (fleet.data["a"].keys / "secrets.key").write_text("secret")
    for name in (
        "secrets",
        f"../keys/{pair.name}",
        f"{pair.name}/../secrets",
        "tls-0123456789abcdef",
        None,
        pair.name[:-1],
    ):
        with pytest.raises(NodeRefused, match="does not have it"):
            fleet.ask(name=name, proxy="prx_1")
    files_of(fleet.data["a"].keys, pair.name)[1].write_text("another one")
    with pytest.raises(NodeRefused, match="does not have it"):
        fleet.ask(name=pair.name)
