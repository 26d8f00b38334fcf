"""What forwarding actors read of accounts, plans and credentials that the API stores."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import msgpack
import pytest

from actors.accounts import table as module
from actors.accounts.records import AccountRecord, CredentialRecord, InheritedRules, PlanRecord
from actors.accounts.table import AccountTable, TableError, digest_of
from api.store.accounts import store as store_module
from config.files.paths import open_data_dir
from config.passwords import hash_password
from tests.kit.fleet_accounts import FleetAccounts

ALICE = AccountRecord(
    "acc_1",
    "alice",
    "hash",
    expires_at=5.0,
    tags=("ci",),
    rules=InheritedRules(quota=(1000, "day"), allow_destinations=("a.example",)),
)
CREDENTIAL = CredentialRecord("crd_1", "acc_1", "build 7", "pfc_abcdefg", 2e9, allow_destinations=("b.example",))


@pytest.fixture
def accounts(tmp_path: Path) -> Iterator[FleetAccounts]:
    made = FleetAccounts(open_data_dir(tmp_path / "data"))
    yield made
    made.close()


@pytest.fixture
def table(accounts: FleetAccounts) -> Iterator[AccountTable]:
    with closing(AccountTable(accounts.path)) as opened:
        yield opened


def test_what_was_stored_is_read(accounts: FleetAccounts, table: AccountTable) -> None:
    schedule = ("Europe/Berlin", (((0, 1), 480, 1080),))
    gold = PlanRecord("pln_1", "gold", InheritedRules(connections=7, schedule=schedule), disclose=False)
    number = accounts.put(ALICE, gold)
    accounts.put_credential(CREDENTIAL, "pfc_x")

    assert table.account("acc_1") == ALICE
    assert table.accounts_named("alice") == [ALICE]
    assert table.plan("pln_1") == gold
    assert table.credential(digest_of("pfc_x")) == CREDENTIAL
    assert table.credential_by_id("crd_1") == CREDENTIAL
    assert table.revision == (number + 1, 0)


def test_what_is_not_there_is_not_found(table: AccountTable) -> None:
    assert (table.account("acc_1"), table.plan("pln_1"), table.credential_by_id("crd_1")) == (None, None, None)
    assert (table.accounts_named("alice"), table.accounts_certified("CN=a")) == ([], [])
    assert (table.credential(digest_of("pfc_x")), table.most_rounds(), table.revision) == (None, 0, (0, 0))


def test_a_name_that_is_no_utf_8_is_no_accounts(accounts: FleetAccounts, table: AccountTable) -> None:
    accounts.put(ALICE)
    for name in ("alice\udcff", "alice\0", "Alice", "alic", "\U0001f600" * 4096):
        assert table.accounts_named(name) == []
        assert table.accounts_certified(name) == []


def test_accounts_are_found_by_their_entries_for_certificates(accounts: FleetAccounts, table: AccountTable) -> None:
    certified = ALICE._replace(certificates=("CN=a", "CN=b"))
    accounts.put(certified)
    assert [table.accounts_certified(entry) for entry in ("CN=a", "CN=b", "CN=c")] == [[certified], [certified], []]

    changed = certified._replace(certificates=("CN=b", "CN=c"))
    other = AccountRecord("acc_2", "bob", certificates=("CN=c",))
    accounts.put(changed, other)
    assert [table.accounts_certified(entry) for entry in ("CN=a", "CN=b")] == [[], [changed]]
    assert table.accounts_certified("CN=c") == [changed, other]

    accounts.remove(changed)
    assert [table.accounts_certified(entry) for entry in ("CN=b", "CN=c")] == [[], [other]]


def test_a_name_that_has_changed(accounts: FleetAccounts, table: AccountTable) -> None:
    accounts.put(ALICE)
    accounts.put(ALICE._replace(username="bob"))

    assert table.accounts_named("alice") == []
    assert [each.id for each in table.accounts_named("bob")] == ["acc_1"]


def test_accounts_of_one_name_are_all_found(accounts: FleetAccounts, table: AccountTable) -> None:
    other = AccountRecord("acc_2", "alice", all_proxies=False, proxy_ids=("prx_1",))
    accounts.put(ALICE, other)
    assert {each.id for each in table.accounts_named("alice")} == {"acc_1", "acc_2"}

    accounts.remove(ALICE)

    assert [each.id for each in table.accounts_named("alice")] == ["acc_2"]
    assert table.account("acc_1") is None


def test_the_most_expensive_password_that_costs_more_than_ours(accounts: FleetAccounts, table: AccountTable) -> None:
    dear, dearer = (f"$2b${cost}${hash_password('x', 4)[7:]}" for cost in (11, 12))
    accounts.put(ALICE._replace(password_hash=hash_password("x", 4)))
    assert table.most_rounds() == 0
    accounts.put(AccountRecord("acc_2", "bob", dear), AccountRecord("acc_3", "eve", dearer))
    assert table.most_rounds() == 1 << 12
    accounts.remove(AccountRecord("acc_3", "eve"))
    assert table.most_rounds() == 1 << 11


def test_changes_since_a_revision(accounts: FleetAccounts, table: AccountTable) -> None:
    first = accounts.put(ALICE)
    accounts.put_credential(CREDENTIAL, "pfc_x")
    accounts.put(PlanRecord("pln_1", "gold"))
    last = accounts.remove(ALICE)

    assert table.changes((0, 0)) == table.changes((first, 0))
    assert table.changes((first, 0)) == {("plan", "pln_1"), ("account", "acc_1"), ("credential", "crd_1")}
    assert table.changes((last, 0)) == set()


def test_a_follower_that_was_away_for_too_long_takes_everything_anew(
    accounts: FleetAccounts, table: AccountTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    since = accounts.put(ALICE), 0
    monkeypatch.setattr(module, "CHANGES_MAX", 3)
    accounts.put(*(AccountRecord(f"acc_x{each}", f"x{each}") for each in range(3)))
    assert len(table.changes(since) or ()) == 3
    accounts.put(PlanRecord("pln_1", "gold"))
    assert table.changes(since) is None

    since = table.revision
    monkeypatch.setattr(store_module, "GONE_KEPT", 1)
    for each in range(2):
        accounts.remove(AccountRecord(f"acc_x{each}", f"x{each}"))
    assert table.changes(since) is None, "of deletions the last alone are remembered"
    assert table.changes(table.revision) == set()


def test_there_is_no_table_before_the_first_start(tmp_path: Path) -> None:
    with pytest.raises(TableError, match=r"fleet\.sqlite"):
        AccountTable(tmp_path / "fleet.sqlite")
    assert list(tmp_path.iterdir()) == []


def _cut(path: Path) -> None:
    os.truncate(path, 8192)


def _overwrite(path: Path) -> None:
    path.write_bytes(b"no database" * 4096)


def _without_tables(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE other (id TEXT)")


@pytest.mark.parametrize("harm", [_cut, _overwrite, _without_tables])
def test_a_damaged_file_is_not_read(accounts: FleetAccounts, harm: Callable[[Path], None]) -> None:
    accounts.put(*(ALICE._replace(id=f"acc_{each}", username=f"u{each}") for each in range(500)))
    accounts.close()
    harm(accounts.path)

    with pytest.raises(TableError, match=r"fleet\.sqlite"):
        AccountTable(accounts.path)


def test_a_row_of_an_earlier_release_lacks_the_last_fields(accounts: FleetAccounts, table: AccountTable) -> None:
    accounts.put(ALICE)
    accounts.store._file.database.execute("UPDATE accounts SET packed = ?", [msgpack.packb(("acc_1", "alice"))])
    assert table.account("acc_1") == AccountRecord("acc_1", "alice")


def test_a_row_of_a_later_release_or_a_damaged_one_is_no_record(accounts: FleetAccounts, table: AccountTable) -> None:
    accounts.put(ALICE)
    later = msgpack.packb((*ALICE, "another field"))
    for packed in (later, b"\x91\xa5acc_1", b"no record", b""):
        accounts.store._file.database.execute("UPDATE accounts SET packed = ?", [packed])
        with pytest.raises((ValueError, TypeError)):
            table.account("acc_1")


def test_a_file_that_is_locked_is_not_waited_for(accounts: FleetAccounts, table: AccountTable) -> None:
    accounts.put(ALICE)
    accounts.close()
    table.close()
    with closing(sqlite3.connect(accounts.path)) as other:
        other.execute("PRAGMA locking_mode=EXCLUSIVE")
        other.execute("INSERT INTO gone VALUES ('accounts', 'acc_9', 9)")
        began = time.monotonic()
        with pytest.raises(TableError, match="locked"):
            AccountTable(accounts.path)
        assert time.monotonic() - began < 1.0


def test_another_file_in_its_place_shows(accounts: FleetAccounts, table: AccountTable) -> None:
    accounts.put(ALICE)
    accounts.close()
    assert not table.replaced
    whole = accounts.path.read_bytes()
    accounts.path.unlink()
    assert not table.replaced
    assert table.account("acc_1") == ALICE
    accounts.path.write_bytes(whole)
    assert table.replaced


def test_a_file_that_is_cut_short_shows(accounts: FleetAccounts, table: AccountTable) -> None:
    accounts.put(ALICE)
    accounts.close()
    assert not table.replaced, "it has grown"
    _cut(accounts.path)
    assert table.replaced


def test_neither_a_commit_under_way_nor_one_that_fails_is_seen(accounts: FleetAccounts, table: AccountTable) -> None:
    number = accounts.put(ALICE)
    with suppress(RuntimeError), accounts.store._file.transaction():
        accounts.put(ALICE._replace(username="bob"))
        assert (table.account("acc_1"), table.revision) == (ALICE, (number, 0))
        raise RuntimeError
    assert (table.account("acc_1"), table.changes((number, 0))) == (ALICE, set())


def test_the_death_of_the_writer_at_any_commit_leaves_whole_tables(tmp_path: Path) -> None:
    data = open_data_dir(tmp_path / "data")
    code = (
        "import sys; from pathlib import Path; from config.files.paths import DataDir;"
        "from actors.accounts.records import AccountRecord; from tests.kit.fleet_accounts import FleetAccounts;"
        "accounts = FleetAccounts(DataDir(Path(sys.argv[1])));"
        "[print(accounts.put(*(AccountRecord(f'acc_{part}', f'u{number}') for part in range(9))), flush=True)"
        " for number in range(100_000)]"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(data.path)], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        acknowledged = [int(writer.stdout.readline()) for _ in range(5)][-1]
        with closing(AccountTable(data.fleet)) as table:
            writer.kill()
            writer.wait()
            names = {found.username for part in range(9) if (found := table.account(f"acc_{part}")) is not None}
            assert len(names) == 1
            assert table.revision >= (acknowledged, 0)
            assert len(table.accounts_named(names.pop())) == 9
