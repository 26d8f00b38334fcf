"""The table of accounts is of one boot and one folder: what another one left is opened by no process."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from actors.accounts.table import TableReader
from actors.accounts.table_writer import TableWriter
from api.store import StoreDamaged
from api.store.accounts import accounts_file, open_accounts
from config.files import accounts_table
from config.files.accounts_table import announce, former_tables, lock_of
from config.files.paths import DataDir, open_data_dir
from config.model.fleet_accounts import FleetAccount

GARBAGE = b"\xa5" * 65_536
"""LMDB may crash on what a power cut left."""


@pytest.fixture
def boot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Gives the machine's boot this id."""

    def set_boot(identifier: str) -> None:
        (tmp_path / "boot_id").write_text(f"{identifier}\n")

    set_boot("f81d4fae")
    monkeypatch.setattr(accounts_table, "BOOT_ID", tmp_path / "boot_id")
    return set_boot


@pytest.fixture
def data(folder: Path, boot: Callable[[str], None]) -> DataDir:
    """One account, and its table."""
    made = open_data_dir(folder.parent / "d")
    add(made, "acc_1")
    return made


def add(data: DataDir, identifier: str) -> None:
    store = open_accounts(data)
    made = FleetAccount(id=identifier, username=identifier, created_at=1.0, updated_at=1.0)
    store.put("accounts", made.model_dump(mode="json"))
    store.close()


def read(data: DataDir) -> list[str]:
    """Those of two accounts that forwarding finds."""
    table = TableReader(data.accounts_table)
    try:
        return [each for each in ("acc_1", "acc_2") if table.account(each) is not None]
    finally:
        table.close()


def tables(data: DataDir) -> list[Path]:
    """All tables, those of before among them, and locks without a table."""
    table = data.accounts_table
    locks = [each for each in data.path.glob("*-lock") if not each.with_name(each.name.removesuffix("-lock")).exists()]
    return [*([table] if table.exists() else []), *former_tables(table), *locks]


def test_after_a_boot_the_table_is_made_anew_and_the_former_one_is_not_opened(
    data: DataDir, boot: Callable[[str], None]
) -> None:
    former = data.accounts_table
    former.write_bytes(GARBAGE)
    boot("a0eebc99")
    assert data.accounts_table != former
    open_accounts(data).close()
    assert read(data) == ["acc_1"]
    assert former.exists() is lock_of(former).exists() is False
    assert tables(data) == [data.accounts_table]


def test_in_one_boot_the_table_stays(data: DataDir, boot: Callable[[str], None]) -> None:
    boot("a0eebc99")
    open_accounts(data).close()
    made = data.accounts_table.stat().st_ino
    add(data, "acc_2")
    assert data.accounts_table.stat().st_ino == made
    assert read(data) == ["acc_1", "acc_2"]


def test_a_table_that_was_copied_with_its_folder_is_not_opened(data: DataDir) -> None:
    data.accounts_table.write_bytes(GARBAGE)  # a copy of a file that is being written may be as torn as this
    copy = DataDir(data.path.with_name("copy"))
    shutil.copytree(data.path, copy.path)
    open_accounts(copy).close()
    assert read(copy) == ["acc_1"]
    assert tables(copy) == [copy.accounts_table]


def test_a_folder_that_was_moved_keeps_its_table(data: DataDir) -> None:
    moved = DataDir(data.path.rename(data.path.with_name("moved")))
    assert tables(moved) == [moved.accounts_table]
    assert read(moved) == ["acc_1"]


def test_a_table_of_before_shows_that_there_were_accounts(data: DataDir, boot: Callable[[str], None]) -> None:
    boot("a0eebc99")
    accounts_file(data).unlink()
    with pytest.raises(StoreDamaged, match="is gone"):
        open_accounts(data)
    assert len(tables(data)) == 1


def test_where_accounts_are_announced_there_is_a_table_after_the_start_even_if_it_is_empty(folder: Path) -> None:
    data = open_data_dir(folder.parent / "d")
    open_accounts(data).close()
    assert not tables(data)
    announce(data.path)
    open_accounts(data).close()
    assert tables(data) == [data.accounts_table]
    assert read(data) == []


def test_a_former_table_that_can_not_be_removed_is_left_alone(
    data: DataDir, boot: Callable[[str], None], caplog: pytest.LogCaptureFixture
) -> None:
    former = data.accounts_table
    former.unlink()
    former.mkdir()
    boot("a0eebc99")
    add(data, "acc_2")
    assert "cannot be removed" in caplog.text
    assert read(data) == ["acc_1", "acc_2"]


def test_only_a_machine_that_hides_its_boots_syncs_the_table(
    data: DataDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound = TableWriter(data.accounts_table)
    assert bound._env.flags()["sync"] is False
    bound.close()
    monkeypatch.setattr(accounts_table, "BOOT_ID", tmp_path / "hidden")
    synced = TableWriter(data.accounts_table)
    assert synced._env.flags()["sync"] is True
    synced.close()


# --- deaths ---


@pytest.mark.parametrize(
    ("step", "made"), [("_replace_former", False), ("_remove_former", False), ("_bring_to", False), ("_bring_to", True)]
)
def test_a_start_after_a_boot_that_is_killed_is_made_good_by_the_next(
    data: DataDir, boot: Callable[[str], None], step: str, made: bool
) -> None:
    """It is killed before the step, or right behind the one that makes the table."""
    code = (
        "import os, sys; from pathlib import Path; from config.files import accounts_table;"
        "from config.files.paths import DataDir; from api.store.accounts import Published, open_accounts;"
        "accounts_table.BOOT_ID = Path(sys.argv[2]);"
        f"step = Published.{step};"
        f"Published.{step} = lambda *given: ({made} and step(*given), os.kill(os.getpid(), 9));"
        "open_accounts(DataDir(Path(sys.argv[1])))"
    )
    former = data.accounts_table
    former.write_bytes(GARBAGE)
    boot("a0eebc99")
    died = subprocess.run([sys.executable, "-c", code, str(data.path), str(accounts_table.BOOT_ID)], check=False)
    assert died.returncode == -signal.SIGKILL
    assert former_tables(data.accounts_table), "which tell forwarding to wait until there is a table in their place"
    assert data.accounts_table.exists() == made
    open_accounts(data).close()
    assert read(data) == ["acc_1"]
    assert tables(data) == [data.accounts_table]


def test_a_table_is_whole_whenever_its_writer_is_killed(data: DataDir) -> None:
    """It is not synced: what it wrote before its death is in the page cache."""
    code = (
        "import sys; from pathlib import Path; from actors.accounts.table_writer import *;"
        "from actors.accounts.records import AccountRecord;"
        "table = TableWriter(Path(sys.argv[1]));"
        "[(table.apply([PutAccount(AccountRecord(f'acc_{n}', f'u{n}'))], 'store', n), print(n, flush=True))"
        " for n in range(table.revision + 1, 10**9)]"
    )
    for commits in (1, 7, 40, 150):
        with subprocess.Popen(
            [sys.executable, "-c", code, str(data.accounts_table)], stdout=subprocess.PIPE, text=True
        ) as writer:
            assert writer.stdout is not None
            for _ in range(commits):
                last = int(writer.stdout.readline())
            os.kill(writer.pid, signal.SIGKILL)
        table = TableReader(data.accounts_table)
        assert table.revision >= last
        assert all(table.accounts_named(f"u{number}") for number in range(2, table.revision + 1))
        table.close()
