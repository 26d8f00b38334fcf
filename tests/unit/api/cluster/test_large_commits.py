"""An import that is too large for one text: it comes as rows, others change meanwhile, and it is made whole or not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from api.audit.trail import Selection
from api.cluster.roles import NodeLogin
from api.cluster.shared_ledger import LARGEST, LedgerUnavailable, SharedLedger
from api.engine import commit as module
from api.engine.ledger import UnsettledEntries
from api.store import OutcomeUnknown, RevisionConflict, StoreWriteError
from api.store.accounts import AccountStore, Staging
from tests.kit.fleet_database import begin_roles
from tests.kit.postgresql import needs_pgbouncer, needs_postgresql, pooler, shared_server
from tests.kit.tables import table
from tests.unit.api.cluster.nodes import Fleet, fleet, owner, proxy
from tests.unit.api.cluster.replica_nodes import Replica, alike
from tests.unit.api.store.replicas import write_of

pytestmark = needs_postgresql


@pytest.fixture
def ours(monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    monkeypatch.setattr(module, "LARGEST", 0)
    with fleet() as found:
        yield found


@pytest.fixture
def two(ours: Fleet) -> Iterator[tuple[Replica, Replica]]:
    with ExitStack() as stack:
        yield Replica(ours, "a", stack), Replica(ours, "b", stack)


class Killed(BaseException):
    """The process ends here."""


def raising(error: BaseException) -> Callable[..., Any]:
    def fail(*_given: Any) -> Any:
        raise error

    return fail


def history(node: Replica) -> tuple[list[Any], list[Any]]:
    """Revisions and their changes in the file of a node."""
    with node.engine.file.reading() as file:
        revisions = file.execute("SELECT number, commit_number, kinds, size FROM revisions ORDER BY number")
        return revisions.fetchall(), file.execute("SELECT * FROM revision_changes ORDER BY number, place").fetchall()


def history_of_fleet(fleet: Fleet) -> tuple[list[Any], list[Any]]:
    revisions = fleet.execute('SELECT number, "commit", kinds, size FROM proxyfleet.revisions ORDER BY number')
    return revisions, fleet.execute("SELECT * FROM proxyfleet.revision_changes ORDER BY number, place")


def whole(fleet: Fleet, *nodes: Replica) -> None:
    """All follow, and have what the database has; nothing is on the way."""
    for each in nodes:
        each.follow()
    alike(fleet, *nodes)
    assert history(nodes[0]) == history_of_fleet(fleet)
    for each in ("documents", "changes", "audit"):
        assert fleet.execute(f"SELECT count(*) FROM proxyfleet.staged_{each}") == [(0,)]


def outcomes(node: Replica) -> list[tuple[str, str]]:
    found, _ = node.engine.trail.find(Selection({}), 100, 0)
    return [(each.content["action"], each.content["outcome"]) for each in reversed(found)]


def imported(node: Replica, *changes: tuple[int, int], also: Callable[[], object] = lambda: None) -> None:
    """Import accounts, each by its number and what it has then. `also` is done when all is prepared."""
    with closing(node.engine.accounts.staging()) as staged:
        for which, value in changes:
            write = write_of(("accounts", which, value))
            staged.add(which, replace(write, expect=node.engine.revision_of("accounts", write.id)))
        staged.finish()
        node.engine.stage_records(staged)
        also()
        node.engine.commit_staged(staged)


def test_an_import_is_one_commit_with_its_revision_and_its_entries(ours: Fleet, two: tuple[Replica, Replica]) -> None:
    one, other = two
    one.engine.commit(proxy())
    one.engine.trail.append("user.signed_in")
    imported(one, (0, 0), (2, 2), (1, 1))
    whole(ours, *two)
    one.engine.trail.append("user.signed_out")
    imported(one, (1, 3), (2, 2))
    imported(one, (1, 3))
    whole(ours, *two)
    found = ours.execute("SELECT number, objects, size FROM proxyfleet.commits WHERE number > 1 ORDER BY number")
    assert found == [(2, 3, LARGEST + 1), (3, 2, LARGEST + 1), (4, 1, LARGEST + 1)]
    assert [row[0] for row in history(one)[1]] == [1, 2, 2, 2, 3]
    assert [action for action, _ in outcomes(one)] == [
        "proxy.created", "user.signed_in", *["account.created"] * 3, "user.signed_out", "account.updated",
    ]  # fmt: skip
    other.engine.commit(proxy(1))
    whole(ours, *two)


def test_others_commit_while_it_is_on_the_way_and_it_follows_them(
    ours: Fleet, two: tuple[Replica, Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = two
    documents, prepare = Staging.documents, UnsettledEntries.prepare

    def slow_documents(staged: Staging) -> Any:
        other.engine.commit(proxy(1))
        return documents(staged)

    def slow_entries(unsettled: UnsettledEntries, entries: Any) -> None:
        prepare(unsettled, entries)
        other.engine.commit(proxy(2))

    monkeypatch.setattr(Staging, "documents", slow_documents)
    monkeypatch.setattr(UnsettledEntries, "prepare", slow_entries)
    checked: list[int] = []
    with one.engine.rechecked(lambda: checked.append(len(one.engine.every("proxies")))):
        imported(one, (0, 0), (1, 1), also=lambda: one.engine.trail.append("user.signed_in"))
    assert checked == [2], "once, under the lock, with all that others have committed"
    assert (one.engine.stamped()[0], [row[:2] for row in history(one)[0]]) == (3, [(1, 1), (2, 2), (3, 3)])
    whole(ours, *two)


def test_an_account_that_another_node_changes_meanwhile_refuses_it_and_nothing_is_left(
    ours: Fleet, two: tuple[Replica, Replica]
) -> None:
    one, other = two
    imported(one, (0, 0))
    other.follow()
    with pytest.raises(RevisionConflict):
        imported(one, (0, 1), (1, 1), also=lambda: other.engine.commit([write_of(("accounts", 0, 2))]))
    assert not [*one.data.path.glob("unsettled*")]
    whole(ours, *two)
    assert len(outcomes(one)) == 1
    imported(one, (0, 1), (1, 1))
    whole(ours, *two)


@table("at", ["documents", "audit", "the lock", "the commit"])
def test_what_the_database_refuses_is_made_nowhere(at: str) -> None:
    functions = {
        "documents": "ALTER TABLE proxyfleet.staged_documents ADD CHECK (false)",
        "audit": "ALTER TABLE proxyfleet.staged_audit ADD CHECK (false)",
        "the lock": "ALTER FUNCTION proxyfleet.begin_change RENAME TO begins",
        "the commit": "ALTER FUNCTION proxyfleet.move_rows RENAME TO moves",
    }
    with fleet() as ours, ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "LARGEST", 0)
        node = Replica(ours, "a", stack)
        node.engine.commit(proxy())
        ours.execute(functions[at])
        with pytest.raises(LedgerUnavailable):
            imported(node, (0, 0))
        assert (node.engine.stamped()[0], node.engine.every("accounts")) == (1, [])
        assert not [*node.data.path.glob("unsettled*")]
        assert outcomes(node)[1:] == [("account.imported", "failed")]


def restarted(fleet: Fleet, node: Replica, stack: ExitStack) -> Replica:
    node.engine.close()
    return Replica(fleet, node.name, stack)


def test_a_node_that_is_killed_when_the_database_has_it_reads_it_and_its_audit_trail_goes_on(
    ours: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as stack:
        one, other = Replica(ours, "a", stack), Replica(ours, "b", stack)
        with monkeypatch.context() as patch:
            patch.setattr(AccountStore, "commit_staged", raising(Killed()))
            with pytest.raises(Killed):
                imported(one, (0, 0), (1, 1))
        one = restarted(ours, one, stack)
        assert one.engine.every("accounts") == []
        one.engine.trail.append("user.signed_in")
        whole(ours, one, other)
        assert outcomes(one) == [*[("account.created", "done")] * 2, ("user.signed_in", "done")]
        assert not [*one.data.path.glob("unsettled*")]
        one.engine.commit(proxy())
        whole(ours, one, other)


def test_a_node_that_is_killed_before_the_database_has_it_says_that_it_was_not_made(
    ours: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as stack:
        one, other = Replica(ours, "a", stack), Replica(ours, "b", stack)
        with monkeypatch.context() as patch:
            patch.setattr(SharedLedger, "_append", raising(Killed()))
            with pytest.raises(Killed):
                imported(one, (0, 0))
        one = restarted(ours, one, stack)
        one.engine.commit(proxy())
        whole(ours, one, other)
        assert one.engine.every("accounts") == []
        assert outcomes(one) == [("account.created", "failed"), ("proxy.created", "done")]


def test_a_file_that_refuses_what_the_fleet_has_gets_it_when_all_is_read_anew(
    ours: Fleet, two: tuple[Replica, Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = two
    with monkeypatch.context() as patch:
        patch.setattr(Staging, "merge", raising(StoreWriteError("the disk is full")))
        with pytest.raises(OutcomeUnknown) as unknown:
            imported(one, (0, 0))
    assert (unknown.value.number, one.engine.was_made(1), outcomes(one)) == (1, None, [])
    whole(ours, one, other)
    assert (one.engine.was_made(1), outcomes(one)) == (True, [("account.created", "done")])


def test_a_full_node_may_send_it_and_an_edge_may_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LARGEST", 0)
    with owner() as dsn, fleet(dsn) as ours, ExitStack() as stack:
        logins = {name: NodeLogin(f"nod_{name}00000000000", name) for name in ("full", "edge")}
        begin_roles(ours.database, logins["full"])
        with ours.database.session() as session:
            session.transaction(*logins["edge"].statement)
        node = Replica(ours, logins["full"].node, stack, login=logins["full"])
        node.engine.commit(proxy())
        imported(node, (0, 0), (1, 1))
        whole(ours, node)
        with psycopg.connect(logins["edge"].dsn(ours.dsn)) as edge, pytest.raises(psycopg.errors.InsufficientPrivilege):
            edge.execute("SELECT proxyfleet.move_rows(1, '', 1, 1)")


@needs_pgbouncer
def test_it_goes_through_a_pooler_in_transaction_mode(ours: Fleet) -> None:
    server = shared_server()
    with pooler(server, "transaction") as port, ExitStack() as stack:
        node = Replica(ours, "a", stack, dsn=ours.dsn.replace(f"port={server.port}", f"port={port}"))
        node.engine.commit(proxy())
        imported(node, (0, 0), (1, 1))
        whole(ours, node)
