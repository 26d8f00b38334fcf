"""An edge node leaves its fleet: a full node removes it, and no other node with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from api.cluster.founding import leave_fleet
from api.cluster.links.internal_api import NodeRefused, ask
from api.cluster.links.leaving import PATH, NotRemoved, be_removed
from tests.kit.postgresql import needs_postgresql
from tests.unit.api.cluster.admitted import Edge, Full
from tests.unit.api.cluster.nodes import fleet, owner

pytestmark = needs_postgresql


@pytest.fixture
def full() -> Iterator[Full]:
    with ExitStack() as stack:
        made = Full(stack.enter_context(fleet(stack.enter_context(owner()))), stack)
        made.listen(stack)
        yield made


def test_an_edge_is_removed_by_a_full_node_and_goes_on_alone(full: Full, tmp_path: Path) -> None:
    full.put("lists", {"id": "lst_a", "name": "a"})
    with ExitStack() as stack:
        full.announce("another", "127.0.0.1:1")  # it is asked first, and is down
        edge, stays = (Edge(full, tmp_path / name, stack) for name in ("leaves", "stays"))
        with pytest.raises(NodeRefused, match="certificate of a node"):
            ask(full.place, full.own.fingerprint, PATH, {}, 5)
        leave_fleet(edge.node, force=False)
        assert full.names() == {"first", "another", "stays"}
        assert (edge.may_sign_in(), stays.may_sign_in()) == (False, True)
        assert not edge.data.node.exists()
        edge.engine.put("lists", {"id": "lst_b", "name": "b"})
        assert {each.id for each in edge.engine.every("lists")} == {"lst_a", "lst_b"}
        assert edge.engine.every("nodes") == []


def test_an_edge_that_reaches_no_full_node_stays_one_and_leaves_by_force(full: Full, tmp_path: Path) -> None:
    with ExitStack() as stack:
        edge = Edge(full, tmp_path / "cut-off", stack)
        full.announce("first", "127.0.0.1:1")
        edge.engine.catch_up()
        with pytest.raises(NotRemoved, match=r"has removed this one, .*; first: 127\.0\.0\.1:1: "):
            leave_fleet(edge.node, force=False)
        assert edge.data.node.exists()
        leave_fleet(edge.node, force=True)
        assert (edge.data.node.exists(), edge.engine.every("nodes")) == (False, [])
        assert full.names() == {"first", "cut-off"}


def test_one_that_is_removed_already_is_a_stranger(full: Full, tmp_path: Path) -> None:
    with ExitStack() as stack:
        edge = Edge(full, tmp_path / "gone", stack)
        full.remove(edge.node.node_id)
        with pytest.raises(NotRemoved, match="may be removed already; first: "):
            be_removed(edge.engine)
