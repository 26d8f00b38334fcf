"""Rows of the database that no program of ours wrote: a node says which they are and why, and follows the rest."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from itertools import count

import pytest

from actors.cluster.database import Database
from actors.cluster.identity import NodeIdentity
from api.audit.trail import Broken, Head, verify
from api.cluster.following.rereading import Rereading
from api.cluster.shared_ledger import SharedLedger
from api.engine.commit import Engine
from config.files.paths import open_data_dir
from tests.kit.postgresql import needs_postgresql
from tests.kit.tables import table
from tests.unit.api.cluster.nodes import Fleet, Node, fleet, proxy

pytestmark = needs_postgresql

_ALTERED = "UPDATE proxyfleet.audit SET content = {} WHERE node = 'a' AND seq = 2"
BY_HAND = {
    "its content doesn't go with its hash": _ALTERED.format("replace(content, 'proxies_1', 'proxies_9')"),
    "its content is not JSON": _ALTERED.format("'{'"),
    "what was between them is missing": "DELETE FROM proxyfleet.audit WHERE node = 'a' AND seq = 2",
}
"""What is done with `psql`, by what nodes say of it."""


@pytest.fixture
def ours() -> Iterator[Fleet]:
    with fleet() as found:
        yield found


_numbers = count(10)


class NodeEnded(Exception):
    """The node is killed here."""


def killed_with_the_commit(node: Node, which: int) -> None:
    """The database has the commit, and the file of the node has not."""

    def end() -> None:
        raise NodeEnded

    with pytest.raises(NodeEnded):
        node.change(proxy(which), end)
    node.restart()


def goes_on(*nodes: Node) -> None:
    """Each makes a change, and all have it."""
    for node in nodes:
        node.follow()
        node.change(proxy(next(_numbers)))
    for node in nodes:
        node.follow()
    found = [[each.body for each in node.engine.every("proxies")] for node in nodes]
    assert found[0]
    assert all(each == found[0] for each in found)


def revisions(node: Node) -> list[int]:
    with node.engine.file.reading() as database:
        return [number for (number,) in database.execute("SELECT number FROM revisions ORDER BY number")]


@table("why", list(BY_HAND))
def test_an_altered_row_of_the_audit_trail_is_as_its_node_wrote_it(caplog: pytest.LogCaptureFixture, why: str) -> None:
    caplog.clear()
    with fleet() as ours:
        node, other = ours.node("a"), ours.node("b")
        node.change(proxy(0))
        killed_with_the_commit(node, 1)
        ours.execute(BY_HAND[why])
        goes_on(node, other)
        assert isinstance(verify(node.data), Head), why
        if "DELETE" not in BY_HAND[why]:
            assert f"the row 2 of this node's audit trail was altered in the fleet's database: {why}" in caplog.text


def read_anew(ours: Fleet, name: str, stack: ExitStack) -> Engine:
    """The replica of a node that was lost."""
    data = open_data_dir(ours.folder / f"{name}-anew")
    database = stack.enter_context(closing(Database(ours.dsn)))
    engine = stack.enter_context(closing(Engine(data, ours.seal, ledger := SharedLedger(database, ours.id, name))))
    Rereading(ledger, NodeIdentity(ours.id, name, name, "full", ours.dsn), engine, lambda *_: None)()
    return engine


@table("why", list(BY_HAND))
def test_a_lost_replica_takes_an_altered_audit_trail_as_it_is_and_verify_says_where(
    caplog: pytest.LogCaptureFixture, why: str
) -> None:
    caplog.clear()
    with fleet() as ours, ExitStack() as stack:
        node = ours.node("a")
        for which in range(3):
            node.change(proxy(which))
        ours.execute(BY_HAND[why])
        engine = read_anew(ours, "a", stack)
        assert len(engine.every("proxies")) == 3
        engine.commit(proxy(4))
        found = verify(engine.data)
        assert isinstance(found, Broken)
        assert found.seq in (2, 3)
        assert f"of this node's audit trail was altered in the fleet's database: {found.error}" in caplog.text


FUTURE = (
    "INSERT INTO proxyfleet.revisions SELECT number + {}, commit + {}, node, timestamp, author, restored, undone,"
    " created, updated, deleted, kinds, size FROM proxyfleet.revisions ORDER BY number DESC LIMIT 1;"
    "INSERT INTO proxyfleet.revision_changes SELECT number + {}, place, collection, id, name, fields, before, after"
    " FROM proxyfleet.revision_changes ORDER BY number DESC LIMIT 1"
)


@table("later, of_commit", [(1, 0), (1, 1), (2, 1), (1000, 0), (1000, 1), (1000, 2)])
def test_a_revision_with_a_number_of_the_future_is_none_and_holds_up_no_change(
    caplog: pytest.LogCaptureFixture, later: int, of_commit: int
) -> None:
    caplog.clear()
    with fleet() as ours, ExitStack() as stack:
        node, other = ours.node("a"), ours.node("b")
        node.change(proxy(0))
        other.follow()
        ours.execute(FUTURE.format(later, of_commit, later))
        goes_on(node, other)
        goes_on(other, node)
        assert revisions(node) == revisions(other) == [1, 2, 3, 4, 5]
        anew = read_anew(ours, "a", stack)
        with anew.file.reading() as database:
            assert database.execute("SELECT count(*) FROM revisions").fetchone() == (5,)
        if later > 2:
            assert f"the revision {later + 1} in the fleet's database is none" in caplog.text


def test_a_commit_whose_history_is_missing_is_followed_and_the_gap_is_said(
    ours: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    node, other = ours.node("a"), ours.node("b")
    node.change(proxy(0))
    other.follow()
    for which in (1, 2):
        node.change(proxy(which))
    ours.execute(
        "DELETE FROM proxyfleet.revision_changes WHERE number = 2; DELETE FROM proxyfleet.revisions WHERE number = 2"
    )
    goes_on(other, node)
    assert revisions(other) == [1, 3, 4, 5]
    assert "the revisions between 1 and 3 are missing" in caplog.text


@table("missing", ["revision_changes", "documents"])
def test_a_commit_of_which_a_part_is_missing_holds_up_no_other(missing: str) -> None:
    with fleet() as ours:
        node, other = ours.node("a"), ours.node("b")
        node.change(proxy(0))
        other.follow()
        node.change(proxy(1))
        which = "number = 2" if missing == "revision_changes" else "revision = 2"
        ours.execute(f"DELETE FROM proxyfleet.{missing} WHERE {which}")
        other.follow()
        number = other.change(proxy(2)).number
        node.follow()
        assert (number, node.number) == (3, 3)
