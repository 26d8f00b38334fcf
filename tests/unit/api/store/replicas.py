"""Engines whose commits another one takes: random changes, everything that can be read of one, a ledger in memory."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from hypothesis import strategies as st

from api.audit.audit_context import on_behalf_of, origin
from api.audit.trail import Selection, verify
from api.engine.commit import Engine
from api.engine.ledger import Commit, LedgerCommit, RowsSent, TooFarBehind
from api.history.reader import Reader, RevisionSelection
from api.history.recorder import NO_PURPOSE, Purpose
from api.security.account_sessions import AccountSession
from api.security.caller import AccountHolder
from api.store import Change, CommitRefused, HistoryPruned, NotStored, Write
from api.store.accounts import SORTS, AccountSelection
from config.files.paths import DataDir, open_data_dir
from config.files.secret_box import SecretBox, secret_box_of
from tests.kit.folders import FOLDERS
from tests.unit.api.store.account_documents import account, credential, plan

SMALL = st.integers(0, 2)
COLLECTIONS = [
    *("proxies", "plans", "accounts", "credentials", "users", "lists", "pools", "policies", "webhooks", "settings"),
    *("api_keys", "refresh_families", "fetched_upstreams", "secrets"),
]
CHANGES = st.tuples(st.sampled_from(COLLECTIONS), SMALL, st.none() | SMALL)
BATCHES = st.lists(CHANGES, min_size=1, max_size=4)
"""Collection, which of its documents, and what it has then; None deletes it."""


@contextmanager
def engines() -> Iterator[tuple[Engine, Engine, SecretBox]]:
    """Two, and their key."""
    with tempfile.TemporaryDirectory(prefix="pf-", dir=FOLDERS) as folder, ExitStack() as stack:
        first, second = (open_data_dir(Path(folder) / name) for name in ("a", "b"))
        seal = secret_box_of(first)
        source, target = (stack.enter_context(closing(Engine(each, seal))) for each in (first, second))
        yield source, target, seal


def write_of(change: tuple[str, int, int | None]) -> Write:
    collection, which, value = change
    identifier = f"{collection}_{which}"
    if value is None:
        return Write(collection, identifier, None)
    bodies: dict[str, Any] = {
        "accounts": account(identifier, f"name-{value}", plan="plans_0", certificates=[f"cn:{value}"]),
        "plans": {**plan(identifier), "name": f"name-{value}"},
        "credentials": credential(identifier, f"accounts_{value}", f"secret-{which}"),
        "proxies": {"id": identifier, "name": f"name-{value}", "auth": {"password_hash": f"hash-{value}"}},
    }
    usual = {"id": identifier, "name": f"name-{value}", "user_id": str(value), "password_hash": f"hash-{value}"}
    return Write(collection, identifier, bodies.get(collection, usual))


def commit(engine: Engine, changes: list[tuple[str, int, int | None]], recorded: bool = True) -> None:
    make = engine.commit if recorded else engine.commit_unrecorded
    for attempt in (changes, [each for each in changes if each[2] is not None]):
        with suppress(NotStored):
            if attempt:
                make([write_of(each) for each in attempt])
            return


STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["commit", "as holder", "unrecorded", "undo"]), BATCHES),
        st.tuples(st.just("staged"), st.lists(SMALL, min_size=1, max_size=3, unique=True)),
        st.tuples(st.sampled_from(["an entry alone", "a batch ends", "all accounts end"]), st.none()),
    ),
    max_size=12,
)
"""Commits, entries of the audit trail beside them, and where the other engine takes what there is."""


def stage(engine: Engine, which: list[int]) -> None:
    with closing(engine.accounts.staging()) as staged:
        for each in which:
            write = write_of(("accounts", each, each))
            staged.add(each, replace(write, expect=engine.revision_of("accounts", write.id)))
        staged.finish()
        engine.stage_records(staged)
        engine.commit_staged(staged)


def make(engine: Engine, step: tuple[str, Any]) -> None:
    what, changes = step
    with on_behalf_of("system", "test"):
        if what == "an entry alone":
            engine.trail.append("user.signed_in")
        elif what == "staged":
            stage(engine, changes)
        elif what == "all accounts end":
            commit(engine, [("accounts", each.id[-1], None) for each in engine.every("accounts")])
        else:
            if what == "as holder":
                session = AccountSession("s" * 64, "accounts_0", "", 0.0)
                origin().holder = AccountHolder("accounts_0", "name-0", session)
            origin().purpose = Purpose(undone=1) if what == "undo" else NO_PURPOSE
            commit(engine, changes, what != "unrecorded")


def answers(engine: Engine, seal: SecretBox) -> dict[str, Any]:
    """Of all methods that read, in an order of their own where they promise none."""

    def ordered(found: list[Any]) -> list[Any]:
        return sorted(found, key=lambda each: each.id)

    data = DataDir(engine.file.path.parent)
    found: dict[str, Any] = {name: ordered(engine.every(name)) for name in COLLECTIONS}
    places = [(name, f"{name}_{which}") for name in COLLECTIONS for which in range(3)]
    found["one by one"] = [(engine.get(*each), engine.revision_of(*each)) for each in places]
    found["found"] = [engine.find(name, name="name-1") for name in COLLECTIONS]
    found["recent"] = changed(engine, max(0, engine.revision - 1))
    found["numbers"] = engine.file.last_number, engine.revision, engine.accounts.revision
    found["changed"] = ordered(changed(engine, 0))
    found["audit"] = engine.trail.find(Selection({}), 1000, 0), engine.trail.head, verify(data)
    found["pages"] = [
        engine.accounts.account_page(AccountSelection(sort=sort, **more), None, 10)
        for sort in SORTS
        for more in ({}, {"plan": "plans_0"}, {"q": "name-1"})
    ]
    stored = engine.accounts
    found["plans by name"] = [stored.plan_named(f"name-{each}") for each in range(3)]
    found["clash"] = stored.clash("username", "prx_1", ()), stored.clash("entry", "prx_1", ()), stored.last_change()
    found["certified"] = [ordered(stored.accounts_certified(f"cn:{each}")) for each in range(3)]
    found["credentials of"] = [stored.credentials_of(f"accounts_{each}") for each in range(3)]
    with closing(Reader(data.fleet, seal)) as reader:
        page = found["revisions"] = reader.page(RevisionSelection(), 1000)
        found["changes"] = [reader.changes(each.number, -1, 100) for each in page[0]]
    return found


def changed(engine: Engine, since: int) -> list[Change]:
    """None of them when they are not known."""
    with suppress(HistoryPruned):
        return engine.changed(since)
    return []


class MemoryLedger:
    """A ledger in memory, as the engines of several nodes have one."""

    def __init__(self) -> None:
        self.commits: list[LedgerCommit] = []
        self.lock = threading.Lock()
        self.near = 100
        """Commits that a node may lack that begins."""
        self.append: Callable[[Callable[[], UUID]], UUID] = lambda append: append()
        """What becomes of a commit."""
        self.before: Callable[[str], object] = lambda _node: None
        """What comes before the turn of a node."""

    def of(self, node: str) -> OfNode:
        return OfNode(self, node)


@dataclass
class MemoryTurn:
    missing: list[LedgerCommit]
    audited: int
    ledger: MemoryLedger
    node: str

    def append(self, commit: Commit) -> UUID:
        return self.ledger.append(lambda: self._append(commit))

    def _append(self, commit: Commit) -> UUID:
        assert self.ledger.lock.locked()
        assert commit.number == len(self.ledger.commits) + 1
        assert [each[0] for each in commit.audit] == [self.audited + 1 + which for which in range(len(commit.audit))]
        made = LedgerCommit(commit, uuid4(), self.node, 0.0)
        self.ledger.commits.append(made)
        return made.stamp


@dataclass
class OfNode:
    """What one node has of it."""

    ledger: MemoryLedger
    node: str

    @contextmanager
    def begin(
        self, after: int, stamp: UUID | None, size: int = 0, sent: RowsSent | None = None
    ) -> Iterator[MemoryTurn]:
        self.ledger.before(self.node)
        with self.ledger.lock:
            if len(self.ledger.commits) - after > self.ledger.near:
                raise TooFarBehind
            own = [each.commit.audit for each in self.ledger.commits if each.node == self.node]
            audited = max((rows[-1][0] for rows in own if rows), default=0)
            yield MemoryTurn([*self.changes(after, stamp)], audited, self.ledger, self.node)

    def sending(self, size: int) -> AbstractContextManager[RowsSent]:
        raise AssertionError("all commits are small")

    def changes(self, after: int, stamp: UUID | None) -> Iterator[LedgerCommit]:
        """Documents are in their last commit alone."""
        if stamp is not None and (len(self.ledger.commits) < after or self.ledger.commits[after - 1].stamp != stamp):
            raise CommitRefused(f"the commit {after} is not in the ledger")
        found = self.ledger.commits[after:]
        last = {(one.collection, one.id): one.revision for each in found for one in each.commit.documents}
        for each in found:
            documents = [one for one in each.commit.documents if last[one.collection, one.id] == one.revision]
            audit = each.commit.audit if each.node == self.node else ()
            yield replace(each, commit=replace(each.commit, documents=tuple(documents), audit=audit))


@contextmanager
def nodes(ledger: MemoryLedger) -> Iterator[tuple[Engine, Engine]]:
    """Two engines with one ledger."""
    with tempfile.TemporaryDirectory(prefix="pf-", dir=FOLDERS) as folder, ExitStack() as stack:
        first, second = (open_data_dir(Path(folder) / name) for name in ("a", "b"))
        seal = secret_box_of(first)
        made = ((first, ledger.of("a")), (second, ledger.of("b")))
        one, other = (stack.enter_context(closing(Engine(data, seal, each))) for data, each in made)
        yield one, other
