"""The store of accounts, plans and credentials, and what forwarding actors read of it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from actors.accounts.table import AccountTable, digest_of
from api.store import (
    NotStored,
    RevisionConflict,
    StoreDamaged,
    StoreTooNew,
    StoreWriteError,
    Write,
)
from api.store.accounts import (
    AccountSelection,
)
from api.store.accounts import store as module
from api.store.fleet_file import SPARE, check_fleet_file
from api.store.fleet_store import start_over
from config.files.paths import DataDir, open_data_dir
from config.model.fleet_accounts import AccountProxies
from tests.kit.own_accounts import OwnAccounts
from tests.unit.api.store.account_documents import SECRET, account, credential, plan


@pytest.fixture
def data(folder: Path) -> DataDir:
    return open_data_dir(folder.parent / "d")


@pytest.fixture
def store(data: DataDir) -> Iterator[OwnAccounts]:
    opened = OwnAccounts(data)
    yield opened
    opened.close()


def page(store: OwnAccounts, limit: int = 100, **selection: Any) -> list[str]:
    """The ids of all pages."""
    found, after = [], None
    while True:
        documents, after = store.account_page(AccountSelection(**selection), after, limit)
        found += [each.id for each in documents]
        if after is None:
            return found


# --- documents ---


def test_a_document_is_stored_changed_and_deleted_by_its_revision(store: OwnAccounts) -> None:
    first = store.put("accounts", account("acc_1"), expect=0)
    assert store.get("accounts", "acc_1") == first
    with pytest.raises(RevisionConflict):
        store.put("accounts", account("acc_1"), expect=0)
    second = store.put("accounts", account("acc_1", "ada"), expect=first.revision)
    assert second.revision == store.revision_of("accounts", "acc_1") == store.revision > first.revision
    with pytest.raises(RevisionConflict):
        store.delete("accounts", "acc_1", expect=first.revision)
    store.delete("accounts", "acc_1", expect=second.revision)
    assert store.get("accounts", "acc_1") is None
    with pytest.raises(NotStored):
        store.delete("accounts", "acc_1")


def test_a_commit_is_all_or_nothing(store: OwnAccounts) -> None:
    store.put("plans", plan("pln_1"))
    before = store.revision
    writes = [
        Write("accounts", "acc_1", account("acc_1")),
        Write("plans", "pln_1", None),
        Write("accounts", "acc_2", account("acc_2"), expect=7),
    ]
    with pytest.raises(RevisionConflict):
        store.commit(writes)
    assert (store.revision, store.count("accounts"), store.count("plans")) == (before, 0, 1)
    assert store.commit(writes[:2]) == before + 1


def test_what_was_staged_is_refused_where_another_change_came_first(store: OwnAccounts) -> None:
    step = store.put("accounts", account("acc_1", "ada")).revision
    staged = store.staging()
    staged.add(1, Write("accounts", "acc_1", account("acc_1", "eve"), step))
    staged.finish()
    later = store.put("accounts", account("acc_1", "bob")).revision
    with pytest.raises(RevisionConflict):
        store.commit_staged(staged, lambda _database: None)
    staged.close()
    assert (store.revision, store.get("accounts", "acc_1").body["username"]) == (later, "bob")  # type: ignore[union-attr]


def test_what_was_committed_is_synced(store: OwnAccounts) -> None:
    full = 2
    assert store._file.database.execute("PRAGMA synchronous").fetchone() == (full,)


def test_what_was_committed_is_there_after_the_process_was_killed(data: DataDir) -> None:
    code = (
        "import os, sys; from pathlib import Path; from config.files.paths import DataDir;"
        "from tests.kit.own_accounts import OwnAccounts;"
        "from tests.unit.api.store.account_documents import account, credential;"
        "store = OwnAccounts(DataDir(Path(sys.argv[1])));"
        "store.put('accounts', account('acc_1')); store.put('credentials', credential('crd_1', 'acc_1'));"
        "store.delete('credentials', 'crd_1'); os.kill(os.getpid(), 9)"
    )
    died = subprocess.run([sys.executable, "-c", code, str(data.path)], check=False)
    assert died.returncode == -signal.SIGKILL
    with closing(AccountTable(data.fleet)) as table:  # before the next start: forwarding does not wait for it
        assert (table.account("acc_1") is not None, table.credential(digest_of(SECRET))) == (True, None)
    store = OwnAccounts(data)
    assert (store.count("accounts"), store.count("credentials")) == (1, 0)
    store.close()


@pytest.mark.embedded
def test_what_is_forgotten_stays_forgotten_in_a_transaction_of_several_commits(
    store: OwnAccounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "GONE_KEPT", 1)
    with store._file.transaction():
        for number in range(4):
            store.put("accounts", account(f"acc_{number}"))
            store.delete("accounts", f"acc_{number}")
        store.put("plans", plan("pln_1"))
    assert store.horizon == store.revision > 0


def test_a_deleted_account_takes_its_credentials_with_it(data: DataDir) -> None:
    store = OwnAccounts(data)
    store.commit(
        [
            Write("accounts", "acc_1", account("acc_1")),
            Write("accounts", "acc_2", account("acc_2")),
            Write("credentials", "crd_1", credential("crd_1", "acc_1")),
            Write("credentials", "crd_2", credential("crd_2", "acc_2", SECRET + "b")),
        ]
    )
    assert [each.id for each in store.credentials_of("acc_1")] == ["crd_1"]
    store.delete("accounts", "acc_1")
    assert [each.id for each in store.documents("credentials")] == ["crd_2"]
    store.close()
    with closing(AccountTable(data.fleet)) as table:
        assert table.credential(digest_of(SECRET)) is None
        assert table.credential(digest_of(SECRET + "b")) is not None


# --- pages ---


def test_pages_are_in_order_and_whole(store: OwnAccounts) -> None:
    bodies = [account(f"acc_{number}", f"u{number % 7}", created_at=float(number % 5)) for number in range(40)]
    store.commit([Write("accounts", each["id"], each) for each in bodies])
    by_name = sorted(bodies, key=lambda each: (each["username"], each["id"]))
    by_age = sorted(bodies, key=lambda each: (each["created_at"], each["id"]))
    assert page(store, 3) == [each["id"] for each in by_name]
    assert page(store, 7, descending=True) == [each["id"] for each in reversed(by_name)]
    assert page(store, 40, sort="created_at") == [each["id"] for each in by_age]
    assert page(store, 6, sort="created_at", descending=True) == [each["id"] for each in reversed(by_age)]


def test_accounts_are_found_by_all_filters(store: OwnAccounts) -> None:
    made = {
        "acc_a": {"username": "Alice", "metadata": {"customer": "K-4711"}, "tags": ["ci"], "plan": "pln_1"},
        "acc_b": {"username": "bob", "enabled": False, "proxies": AccountProxies(ids=["prx_1"])},
        "acc_c": {"username": "carl", "expires_at": 5.0, "proxies": AccountProxies(tags=["eu", "us"])},
        "acc_d": {"username": "100%_x", "expires_at": time.time() + 900, "tags": ["ci/cd"]},
    }
    store.commit([Write("accounts", each, account(each, **fields)) for each, fields in made.items()])
    assert page(store, q="aLI") == ["acc_a"]
    assert page(store, q="k-47") == ["acc_a"]
    assert page(store, q="%") == ["acc_d"]
    assert page(store, q="customer") == []
    assert page(store, plan="pln_1") == ["acc_a"]
    assert page(store, tag="ci") == ["acc_a"]
    assert set(page(store, status="active")) == {"acc_a", "acc_d"}
    assert page(store, status="disabled") == ["acc_b"]
    assert page(store, status="expired") == ["acc_c"]
    assert set(page(store, proxy=("prx_1", ()))) == {"acc_a", "acc_b", "acc_d"}
    assert set(page(store, proxy=("prx_2", ("us",)))) == {"acc_a", "acc_c", "acc_d"}
    assert page(store, proxy=("prx_1", ()), status="disabled", q="o") == ["acc_b"]


def test_two_accounts_of_one_name_clash_where_a_proxy_is_both_theirs(store: OwnAccounts) -> None:
    pairs = {"acc_a": AccountProxies(tags=["eu"]), "acc_b": AccountProxies(ids=["prx_1"])}
    store.commit([Write("accounts", each, account(each, "ada", proxies=named)) for each, named in pairs.items()])
    store.put("accounts", account("acc_c", "eve"))
    assert store.clash("username", "prx_1", ["us"]) is None
    assert store.clash("username", "prx_2", ["eu"]) is None
    assert store.clash("username", "prx_1", ["eu", "us"]) == ("ada", "acc_a", "acc_b")


# --- damage and space ---


def test_a_damaged_file_is_refused(data: DataDir) -> None:
    store = OwnAccounts(data)
    store.commit([Write("accounts", f"acc_{n}", account(f"acc_{n}")) for n in range(200)])
    store.close()
    file = data.fleet
    whole = file.read_bytes()
    for damaged in (b"x" * 100 + whole[100:], whole[:4096] + os.urandom(len(whole) - 8192) + whole[-4096:]):
        file.write_bytes(damaged)
        with pytest.raises(StoreDamaged):
            check_fleet_file(data)
        with pytest.raises(StoreDamaged):
            OwnAccounts(data)
    file.unlink()
    data.keys.mkdir()
    (data.keys / "signing.key").touch()
    with pytest.raises(StoreDamaged, match="restore"):
        OwnAccounts(data)


def test_a_file_of_a_later_release_is_refused(data: DataDir) -> None:
    store = OwnAccounts(data)
    store._file.database.execute("PRAGMA user_version = 7")
    store.close()
    with pytest.raises(StoreTooNew):
        check_fleet_file(data)
    with pytest.raises(StoreTooNew):
        OwnAccounts(data)


def test_a_full_disk_refuses_a_change_and_leaves_what_was(store: OwnAccounts, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put("accounts", account("acc_1"))
    before = store.revision
    with monkeypatch.context() as full:
        full.setattr(shutil, "disk_usage", lambda _path: shutil._ntuple_diskusage(9, 9, SPARE))  # type: ignore[attr-defined]
        with pytest.raises(StoreWriteError, match="full"):
            store.put("accounts", account("acc_2"))
    assert (store.revision, store.count("accounts")) == (before, 1)
    store.put("accounts", account("acc_2"))


# --- what forwarding actors read ---


@pytest.mark.embedded
def test_the_number_of_the_last_change_is_kept_over_starts_and_a_restore_forgets_changes(data: DataDir) -> None:
    store = OwnAccounts(data)
    assert store.revision == 0
    number = store.put("accounts", account("acc_1")).revision
    store.close()
    start_over(data, ["refresh_families"], 500)
    store = OwnAccounts(data)
    assert store.revision == store.horizon >= 500 > number
    horizon = store.horizon
    assert store.put("accounts", account("acc_2")).revision == store.revision > horizon
    store.close()
    with closing(AccountTable(data.fleet)) as table:
        assert table.revision == (store.revision, 0)
        assert [table.changes((since, 0)) for since in (number, horizon)] == [None, {("account", "acc_2")}]


def test_at_the_end_all_is_in_the_file_itself_though_others_read_it(data: DataDir) -> None:
    store = OwnAccounts(data)
    store.put("accounts", account("acc_1"))
    with closing(AccountTable(data.fleet)) as table:
        store.close()
        assert data.fleet.with_name("fleet.sqlite-wal").stat().st_size == 0
        assert table.account("acc_1") is not None
