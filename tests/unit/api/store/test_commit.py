"""Changes of several documents: whole or never made, wherever the process is killed, whatever the disk refuses."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from actors.sqlite import LARGEST_LOG
from api.store import FleetStore, NotStored, RevisionConflict, StoreWriteError, Write, fleet_file, start_over, tiny
from config.files.paths import DataDir
from tests.kit.ledgers import opened_store


@pytest.fixture
def store(folder: Path) -> FleetStore:
    return filled(folder)


def filled(folder: Path) -> FleetStore:
    """`a` in two collections, `old` in a third."""
    made = opened_store(DataDir(folder))
    made.put("proxies", {"id": "a", "text": "before"})
    made.put("users", {"id": "a", "text": "before"})
    made.put("webhooks", {"id": "old", "text": "before"})
    return made


def change() -> list[Write]:
    """An update, a creation and a deletion, in three collections."""
    return [
        Write("proxies", "a", {"id": "a", "text": "after"}),
        Write("users", "b", {"id": "b", "text": "after"}, expect=0),
        Write("webhooks", "old", None),
    ]


BEFORE = {"proxies": {"a": "before"}, "users": {"a": "before"}, "webhooks": {"old": "before"}}
AFTER = {"proxies": {"a": "after"}, "users": {"a": "before", "b": "after"}, "webhooks": {}}


def content(store: FleetStore) -> dict[str, dict[str, str]]:
    return {name: {each.id: each.body["text"] for each in store.find(name)} for name in BEFORE}


def reopened(folder: Path) -> dict[str, dict[str, str]]:
    store = opened_store(DataDir(folder))
    try:
        return content(store)
    finally:
        store.close()


def test_several_changes_are_made_together_with_one_number(store: FleetStore, folder: Path) -> None:
    first = store.revision + 1
    assert store.commit(change()) == first
    assert content(store) == AFTER
    assert [(each.collection, each.id, each.body is None) for each in store.changed(first - 1)] == [
        ("proxies", "a", False),
        ("users", "b", False),
        ("webhooks", "old", True),
    ]
    store.close()
    again = opened_store(DataDir(folder))
    assert content(again) == AFTER
    assert again.revision == first
    assert again.put("proxies", {"id": "c", "text": ""}).revision == first + 1


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (Write("users", "a", {"id": "a"}, expect=0), RevisionConflict),
        (Write("users", "a", {"id": "a"}, expect=99), RevisionConflict),
        (Write("users", "absent", None), NotStored),
    ],
)
def test_one_change_that_is_refused_refuses_all(
    store: FleetStore, folder: Path, wrong: Write, error: type[Exception]
) -> None:
    revision = store.revision
    with pytest.raises(error):
        store.commit([*change(), wrong])
    assert content(store) == BEFORE
    assert store.revision == revision
    store.close()
    assert reopened(folder) == BEFORE


@pytest.mark.embedded
def test_one_within_another_is_made_or_not_with_it(store: FleetStore, folder: Path) -> None:
    with suppress(KeyError), store.file.transaction():
        store.commit(change())
        assert content(store) == BEFORE, "readers see what is durable"
        raise KeyError
    assert content(store) == BEFORE
    with store.file.transaction():
        with pytest.raises(NotStored):
            store.commit([*change(), Write("users", "absent", None)])
        store.put("proxies", {"id": "c", "text": "kept"})
    assert content(store)["proxies"] == {"a": "before", "c": "kept"}
    store.close()
    assert reopened(folder)["proxies"] == {"a": "before", "c": "kept"}


def test_deletions_in_a_commit_are_pruned_like_others(store: FleetStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiny, "TOMBSTONES_KEPT", 3)
    for number in range(8):
        store.put("users", {"id": f"u{number}", "text": ""})
    store.commit([Write("users", f"u{number}", None) for number in range(8)])
    store.commit(change())
    assert content(store) == AFTER
    with store.file.reading() as database:
        assert database.execute("SELECT count(*) FROM deleted").fetchone()[0] <= 2 * 3


# --- kills --------------------------------------------------------------------------------------------------------


def changed_until(folder: Path, statement: int) -> bool:
    """Make the change in a child, which is killed before this statement; whether it was done before that."""
    child = os.fork()
    if child == 0:
        left = statement
        store = FleetStore(DataDir(folder))

        def count(_statement: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

        store.file.database.set_trace_callback(count)
        store.commit(change())
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, -signal.SIGKILL)
    return status == 0


def test_killed_at_any_statement_of_a_change_a_start_finds_all_of_it_or_nothing(folder: Path) -> None:
    filled(folder).close()
    pristine = {file.name: file.read_bytes() for file in folder.iterdir()}
    for statement in itertools.count():
        done = changed_until(folder, statement)
        assert reopened(folder) == (AFTER if done else BEFORE), statement
        if done:
            break
        for file in folder.iterdir():
            file.unlink()
        for name, content_before in pristine.items():
            (folder / name).write_bytes(content_before)
    assert statement > 10


WRITER = """
import sys
from pathlib import Path
from api.store import FleetStore, Write
from config.files.paths import DataDir
store = FleetStore(DataDir(Path(sys.argv[1])))
found = store.get("proxies", "n")
number = found.body["n"] if found else 0
print("open", flush=True)
while True:
    number += 1
    store.commit([Write(name, "n", {"id": "n", "n": number, "text": "x" * 500}) for name in sys.argv[2:]])
    print(number, flush=True)
"""
TOUCHED = ["proxies", "users", "webhooks", "settings"]


def test_over_many_kills_all_collections_are_of_the_same_change_and_none_that_was_acknowledged_is_lost(
    folder: Path,
) -> None:
    acknowledged = 0
    for round_number in range(6):
        acknowledged = max(acknowledged, write_until_killed(folder, 2 + round_number * 2))
        store = FleetStore(DataDir(folder))
        found = {(store.get(name, "n") or cut_short(name)).body["n"] for name in TOUCHED}
        store.close()
        assert len(found) == 1
        assert found.pop() >= acknowledged
    assert acknowledged > 40


def cut_short(name: str) -> Any:
    raise AssertionError(f"{name} has lost its document")


def write_until_killed(folder: Path, writes: int) -> int:
    """Start a writer, kill it at any moment after so many commits, and tell the last that it acknowledged."""
    command = [sys.executable, "-c", WRITER, str(folder), *TOUCHED]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "open\n"
        acknowledged = [writer.stdout.readline() for _ in range(writes)]
        writer.kill()
        acknowledged += writer.stdout.read().splitlines(keepends=True)
    return max(int(line) for line in acknowledged if line.endswith("\n"))


def test_a_collection_that_is_emptied_leaves_nothing_in_the_file(store: FleetStore, folder: Path) -> None:
    store.put("refresh_families", {"id": "r", "text": "of a sign-in"})
    store.close()
    start_over(DataDir(folder), ["refresh_families"], 500)
    assert b"of a sign-in" not in (folder / "fleet.sqlite").read_bytes()


# --- refused by the disk ------------------------------------------------------------------------------------------


def test_without_room_on_the_disk_nothing_is_begun(
    store: FleetStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_file, "SPARE", 2**60)
    with pytest.raises(StoreWriteError, match="the disk is full"):
        store.commit(change())
    monkeypatch.undo()
    assert content(store) == BEFORE
    store.commit(change())
    assert content(store) == AFTER


def test_a_disk_that_gets_full_in_the_middle_of_a_change_changes_nothing(store: FleetStore, folder: Path) -> None:
    (pages,) = store.file.database.execute("PRAGMA page_count").fetchone()
    store.file.database.execute(f"PRAGMA max_page_count = {pages}")
    revision = store.revision
    with pytest.raises(StoreWriteError, match="full"):
        store.commit([*change(), Write("users", "long", {"id": "long", "text": "x" * 100_000})])
    assert (content(store), store.revision) == (BEFORE, revision)
    store.file.database.execute("PRAGMA max_page_count = 100000")
    store.commit(change())
    store.close()
    assert reopened(folder) == AFTER


def test_what_follows_a_failure_is_tried_once_though_the_disk_refuses_that_too(
    store: FleetStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []
    with suppress(KeyError, StoreWriteError), store.file.transaction():
        store.file.after_failure(lambda: tried.append(store.revision) or (store.put("users", {"id": "n"}) and None))
        monkeypatch.setattr(fleet_file, "SPARE", 2**60)
        raise KeyError
    assert len(tried) == 1


def test_nothing_more_is_made_in_a_change_that_sqlite_has_rolled_back(store: FleetStore) -> None:
    with suppress(StoreWriteError), store.file.transaction() as database:
        database.execute("ROLLBACK")
        store.commit(change())
    assert content(store) == BEFORE
    store.check()


def test_the_log_of_a_large_change_is_short_again_after_the_next_one(store: FleetStore, folder: Path) -> None:
    store.commit([Write("users", str(number), {"id": str(number), "text": "x" * 2**20}) for number in range(40)])
    store.put("proxies", {"id": "a", "text": "next"})
    assert (folder / "fleet.sqlite-wal").stat().st_size <= LARGEST_LOG


def test_indexes_of_empty_tables_are_made_when_these_are_filled_and_are_the_same(store: FleetStore) -> None:
    def indexes() -> dict[str, str]:
        with store.file.reading() as database:
            return dict(database.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'index' AND sql NOT NULL"))

    class Refused(Exception):
        pass

    before, of_documents = indexes(), "documents_by_revision"
    with suppress(Refused), store.file.transaction(), store.file.filling(["plans", "documents"]):
        assert {name for name in before if name not in indexes()} == {"plans_by_name", "plans_by_revision"}
        raise Refused
    assert indexes() == before
    with store.file.transaction() as database, store.file.filling(["plans", "documents"]):
        database.execute("INSERT INTO plans VALUES ('pln_1', 1, 'name', x'', '{}')")
        assert of_documents in indexes()
    assert indexes() == before
    assert store.accounts.plan_named("name") is not None
    with store.file.transaction(), store.file.filling(["plans"]):
        assert indexes() == before
    store.check()
    with store.file.reading() as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
