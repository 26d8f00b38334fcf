"""Accounts of the fleet in backups and restores, and the table that forwarding actors read."""

from __future__ import annotations

from typing import Any

import pytest

from actors.accounts.table import TableReader
from api.backup import accounts as digests
from api.store.accounts import AccountStore, accounts_file, open_accounts
from config.files.accounts_table import former_tables
from config.model.fleet_accounts import FleetAccount
from config.model.plans import Plan
from tests.product.cli.sites import Site, members_of


def account(username: str, **more: Any) -> dict[str, Any]:
    made = FleetAccount(id=f"acc_{username}", username=username, created_at=1.0, updated_at=1.0, **more)
    return made.model_dump(mode="json")


@pytest.fixture
def filled(site: Site) -> Site:
    """A site with a plan and two accounts."""
    store = open_accounts(site.data)
    store.put("plans", Plan(id="pln_1", name="basic", created_at=1.0, updated_at=1.0).model_dump(mode="json"))
    store.put("accounts", account("ada", plan="pln_1"))
    store.put("accounts", account("bob"))
    store.close()
    return site


def names(site: Site) -> list[str]:
    store = AccountStore(site.data, publish=False)
    try:
        return sorted(each.body["username"] for each in store.find("accounts"))
    finally:
        store.close()


def test_accounts_come_back_and_revisions_go_on(filled: Site) -> None:
    site = filled
    file = site.backup()
    assert "store/accounts.sqlite" in members_of(file)
    assert not [name for name in members_of(file) if name.endswith((".mdb", "-wal", "-shm"))]
    store = open_accounts(site.data)
    store.delete("accounts", "acc_ada")
    store.put("accounts", account("bob", enabled=False))
    store.put("accounts", account("eve"))
    given_out, former = store.revision, store.id
    store.close()
    printed = site.restore(file, "--dry-run").out
    for line in ("added\taccounts\tada", "changed\taccounts\tbob", "removed\taccounts\teve"):
        assert line in printed
    assert "plans" not in printed
    assert names(site) == ["bob", "eve"], "a dry run changes nothing"
    assert site.restore(file, "--yes").status == 0
    assert not site.data.accounts_table.exists(), "of the accounts before the restore"
    assert former_tables(site.data.accounts_table), "forwarding waits for the table of the restored ones"
    assert names(site) == ["ada", "bob"]
    store = open_accounts(site.data)
    assert store.id != former
    assert store.put("accounts", account("eve")).revision > given_out
    store.close()
    table = TableReader(site.data.accounts_table)
    assert [len(table.accounts_named(name)) for name in ("ada", "bob", "eve")] == [1, 1, 1]
    table.close()


def test_a_backup_of_before_there_were_accounts_is_restored_without_them(site: Site) -> None:
    accounts_file(site.data).unlink(missing_ok=True)
    file = site.backup()
    store = open_accounts(site.data)
    store.put("accounts", account("ada"))
    store.close()
    assert site.restore(file, "--yes").status == 0
    assert not site.data.accounts_table.exists()
    assert not former_tables(site.data.accounts_table)
    store = open_accounts(site.data)
    assert store.count("accounts") == 0
    store.close()


def test_many_differences_are_counted(filled: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digests, "NAMED_MAX", 1)
    file = filled.backup()
    store = open_accounts(filled.data)
    for name in ("ada", "bob"):
        store.delete("accounts", f"acc_{name}")
    store.close()
    printed = filled.restore(file, "--dry-run").out
    assert "added\taccounts\t2 of them" in printed


def test_damaged_accounts_are_in_no_backup(filled: Site) -> None:
    file = accounts_file(filled.data)
    content = bytearray(file.read_bytes())
    content[8192:12288] = bytes(4096)
    file.write_bytes(bytes(content))
    with pytest.raises(Exception, match=r"accounts\.sqlite"):
        filled.backup()


def test_check_config_finds_damaged_accounts(filled: Site) -> None:
    assert "accounts" in filled.shell("check-config").out
    accounts_file(filled.data).write_bytes(b"no database" * 1000)
    found = filled.shell("check-config")
    assert found.status != 0
    assert "accounts.sqlite" in found.out + found.err
