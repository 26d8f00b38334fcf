"""The store of accounts, plans and credentials, and the table of forwarding actors behind it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from actors.accounts.table import TableReader, digest_of
from actors.accounts.table_writer import TableWriter
from api.services.account_table import TableChecks
from api.store import (
    HistoryPruned,
    NotInEffect,
    NotStored,
    RevisionConflict,
    StoreDamaged,
    StoreTooNew,
    StoreWriteError,
    Write,
)
from api.store.accounts import (
    AccountSelection,
    AccountStore,
    accounts_file,
    check_accounts_file,
    open_accounts,
    start_over_above,
)
from api.store.accounts import batch as module
from config.files.paths import DataDir, open_data_dir
from config.model.account_credentials import AccountCredential
from config.model.fleet_accounts import AccountProxies, FleetAccount
from config.model.plans import Plan
from tests.kit.wait import wait_until

SECRET = "pfc_" + "a" * 40


@pytest.fixture
def data(folder: Path) -> DataDir:
    return open_data_dir(folder.parent / "d")


@pytest.fixture
def store(data: DataDir) -> Iterator[AccountStore]:
    opened = open_accounts(data)
    yield opened
    opened.close()


def account(identifier: str, username: str | None = None, **more: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {"created_at": 1.0, "updated_at": 1.0, **more}
    return FleetAccount(id=identifier, username=username or identifier, **fields).model_dump(mode="json")


def plan(identifier: str, **more: Any) -> dict[str, Any]:
    return Plan(id=identifier, name=identifier, created_at=1.0, updated_at=1.0, **more).model_dump(mode="json")


def credential(identifier: str, of: str, secret: str = SECRET) -> dict[str, Any]:
    digest = digest_of(secret).hex()
    made = AccountCredential(
        id=identifier, account_id=of, prefix=secret[:11], secret_hash=digest, expires_at=9e9, created_at=1.0
    )
    return made.model_dump(mode="json")


def page(store: AccountStore, limit: int = 100, **selection: Any) -> list[str]:
    """The ids of all pages."""
    found, after = [], None
    while True:
        documents, after = store.account_page(AccountSelection(**selection), after, limit)
        found += [each.id for each in documents]
        if after is None:
            return found


# --- documents ---


def test_a_document_is_stored_changed_and_deleted_by_its_revision(store: AccountStore) -> None:
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


def test_a_commit_is_all_or_nothing(store: AccountStore) -> None:
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
    assert store.commit(writes[:2]) == [before + 1, before + 2]
    assert [each.id for each in store.changes(before)] == ["acc_1", "pln_1"]


def test_what_was_committed_is_there_after_the_process_was_killed(data: DataDir) -> None:
    code = (
        "import os, sys; from pathlib import Path; from config.files.paths import DataDir;"
        "from api.store.accounts import open_accounts;"
        "from tests.unit.api.store.test_accounts import account, credential;"
        "store = open_accounts(DataDir(Path(sys.argv[1])));"
        "store.put('accounts', account('acc_1')); store.put('credentials', credential('crd_1', 'acc_1'));"
        "store.delete('credentials', 'crd_1'); os.kill(os.getpid(), 9)"
    )
    died = subprocess.run([sys.executable, "-c", code, str(data.path)], check=False)
    assert died.returncode == -signal.SIGKILL
    table = TableReader(data.accounts_table)  # before the next start: forwarding does not wait for it
    assert (table.account("acc_1") is not None, table.credential(digest_of(SECRET))) == (True, None)
    table.close()
    store = open_accounts(data)
    assert (store.count("accounts"), store.count("credentials")) == (1, 0)
    store.close()


def test_changes_name_each_document_once_and_deletions(store: AccountStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put("accounts", account("acc_1"))
    store.put("accounts", account("acc_2"))
    since = store.revision
    store.put("accounts", account("acc_1", "ada"))
    store.put("accounts", account("acc_1", "eve"))
    store.delete("accounts", "acc_2")
    found = [(each.id, each.body and each.body["username"]) for each in store.changes(since)]
    assert found == [("acc_1", "eve"), ("acc_2", None)]
    monkeypatch.setattr(module, "GONE_KEPT", 2)
    for number in range(4):
        store.put("accounts", account(f"acc_x{number}"))
        store.delete("accounts", f"acc_x{number}")
    with pytest.raises(HistoryPruned):
        store.changes(since)
    assert len([each for each in store.changes(store.revision - 4) if each.body is None]) == 2


def test_a_deleted_account_takes_its_credentials_with_it(data: DataDir) -> None:
    store = open_accounts(data)
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
    table = TableReader(data.accounts_table)
    assert table.credential(digest_of(SECRET)) is None
    assert table.credential(digest_of(SECRET + "b")) is not None
    table.close()


# --- pages ---


def test_pages_are_in_order_and_whole(store: AccountStore) -> None:
    bodies = [account(f"acc_{number}", f"u{number % 7}", created_at=float(number % 5)) for number in range(40)]
    store.commit([Write("accounts", each["id"], each) for each in bodies])
    by_name = sorted(bodies, key=lambda each: (each["username"], each["id"]))
    by_age = sorted(bodies, key=lambda each: (each["created_at"], each["id"]))
    assert page(store, 3) == [each["id"] for each in by_name]
    assert page(store, 7, descending=True) == [each["id"] for each in reversed(by_name)]
    assert page(store, 40, sort="created_at") == [each["id"] for each in by_age]
    assert page(store, 6, sort="created_at", descending=True) == [each["id"] for each in reversed(by_age)]


def test_accounts_are_found_by_all_filters(store: AccountStore) -> None:
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


def test_two_accounts_of_one_name_clash_where_a_proxy_is_both_theirs(store: AccountStore) -> None:
    pairs = {"acc_a": AccountProxies(tags=["eu"]), "acc_b": AccountProxies(ids=["prx_1"])}
    store.commit([Write("accounts", each, account(each, "ada", proxies=named)) for each, named in pairs.items()])
    store.put("accounts", account("acc_c", "eve"))
    assert store.clash("prx_1", ["us"]) is None
    assert store.clash("prx_2", ["eu"]) is None
    assert store.clash("prx_1", ["eu", "us"]) == ("ada", "acc_a", "acc_b")


# --- damage and space ---


def test_a_damaged_file_is_refused(data: DataDir) -> None:
    store = open_accounts(data)
    store.commit([Write("accounts", f"acc_{n}", account(f"acc_{n}")) for n in range(200)])
    store.close()
    file = accounts_file(data)
    whole = file.read_bytes()
    for damaged in (b"x" * 100 + whole[100:], whole[:4096] + os.urandom(len(whole) - 8192) + whole[-4096:]):
        file.write_bytes(damaged)
        with pytest.raises(StoreDamaged):
            check_accounts_file(data.store)
        with pytest.raises(StoreDamaged):
            open_accounts(data)
    file.unlink()
    with pytest.raises(StoreDamaged, match="restore"):
        open_accounts(data)


def test_a_file_of_a_later_release_is_refused(data: DataDir) -> None:
    store = open_accounts(data)
    store._database.execute("PRAGMA user_version = 7")
    store.close()
    with pytest.raises(StoreTooNew):
        check_accounts_file(data.store)
    with pytest.raises(StoreTooNew):
        open_accounts(data)


def test_a_full_disk_refuses_a_change_and_leaves_what_was(store: AccountStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put("accounts", account("acc_1"))
    before = store.revision
    with monkeypatch.context() as full:
        full.setattr(shutil, "disk_usage", lambda _path: shutil._ntuple_diskusage(9, 9, 100))  # type: ignore[attr-defined]
        with pytest.raises(StoreWriteError, match="full"):
            store.put("accounts", account("acc_2"))
    assert (store.revision, store.count("accounts")) == (before, 1)
    store.put("accounts", account("acc_2"))


# --- the table ---


def read(data: DataDir) -> tuple[int, list[str]]:
    """Revision of the table, and the accounts of three that are in it."""
    table = TableReader(data.accounts_table)
    try:
        return table.revision, [each for each in ("acc_1", "acc_2", "acc_3") if table.account(each) is not None]
    finally:
        table.close()


def test_there_is_no_table_before_the_first_document(data: DataDir) -> None:
    store = open_accounts(data)
    assert not data.accounts_table.exists()
    store.put("accounts", account("acc_1"))
    store.close()
    assert read(data) == (1, ["acc_1"])


def test_a_start_brings_the_table_up_to_date(data: DataDir) -> None:
    store = AccountStore(data)
    store.put("accounts", account("acc_1"))
    store.close()
    behind = AccountStore(data, publish=False)
    behind.put("accounts", account("acc_2"))
    behind.delete("accounts", "acc_1")
    behind.close()
    assert read(data) == (1, ["acc_1"])
    open_accounts(data).close()
    assert read(data) == (3, ["acc_2"])


@pytest.mark.parametrize("harm", ["damaged", "gone", "of another store", "ahead"])
def test_a_start_makes_the_table_anew_where_it_must(data: DataDir, harm: str) -> None:
    store = AccountStore(data)
    store.put("accounts", account("acc_1"))
    store.close()
    if harm == "damaged":
        data.accounts_table.write_bytes(b"no table" * 1000)
    elif harm == "gone":
        data.accounts_table.unlink()
    elif harm == "of another store":
        start_over_above(data, 500)
    else:
        table = TableWriter(data.accounts_table)
        table.apply([], store.id, 99)
        table.close()
    store = open_accounts(data)
    store.put("accounts", account("acc_2"))
    revision = store.revision
    store.close()
    assert read(data) == (revision, ["acc_1", "acc_2"])
    assert (revision > 500) == (harm == "of another store")


def test_a_table_that_is_overwritten_while_it_is_open_is_made_anew(data: DataDir) -> None:
    store = open_accounts(data)
    store.put("accounts", account("acc_1"))
    with data.accounts_table.open("r+b") as file:
        file.write(b"\xa5" * 16_384)
    store.put("accounts", account("acc_2"))
    store.close()
    assert read(data) == (2, ["acc_1", "acc_2"])


def _identity(file: Path) -> tuple[int, int] | None:
    try:
        found = file.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_ctime_ns


@pytest.mark.parametrize("harm", ["removed", "replaced", "overwritten", "cut short"])
def test_a_table_is_made_anew_while_nothing_changes(data: DataDir, harm: str) -> None:
    store = open_accounts(data)
    store.commit([Write("accounts", f"acc_{each}", account(f"acc_{each}"), 0) for each in range(200)])
    file = data.accounts_table
    if harm == "removed":
        file.unlink()
    elif harm == "replaced":
        (file.parent / "other").write_bytes(b"x" * 8192)
        (file.parent / "other").rename(file)
    elif harm == "overwritten":
        with file.open("r+b") as other:
            other.write(b"\xa5" * 16_384)
    else:
        os.truncate(file, 8192)
    before = _identity(file)
    checks = TableChecks(store, period=0.05)
    checks.start()
    wait_until(lambda: _identity(file) not in (None, before), "it is made anew")
    checks.close()
    store.close()
    assert read(data) == (200, ["acc_1", "acc_2", "acc_3"])


def test_a_table_that_can_not_be_written_gets_the_commit_later(
    data: DataDir, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_accounts(data)
    monkeypatch.setattr("api.store.accounts.publication.RETRY", 0.01)
    data.accounts_table.mkdir()
    with caplog.at_level("INFO"), pytest.raises(NotInEffect):
        store.put("accounts", account("acc_1"))
    assert store.count("accounts") == 1
    data.accounts_table.rmdir()
    with caplog.at_level("INFO"):
        wait_until(lambda: "up to date again" in caplog.text, "a table")
    store.put("accounts", account("acc_2"))
    store.close()
    assert read(data) == (2, ["acc_1", "acc_2"])
