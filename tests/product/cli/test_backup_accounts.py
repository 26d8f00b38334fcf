"""Accounts of the fleet in backups and restores."""

from __future__ import annotations

from typing import Any

import pytest

from actors.accounts.table import AccountTable
from api.backup import restore
from config.model.fleet_accounts import FleetAccount
from config.model.plans import Plan
from tests.kit.own_accounts import OwnAccounts
from tests.product.cli.sites import Site, members_of


def account(username: str, **more: Any) -> dict[str, Any]:
    made = FleetAccount(id=f"acc_{username}", username=username, created_at=1.0, updated_at=1.0, **more)
    return made.model_dump(mode="json")


@pytest.fixture
def filled(site: Site) -> Site:
    """A site with a plan and two accounts."""
    store = OwnAccounts(site.data)
    store.put("plans", Plan(id="pln_1", name="basic", created_at=1.0, updated_at=1.0).model_dump(mode="json"))
    store.put("accounts", account("ada", plan="pln_1"))
    store.put("accounts", account("bob"))
    store.close()
    return site


def names(site: Site) -> list[str]:
    store = OwnAccounts(site.data)
    try:
        return sorted(each.body["username"] for each in store.find("accounts"))
    finally:
        store.close()


def test_accounts_come_back_and_revisions_go_on(filled: Site) -> None:
    site = filled
    file = site.backup()
    assert not [name for name in members_of(file) if name.endswith(("-wal", "-shm"))]
    store = OwnAccounts(site.data)
    store.delete("accounts", "acc_ada")
    store.put("accounts", account("bob", enabled=False))
    store.put("accounts", account("eve"))
    given_out = store.revision
    store.close()
    printed = site.restore(file, "--dry-run").out
    for line in ("added\taccounts\tada", "changed\taccounts\tbob", "removed\taccounts\teve"):
        assert line in printed
    assert "plans" not in printed
    assert names(site) == ["bob", "eve"], "a dry run changes nothing"
    assert site.restore(file, "--yes").status == 0
    assert names(site) == ["ada", "bob"]
    store = OwnAccounts(site.data)
    assert store.horizon > given_out
    assert store.put("accounts", account("eve")).revision > given_out
    store.close()
    table = AccountTable(site.data.fleet)
    assert [len(table.accounts_named(name)) for name in ("ada", "bob", "eve")] == [1, 1, 1]
    table.close()


def test_many_differences_are_counted(filled: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restore, "NAMED_MAX", 1)
    file = filled.backup()
    store = OwnAccounts(filled.data)
    for name in ("ada", "bob"):
        store.delete("accounts", f"acc_{name}")
    store.close()
    printed = filled.restore(file, "--dry-run").out
    assert "added\taccounts\t2 of them" in printed


def test_damaged_accounts_are_in_no_backup(filled: Site) -> None:
    file = filled.data.fleet
    content = bytearray(file.read_bytes())
    content[8192:12288] = bytes(4096)
    file.write_bytes(bytes(content))
    with pytest.raises(Exception, match=r"fleet\.sqlite"):
        filled.backup()


def test_check_config_finds_damaged_accounts(filled: Site) -> None:
    assert "store" in filled.shell("check-config").out
    filled.data.fleet.write_bytes(b"no database" * 1000)
    found = filled.shell("check-config")
    assert found.status != 0
    assert "fleet.sqlite" in found.out + found.err
