"""The table of accounts: what its writer puts there, and what readers of other processes see of it."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import pytest

from actors.accounts import table_writer
from actors.accounts.records import AccountRecord, CredentialRecord, PlanRecord, Rules
from actors.accounts.table import VERSION, TableDamaged, TableError, TableReader, digest_of
from actors.accounts.table_writer import CHANGES_KEPT, PutAccount, PutCredential, PutPlan, Remove, TableWriter

STORE = "store-1"
ALICE = AccountRecord("acc_1", "alice", "hash", rules=Rules(quota=(1000, "day"), allow_destinations=("a.example",)))
CREDENTIAL = CredentialRecord("crd_1", "acc_1", "build 7", "pfc_abcdefg", 2e9)


@pytest.fixture
def writer(tmp_path: Path) -> TableWriter:
    return TableWriter.open(tmp_path / "accounts.mdb")


def test_what_was_put_is_read_as_it_was(writer: TableWriter) -> None:
    gold = PlanRecord(
        "pln_1", "gold", Rules(connections=7, schedule=("Europe/Berlin", (((0, 1), 480, 1080),))), disclose=False
    )
    writer.apply([PutAccount(ALICE), PutPlan(gold), PutCredential(CREDENTIAL, digest_of("pfc_x"))], STORE, 3)

    assert writer.account("acc_1") == ALICE
    assert writer.accounts_named("alice") == [ALICE]
    assert writer.plan("pln_1") == gold
    assert writer.credential(digest_of("pfc_x")) == CREDENTIAL
    assert writer.credential_by_id("crd_1") == CREDENTIAL
    assert writer.meta() == (VERSION, STORE, 3)


def test_accounts_are_found_by_their_present_entries_for_certificates(writer: TableWriter) -> None:
    certified = ALICE._replace(certificates=("CN=a", "CN=b"))
    writer.apply([PutAccount(certified)], STORE, 1)
    assert [writer.accounts_certified(entry) for entry in ("CN=a", "CN=b", "CN=c")] == [[certified], [certified], []]

    changed = certified._replace(certificates=("CN=b", "CN=c"))
    other = AccountRecord("acc_2", "bob", certificates=("CN=c",))
    writer.apply([PutAccount(changed), PutAccount(other)], STORE, 2)
    assert [writer.accounts_certified(entry) for entry in ("CN=a", "CN=b")] == [[], [changed]]
    assert writer.accounts_certified("CN=c") == [changed, other]

    writer.apply([Remove("account", "acc_1")], STORE, 3)
    assert [writer.accounts_certified(entry) for entry in ("CN=b", "CN=c")] == [[], [other]]


def test_a_name_that_has_changed(writer: TableWriter) -> None:
    writer.apply([PutAccount(ALICE)], STORE, 1)
    assert writer.accounts_named("bob") == []

    writer.apply([PutAccount(ALICE._replace(username="bob"))], STORE, 2)

    assert writer.accounts_named("alice") == []
    assert [each.id for each in writer.accounts_named("bob")] == ["acc_1"]


def test_accounts_of_one_name_are_all_found(writer: TableWriter) -> None:
    other = AccountRecord("acc_2", "alice", all_proxies=False, proxy_ids=("prx_1",))
    writer.apply([PutAccount(ALICE), PutAccount(other)], STORE, 1)
    assert {each.id for each in writer.accounts_named("alice")} == {"acc_1", "acc_2"}

    writer.apply([Remove("account", "acc_1")], STORE, 2)

    assert [each.id for each in writer.accounts_named("alice")] == ["acc_2"]
    assert writer.account("acc_1") is None


def test_a_removed_credential_is_found_by_nothing(writer: TableWriter) -> None:
    writer.apply([PutCredential(CREDENTIAL, digest_of("pfc_x"))], STORE, 1)
    writer.apply([Remove("credential", "crd_1"), Remove("credential", "crd_unknown")], STORE, 2)

    assert writer.credential(digest_of("pfc_x")) is None
    assert writer.credential_by_id("crd_1") is None


def test_changes_since_a_revision(writer: TableWriter) -> None:
    writer.apply([PutAccount(ALICE)], STORE, 5)
    writer.apply([PutPlan(PlanRecord("pln_1", "gold")), Remove("account", "acc_1")], STORE, 7)

    assert writer.changes(5) == {("plan", "pln_1"), ("account", "acc_1")}
    assert writer.changes(7) == set()
    assert writer.changes(4) is None


def test_a_follower_that_was_away_for_too_long_takes_everything_anew(writer: TableWriter) -> None:
    writer.apply([PutAccount(ALICE)], STORE, 1)
    writer.apply([Remove("credential", f"crd_{each}") for each in range(CHANGES_KEPT)], STORE, 2)

    assert writer.changes(1) is None
    assert len(writer.changes(2) or ()) == 0


def test_a_table_made_anew_has_nothing_of_before(writer: TableWriter) -> None:
    writer.apply([PutAccount(ALICE), PutCredential(CREDENTIAL, digest_of("pfc_x"))], STORE, 4)

    writer.rebuild([PutAccount(AccountRecord("acc_9", "carol"))], "store-2", 2)

    assert writer.account("acc_1") is None
    assert writer.credential(digest_of("pfc_x")) is None
    assert [each.id for each in writer.accounts_named("carol")] == ["acc_9"]
    assert writer.changes(1) is None
    assert writer.changes(4) == set()
    assert writer.meta() == (VERSION, "store-2", 2)


def test_a_commit_that_fails_changes_nothing(writer: TableWriter) -> None:
    writer.apply([PutAccount(ALICE)], STORE, 1)
    with pytest.raises(TypeError):
        writer.apply([Remove("account", "acc_1"), PutAccount(ALICE._replace(tags={1: object()}))], STORE, 2)  # type: ignore[arg-type]

    assert writer.account("acc_1") == ALICE
    assert writer.revision == 1


def test_a_damaged_file_is_replaced_and_its_readers_notice(tmp_path: Path) -> None:
    path = tmp_path / "accounts.mdb"
    TableWriter.open(path).close()
    reader = TableReader(path)
    reader.close()  # in the test it is the same process, which opens a file once
    (tmp_path / "other").write_bytes(b"x" * 8192)
    (tmp_path / "other").rename(path)

    with pytest.raises(TableError, match=r"accounts\.mdb"):
        TableWriter(path)
    table = TableWriter.open(path)
    table.apply([PutAccount(ALICE)], STORE, 1)

    assert reader.replaced
    assert table.account("acc_1") == ALICE


def test_a_file_that_was_cut_short_is_damaged_and_not_read(tmp_path: Path) -> None:
    """Reading what it has no more would end the process."""
    path = tmp_path / "accounts.mdb"
    table = TableWriter.open(path)
    table.apply([PutAccount(ALICE._replace(id=f"acc_{each}", username=f"u{each}")) for each in range(500)], STORE, 1)
    assert not table.replaced
    os.truncate(path, 8192)

    assert table.replaced
    table.close()
    with pytest.raises(TableDamaged, match="cut short"):
        TableReader(path)
    anew = TableWriter.open(path)
    assert anew.meta() is None
    anew.close()


def test_there_is_no_table_before_the_first_start(tmp_path: Path) -> None:
    with pytest.raises(TableError):
        TableReader(tmp_path / "accounts.mdb")


def test_a_name_longer_than_a_key(writer: TableWriter) -> None:
    name = "\U0001f600" * 128
    writer.apply([PutAccount(ALICE._replace(username=name))], STORE, 1)
    assert [each.id for each in writer.accounts_named(name)] == ["acc_1"]


def _read(path: Path, queue: multiprocessing.Queue[str]) -> None:
    found = TableReader(path).account("acc_1")
    queue.put(found.username if found is not None else "")


def test_another_process_reads_it(writer: TableWriter) -> None:
    writer.apply([PutAccount(ALICE)], STORE, 1)
    context = multiprocessing.get_context("spawn")
    queue: multiprocessing.Queue[str] = context.Queue()
    process = context.Process(target=_read, args=(writer.path, queue))
    process.start()

    assert queue.get(timeout=120) == "alice"
    process.join()


def test_a_killed_reader_keeps_no_place_and_no_pages(writer: TableWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was killed in the middle of a look-up."""
    writer.apply([PutAccount(ALICE)], STORE, 1)
    code = (
        "import lmdb, sys, time; env = lmdb.open(sys.argv[1], subdir=False, readonly=True, max_dbs=7);"
        "look_up = env.begin(); print('reads', flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(writer.path)], stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "reads\n"
        reader.kill()
    assert reader.pid in processes_that_read(writer)

    monkeypatch.setattr(table_writer, "READERS_CHECKED", 0.0)
    writer.apply([PutAccount(ALICE)], STORE, 2)
    assert reader.pid not in processes_that_read(writer)


def processes_that_read(writer: TableWriter) -> list[int]:
    _heading, *lines = writer._env.readers().splitlines()
    return [int(line.split()[0]) for line in lines]
