"""What happens to the file of the store: cut and altered, replaced, a full disk, a release from the future."""

from __future__ import annotations

import os
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from api.engine.commit import Engine
from api.engine.ledger import note_stamp
from api.store import (
    FleetStore,
    StoreDamaged,
    StoreError,
    StoreTooNew,
    StoreWriteError,
    Write,
    check_fleet_file,
    fleet_file,
    open_store,
)
from config.files.paths import DataDir
from tests.kit.tables import table

pytestmark = pytest.mark.embedded
COLLECTIONS = ("proxies", "users")


@pytest.fixture
def data(folder: Path) -> DataDir:
    """A data directory whose store has the documents `a` and `b`, and which has keys."""
    data = DataDir(folder.parent)
    store = FleetStore(data)
    store.put("proxies", {"id": "a", "text": "some text"})
    store.put("proxies", {"id": "b", "text": "other text"})
    store.close()
    data.keys.mkdir()
    (data.keys / "secrets.key").write_text("00")
    return data


@pytest.fixture
def file(data: DataDir) -> Path:
    return data.fleet


def ids(store: FleetStore) -> list[str]:
    return [each.id for each in store.find("proxies")]


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-5000])


def empty(file: Path) -> None:
    file.write_bytes(b"")


def overwrite(file: Path) -> None:
    file.write_bytes(b"this is no store" * 1000)


def alter_a_text(file: Path) -> None:
    content = file.read_bytes()
    assert b"other text" in content
    file.write_bytes(content.replace(b"other text", b"other tent"))


def remove(file: Path) -> None:
    file.unlink()


@pytest.mark.parametrize("damage", [cut, empty, overwrite, alter_a_text, remove])
def test_a_damaged_file_is_refused_with_what_to_do_and_left_as_it_is(
    data: DataDir, file: Path, damage: Callable[[Path], None]
) -> None:
    damage(file)
    before = {path.name: path.read_bytes() for path in data.path.iterdir() if path.suffix == ".sqlite"}
    for _ in range(2):
        with pytest.raises(StoreDamaged, match="restore it"):
            open_store(data)
    assert {path.name: path.read_bytes() for path in data.path.iterdir() if path.suffix == ".sqlite"} == before


def test_an_altered_document_is_named(data: DataDir, file: Path) -> None:
    alter_a_text(file)
    with pytest.raises(StoreDamaged, match="proxies/b"):
        open_store(data)
    with pytest.raises(StoreDamaged, match="proxies/b"):
        check_fleet_file(data)


def test_every_altered_octet_is_noticed_or_changes_nothing(data: DataDir, file: Path) -> None:
    with closing(open_store(data)) as store:
        store.delete("proxies", "a")
        before = {name: store.find(name) for name in COLLECTIONS}, store.revision, store.changed(0)
    whole, noticed = file.read_bytes(), list[str]()
    positions = [each for each, octet in enumerate(whole) if octet]
    for number, position in enumerate(positions[:: max(1, len(positions) // 800)]):
        altered = bytearray(whole)
        altered[position] ^= (0x01, 0x04, 0x80)[number % 3]
        file.write_bytes(altered)
        try:
            with closing(open_store(data)) as store:
                found = {name: store.find(name) for name in COLLECTIONS}, store.revision, store.changed(0)
                assert found == before, position
        except StoreError as error:
            noticed.append(str(error))
    assert len(noticed) > 120
    assert not [each for each in noticed if "other text" in each]


@table(
    "statement",
    [
        "CREATE TRIGGER t AFTER DELETE ON documents BEGIN SELECT 1; END", "CREATE VIEW v AS SELECT 1",
        "DELETE FROM steps", "UPDATE steps SET revision = 1", "UPDATE steps SET revision = 9223372036854775807",
        "UPDATE documents SET collection = 'userr'", "UPDATE documents SET id = 'c' WHERE id = 'b'",
        "UPDATE documents SET revision = 'abc' WHERE id = 'b'",
        "UPDATE documents SET body = CAST(x'7b22ff227d' AS TEXT) WHERE id = 'b'",
    ],
)  # fmt: skip
def test_what_others_did_to_the_file_is_refused(data: DataDir, file: Path, statement: str) -> None:
    whole = file.read_bytes()
    with closing(sqlite3.connect(file)) as database, database:
        database.execute(statement)
    for attempt in (lambda: open_store(data), lambda: check_fleet_file(data)):
        with pytest.raises(StoreDamaged, match="restore it"):
            attempt()
    file.write_bytes(whole)


def test_a_file_to_which_the_product_commits_during_the_check_is_sound(
    data: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(open_store(data)) as store, closing(fleet_file.open_for_reading(data.fleet)) as reading:
        before = store.revision
        reading.set_trace_callback(lambda _statement: store.put("proxies", {"id": "a", "text": "new"}) and None)
        monkeypatch.setattr(fleet_file, "open_for_reading", lambda _file: reading)
        check_fleet_file(data)
        assert store.revision > before + 10


def test_a_file_without_its_log_is_no_first_start(data: DataDir, file: Path) -> None:
    for each in data.path.glob("fleet.sqlite*"):
        each.unlink()
    store = FleetStore(data)
    store.put("users", {"id": "u"})
    whole = file.read_bytes()
    store.close()
    file.write_bytes(whole)
    with closing(open_store(data)) as store:
        assert [each.id for each in store.find("users")] == ["u"]


class FailingSync:
    """A connection whose commits fail in their sync."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    def execute(self, statement: str, *more: Any) -> Any:
        if statement == "COMMIT":
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
            raise error
        return self._database.execute(statement, *more)


def test_after_a_sync_that_failed_nothing_more_is_built_on_it(data: DataDir) -> None:
    with closing(open_store(data)) as store:
        store.file.database = FailingSync(store.file.database)  # type: ignore[assignment]
        with pytest.raises(StoreWriteError, match="disk I/O error"):
            store.put("proxies", {"id": "c"})
        with pytest.raises(StoreWriteError, match="restart"):
            store.put("proxies", {"id": "d"})
        with pytest.raises(StoreWriteError, match="restart"):
            store.check()
        assert ids(store) == ["a", "b"]


def test_damage_that_a_change_finds_refuses_it_and_is_known_from_then_on(data: DataDir, file: Path) -> None:
    with closing(sqlite3.connect(file)) as database:
        (page,) = database.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'audit_by_time'").fetchone()
    content = file.read_bytes()
    file.write_bytes(content[: (page - 1) * 4096] + b"x" * 4096 + content[page * 4096 :])
    with closing(Engine(data, None)) as engine:
        engine.check()
        with pytest.raises(StoreDamaged, match="restore it"):
            engine.put("proxies", {"id": "c", "name": "c"})
        with pytest.raises(StoreDamaged, match="restore it"):
            engine.check()


def test_a_later_format_is_refused_and_left_alone(data: DataDir, file: Path) -> None:
    with closing(sqlite3.connect(file)) as database:
        database.execute("PRAGMA user_version = 99")
    before = file.read_bytes()
    for attempt in (lambda: open_store(data), lambda: check_fleet_file(data)):
        with pytest.raises(StoreTooNew, match="format 99"):
            attempt()
    assert file.read_bytes() == before


def test_a_file_that_is_replaced_while_it_is_open_is_noticed(data: DataDir, file: Path) -> None:
    with closing(open_store(data)) as store:
        store.check()
        file.rename(file.with_name("elsewhere"))
        with pytest.raises(StoreDamaged):
            store.check()
        file.write_bytes(b"")
        with pytest.raises(StoreDamaged, match="replaced"):
            store.check()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a file system that is full")
def test_on_a_full_disk_the_old_data_stays(folder: Path) -> None:
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m,mode=0700", "tmpfs", str(folder)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("mounting is not allowed here")
    try:
        store = FleetStore(DataDir(folder))
        kept = _fill(store)
        assert ids(store) == kept
        store.close()
        again = FleetStore(DataDir(folder))
        assert ids(again) == kept
        again.close()
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a file system that is full")
def test_a_change_too_large_for_the_disk_leaves_room_for_others(folder: Path) -> None:
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m,mode=0700", "tmpfs", str(folder)]).returncode:
        pytest.skip("mounting is not allowed here")
    many = [Write("proxies", f"p{number}", {"id": f"p{number}", "x": "x" * 2000}) for number in range(5000)]
    try:
        store = FleetStore(DataDir(folder))
        store.put("proxies", {"id": "a"})
        with pytest.raises(StoreWriteError):
            store.commit(many)
        with pytest.raises(StoreWriteError), store.file.transaction():  # one whose size isn't known before
            store.commit(many)
        store.put("proxies", {"id": "b"})
        store.close()
        again = FleetStore(DataDir(folder))
        assert ids(again) == ["a", "b"]
        again.close()
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def _fill(store: FleetStore) -> list[str]:
    kept: list[str] = []
    for number in range(2000):
        try:
            store.put("proxies", {"id": f"p{number}", "text": "x" * 4000})
        except StoreWriteError:
            return kept
        kept.append(f"p{number}")
    raise AssertionError("the disk was never full")


def test_a_file_from_before_there_were_fleets_is_sound_and_gets_what_it_lacks(data: DataDir, file: Path) -> None:
    with closing(sqlite3.connect(file)) as database:
        database.executescript(
            """
            DROP TABLE stamps; DROP TABLE loose; DROP TABLE loose_heads;
            CREATE TABLE ledger (
    one INTEGER PRIMARY KEY CHECK (one = 1), number INTEGER NOT NULL, stamp TEXT NOT NULL
);
            """
        )
    check_fleet_file(data)
    with closing(open_store(data)) as store:
        assert ids(store) == ["a", "b"]
    with closing(Engine(data, None)) as engine, engine.file.transaction() as database:
        note_stamp(database, 1, uuid4())
        assert engine.stamped()[0] == 2
    check_fleet_file(data)
