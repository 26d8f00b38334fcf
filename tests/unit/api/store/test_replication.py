"""Commits as things: what one engine has committed, taken by another one with its numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.audit.trail import Selection, verify
from api.engine.commit import Engine
from api.engine.effects import CommitEffect
from api.engine.ledger import Commit, LedgerCommit
from api.history.document_changes import DocumentChange
from api.store import CommitRefused, HistoryPruned, OutcomeUnknown, RevisionConflict, StoreWriteError, Write
from api.store import tiny as documents
from api.store.accounts import store as accounts
from config.files.paths import DataDir
from config.files.secret_box import secret_box_of
from tests.kit.tables import table
from tests.unit.api.store.account_documents import account, plan
from tests.unit.api.store.replicas import COLLECTIONS, STEPS, MemoryLedger, answers, commit, engines, make, nodes

pytestmark = pytest.mark.embedded  # they have a ledger in memory


def replay(source: Engine, target: Engine) -> None:
    for each in source.changes(target.file.last_number):
        target.adopt(each)


def noted(engine: Engine) -> list[Any]:
    """What effects of this engine get from now on, by commit, in an order of their own."""
    found: list[Any] = []

    def note(changes: Sequence[DocumentChange]) -> None:
        found.append(sorted((each.collection, each.id, each.before, each.after) for each in changes))

    def is_asked_for(change: DocumentChange) -> bool:  # accounts that are staged, too many for memory, end no usage
        return change.collection != "accounts" or change.after is None

    engine.effects.follow(CommitEffect(COLLECTIONS, note, is_asked_for))
    return found


@settings(max_examples=30, deadline=None)
@given(STEPS, st.booleans())
def test_an_engine_that_takes_all_commits_in_any_batches_answers_as_the_one_that_made_them(
    steps: list[tuple[str, Any]], at_once: bool
) -> None:
    with engines() as (source, target, seal):
        effects = [noted(each) for each in (source, target)]
        for step in (*steps, ("commit", [("proxies", 0, 0)])):
            if step[0] != "a batch ends":
                make(source, step)
            if at_once or step[0] == "a batch ends":
                replay(source, target)
        replay(source, target)
        if at_once:
            assert effects[0] == effects[1]
        wanted, found = (answers(each, seal) for each in (source, target))
        for name, answer in wanted.items():
            assert found[name] == answer, name
        assert [each.number for each in target.changes(0)] == [*range(1, source.file.last_number + 1)]


def test_a_document_is_in_its_last_commit_alone_and_a_deleted_one_has_no_body() -> None:
    with engines() as (source, _, _):
        for value in range(2):
            commit(source, [("proxies", 0, value), ("accounts", 0, value), ("credentials", value, 0)])
        commit(source, [("accounts", 0, None)])
        found = {each.number: {(one.id, one.body is None) for one in each.documents} for each in source.changes(0)}
        gone = {("accounts_0", True), ("credentials_0", True), ("credentials_1", True)}
        assert found == {1: set(), 2: {("proxies_0", False)}, 3: gone}
        assert [each.number for each in source.changes(2)] == [3]


def test_a_commit_that_does_not_follow_is_refused_and_nothing_is_changed() -> None:
    with engines() as (source, target, _):
        for value in range(3):
            commit(source, [("proxies", 0, value)])
        first, second, third = source.changes(0)
        target.adopt(first)
        (same,) = first.revisions
        other = same._replace(row=(same.row[0], "then", *same.row[2:]))
        for wrong, why in (
            (first, "1 does not follow the last one, 1"),
            (third, "3 does not follow the last one, 1"),
            (replace(second, audit=tuple((seq, content, "0" * 64) for seq, content, _ in second.audit)), "row 2"),
            (replace(second, audit=third.audit), "row 3"),
            (replace(second, revisions=(other,)), "revision 1 is there already"),
        ):
            with pytest.raises(CommitRefused, match=why):
                target.adopt(wrong)
            assert (target.file.last_number, target.trail.head.seq) == (1, 1)
        target.adopt(second)
        target.adopt(third)
        assert target.get("proxies", "proxies_0") == source.get("proxies", "proxies_0")


def test_commits_before_a_deletion_that_is_forgotten_are_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "TOMBSTONES_KEPT", 1)
    monkeypatch.setattr(accounts, "GONE_KEPT", 1)
    for name in ("proxies", "accounts"):
        with engines() as (source, _, _):
            for which in range(3):
                commit(source, [(name, which, which)])
            for which in range(3):
                commit(source, [(name, which, None)])
            with pytest.raises(HistoryPruned) as caught:
                list(source.changes(0))
            later: list[Commit] = list(source.changes(caught.value.horizon))
            assert [each.number for each in later] == [*range(caught.value.horizon + 1, 7)] != []


def test_engines_with_one_ledger_check_each_change_against_all_that_any_of_them_has_made() -> None:
    ledger = MemoryLedger()
    with nodes(ledger) as (one, other):
        made = one.put("proxies", {"id": "p", "name": "a"}, 0)
        with pytest.raises(RevisionConflict):
            other.put("proxies", {"id": "p", "name": "b"}, 0)
        other.put("proxies", {"id": "p", "name": "b"}, made.revision)
        with pytest.raises(RevisionConflict):
            one.delete("proxies", "p", made.revision)
        found = one.get("proxies", "p")
        assert found is not None
        assert found.body["name"] == "b", "what other nodes have made stays, whatever becomes of the change"
        assert [each.commit.number for each in ledger.commits] == [1, 2]
        with one.exclusive():
            assert other.file.last_number == one.file.last_number == 2


def refuse(_append: Callable[[], UUID]) -> UUID:
    raise StoreWriteError("the ledger is away")


def test_what_the_ledger_refuses_is_changed_nowhere_and_the_next_change_has_its_number() -> None:
    ledger = MemoryLedger()
    with nodes(ledger) as (one, other):
        ledger.append = refuse
        with pytest.raises(StoreWriteError, match="the ledger is away"):
            one.put("proxies", {"id": "p", "name": "a"})
        assert (one.every("proxies"), one.file.last_number, ledger.commits) == ([], 0, [])
        ledger.append = lambda append: append()
        assert other.put("proxies", {"id": "q", "name": "a"}).revision == 1


def test_staged_accounts_and_threads_of_two_nodes_get_numbers_without_gaps() -> None:
    ledger = MemoryLedger()
    with nodes(ledger) as both:
        with closing(both[0].accounts.staging()) as staged:
            staged.add(1, Write("accounts", "acc", account("acc", "staged"), 0))
            staged.finish()
            both[0].stage_records(staged)
            both[0].commit_staged(staged)

        def change(which: int) -> None:
            for number in range(5):
                both[which % 2].put("proxies", {"id": f"p{which}", "name": f"{number}"})

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(change, range(4)))
        assert [each.commit.number for each in ledger.commits] == [*range(1, 22)]
        for each in both:
            with each.exclusive():
                assert {one.id for one in each.every("proxies")} == {f"p{number}" for number in range(4)}
            assert each.get("accounts", "acc") is not None
            assert verify(DataDir(each.file.path.parent)) == each.trail.head


def entries(engine: Engine) -> list[tuple[str, str]]:
    found, _ = engine.trail.find(Selection({}), 100, 0)
    return [(each.content["action"], each.content["outcome"]) for each in reversed(found)]


def of_node(ledger: MemoryLedger, node: str) -> list[int]:
    return [seq for each in ledger.commits if each.node == node for seq, _, _ in each.commit.audit]


def test_entries_that_were_made_alone_get_to_the_ledger_whichever_node_takes_their_number() -> None:
    ledger = MemoryLedger()
    with nodes(ledger) as (one, other):
        one.put("proxies", {"id": "p", "name": "a"})
        one.trail.append("user.signed_in")
        other.put("proxies", {"id": "q", "name": "b"})
        other.trail.append("user.signed_in")
        one.put("proxies", {"id": "r", "name": "c"})
        other.put("proxies", {"id": "s", "name": "d"})
        assert of_node(ledger, "a") == of_node(ledger, "b") == [1, 2, 3]
        assert [*one.trail.after(0)] == [
            row for each in ledger.commits if each.node == "a" for row in each.commit.audit
        ]


class Killed(BaseException):
    """The process ends here."""


def killed_before(_append: Callable[[], UUID]) -> UUID:
    raise Killed


def killed_behind(append: Callable[[], UUID]) -> UUID:
    append()
    raise Killed


def unknown_but_made(append: Callable[[], UUID]) -> UUID:
    append()
    raise OutcomeUnknown


def unknown_and_not_made(_append: Callable[[], UUID]) -> UUID:
    raise OutcomeUnknown


@table(
    "what, made, restarts",
    [
        (killed_behind, True, True),
        (unknown_but_made, True, False),
        (killed_before, False, True),
        (unknown_and_not_made, False, False),
    ],
)
@pytest.mark.parametrize("others", ["entries alone", "commits of others", "both"])
def test_a_node_that_does_not_know_what_became_of_its_commit_goes_on_with_the_entries_that_the_ledger_may_have(
    what: Callable[[Callable[[], UUID]], UUID], made: bool, restarts: bool, others: str
) -> None:
    ledger = MemoryLedger()
    with nodes(ledger) as (first, other), ExitStack() as stack:
        one = first
        one.put("plans", plan("plan"))
        ledger.append = what
        with pytest.raises((Killed, OutcomeUnknown)):
            one.put("proxies", {"id": "p", "name": "a"})
        ledger.append = lambda append: append()
        if restarts:
            data = DataDir(one.file.path.parent)
            one.close()
            one = stack.enter_context(closing(Engine(data, secret_box_of(data), ledger.of("a"))))
        alone = [] if others == "commits of others" else [("user.signed_in", "done")]
        for action, _ in alone:
            one.trail.append(action)
        if others != "entries alone":
            other.put("proxies", {"id": "q", "name": "b"})
        one.put("plans", plan("another"))
        done = [("proxy.created", "done")] if made or alone else []
        failed = [] if made else [("proxy.created", "failed")]
        plans = [("plan.created", "done")]
        assert entries(one) == [*plans, *done, *alone, *failed, *plans]
        assert (one.get("proxies", "p") is not None) == made
        assert of_node(ledger, "a") == [*range(1, one.trail.head.seq + 1)]
        assert verify(DataDir(one.file.path.parent)) == one.trail.head
        other.catch_up()
        assert other.every("proxies") == one.every("proxies")
        assert not DataDir(one.file.path.parent).unsettled.exists()


def uploaded(engine: Engine) -> MemoryLedger:
    """A ledger with all commits of this engine."""
    ledger = MemoryLedger()
    ledger.commits = [LedgerCommit(each, uuid4(), "a", 0.0) for each in engine.changes(0)]
    return ledger


def test_a_running_engine_begins_to_follow_a_ledger_between_two_commits_and_stands_alone_again() -> None:
    with engines() as (one, other, seal):
        commit(one, [("proxies", 0, 1), ("accounts", 1, 1)])

        def change(number: int) -> None:
            one.put("lists", {"id": str(number), "name": str(number)})

        def follow() -> None:
            with one.alone():
                ledger = uploaded(one)
                one.follow_ledger(ledger.of("a"), ledger.commits[-1].stamp)
                ledgers.append(ledger)

        ledgers: list[MemoryLedger] = []
        with ThreadPoolExecutor(4) as pool:
            for _ in pool.map(lambda each: follow() if each == 10 else change(each), range(30)):
                pass
        (ledger,) = ledgers
        assert [each.commit for each in ledger.commits] == [*one.changes(0)]
        with closing(Engine(DataDir(other.file.path.parent), seal, ledger.of("b"))) as second:
            second.catch_up()
            assert second.every("lists") == one.every("lists")
        known = len(ledger.commits)
        one.stand_alone()
        change(31)
        data = DataDir(one.file.path.parent)
        with closing(Engine(data, seal)) as again:
            assert (len(ledger.commits), again.file.last_number) == (known, known + 1)
        assert verify(data) == one.trail.head


@pytest.mark.parametrize("killed", [False, True])
def test_who_stands_alone_has_not_made_the_commit_of_which_nothing_is_known(killed: bool) -> None:
    ledger = MemoryLedger()
    with nodes(ledger) as (first, _), ExitStack() as stack:
        one, data = first, DataDir(first.file.path.parent)
        one.put("plans", plan("plan"))
        ledger.append = unknown_and_not_made
        with pytest.raises(OutcomeUnknown):
            one.put("proxies", {"id": "p", "name": "a"})
        if killed:
            one.close()
            one = stack.enter_context(closing(Engine(data, secret_box_of(data))))
        else:
            one.stand_alone()
        one.put("plans", plan("another"))
        plans = ("plan.created", "done")
        assert entries(one) == [plans, ("proxy.created", "failed"), plans]
        assert (one.get("proxies", "p"), data.unsettled.exists()) == (None, False)
        assert verify(data) == one.trail.head


def test_a_file_whose_last_commit_is_another_one_in_the_ledger_is_noticed() -> None:
    ledger = MemoryLedger()
    with nodes(ledger) as (one, other):
        one.put("proxies", {"id": "p", "name": "a"})
        other.put("proxies", {"id": "q", "name": "b"})
        ledger.commits[1] = replace(ledger.commits[1], stamp=uuid4())
        for change in (other.catch_up, lambda: other.put("proxies", {"id": "r", "name": "c"})):
            with pytest.raises(CommitRefused, match="the commit 2 is not in the ledger"):
                change()
        one.catch_up()
        assert one.file.last_number == other.file.last_number == 2


def test_a_node_that_lacks_much_takes_it_in_one_step_while_others_may_commit() -> None:
    ledger = MemoryLedger()
    with nodes(ledger) as (one, other):
        for value in range(3):
            one.commit([Write("proxies", each, {"id": each, "value": value}) for each in ("p", "q")])
            one.put("proxies", {"id": "q", "value": f"{value}"})
        ledger.near, seen, locked = 2, noted(other), []
        other.effects.follow(
            CommitEffect(["proxies"], lambda changes: locked.append((len(changes), ledger.lock.locked())))
        )
        other.put("proxies", {"id": "r"})
        assert seen == []
        assert locked == [(3, False)], "effects of what others have made and of the change, when no lock is there"
        found = {each.id: (each.revision, each.body.get("value")) for each in other.every("proxies")}
        assert found == {"p": (5, 2), "q": (6, "2"), "r": (7, None)}
        one.catch_up()
        assert (
            answers(one, secret_box_of(DataDir(one.file.path.parent)))["revisions"]
            == answers(other, secret_box_of(DataDir(one.file.path.parent)))["revisions"]
        )
