"""The embedded store: documents, revisions, changes, and threads."""

from __future__ import annotations

import tempfile
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from api.store import Change, HistoryPruned, NotStored, RevisionConflict, StoreDamaged, Write, open_store, tiny
from api.store.fleet_file import FleetFile
from config.files.paths import DataDir, open_data_dir
from tests.kit.folders import FOLDERS
from tests.kit.ledgers import opened_store


def named(identifier: str, **fields: Any) -> dict[str, Any]:
    return {"id": identifier, **fields}


def test_a_stored_document_is_found_again_after_reopening(folder: Path) -> None:
    store = opened_store(DataDir(folder))
    stored = store.put("proxies", named("a", port=1, tags=["ä", "\u2028"]))
    store.close()
    again = opened_store(DataDir(folder)).get("proxies", "a")
    assert again == stored
    assert again is not None
    assert again.body == {"id": "a", "port": 1, "tags": ["ä", "\u2028"]}


def test_each_commit_is_synced_but_for_those_that_ask_for_less(folder: Path) -> None:
    normal, full = 1, 2
    with closing(FleetFile(folder / "fleet.sqlite")) as file:

        def level() -> int:
            return int(file.database.execute("PRAGMA synchronous").fetchone()[0])

        with file.transaction():
            assert level() == full
            with file.transaction(synced=False):
                assert level() == full
        with file.transaction(synced=False):
            assert level() == normal
        with pytest.raises(ZeroDivisionError), file.transaction(synced=False):
            raise ZeroDivisionError
        assert level() == full


def test_every_change_in_any_collection_is_one_step_of_one_counter(folder: Path) -> None:
    store = opened_store(DataDir(folder))
    begin = store.revision
    steps = [
        store.put("proxies", named("a")).revision,
        store.put("users", named("a")).revision,
        store.put("proxies", named("a", port=2)).revision,
        store.delete("users", "a"),
    ]
    assert steps == [begin + 1, begin + 2, begin + 3, begin + 4]
    store.close()
    assert opened_store(DataDir(folder)).revision == begin + 4


def test_what_is_read_or_was_given_is_the_readers_own(folder: Path) -> None:
    store = opened_store(DataDir(folder))
    given = named("a", tags=["x"])
    store.put("proxies", given)
    given["tags"].append("y")
    read = store.get("proxies", "a")
    assert read is not None
    read.body["tags"].append("z")
    assert [each.body["tags"] for each in store.find("proxies")] == [["x"]]


def test_put_with_expect_refuses_what_someone_else_changed(folder: Path) -> None:
    store = opened_store(DataDir(folder))
    first = store.put("proxies", named("a"), expect=0)
    store.put("proxies", named("a", port=2), expect=first.revision)
    with pytest.raises(RevisionConflict) as caught:
        store.put("proxies", named("a", port=3), expect=first.revision)
    assert caught.value.actual == first.revision + 1
    with pytest.raises(RevisionConflict):
        store.put("proxies", named("a"), expect=0)
    with pytest.raises(RevisionConflict):
        store.delete("proxies", "a", expect=first.revision)


def test_find_by_fields_and_by_predicate(folder: Path) -> None:
    store = opened_store(DataDir(folder))
    for number in range(5):
        store.put("proxies", named(f"p{number}", port=number, protocol="http" if number % 2 else "https"))
    assert [each.id for each in store.find("proxies", protocol="http")] == ["p1", "p3"]
    assert [each.id for each in store.find("proxies", lambda body: body["port"] > 2, protocol="http")] == ["p3"]


def test_a_deleted_document_is_gone_and_may_come_again(folder: Path) -> None:
    store = opened_store(DataDir(folder))
    store.put("proxies", named("a"))
    store.delete("proxies", "a")
    assert store.get("proxies", "a") is None
    assert store.find("proxies") == []
    with pytest.raises(NotStored):
        store.delete("proxies", "a")
    assert store.put("proxies", named("a"), expect=0).body == {"id": "a"}


def test_changes_tell_each_document_once_deletions_too(folder: Path) -> None:
    store = opened_store(DataDir(folder))
    store.put("proxies", named("a"))
    since = store.revision
    store.put("proxies", named("a", port=1))
    store.put("users", named("u"))
    store.put("proxies", named("b"))
    store.delete("proxies", "b")
    assert store.changed(since) == [
        Change("proxies", "a", since + 1, {"id": "a", "port": 1}),
        Change("users", "u", since + 2, {"id": "u"}),
        Change("proxies", "b", since + 4, None),
    ]


def test_a_follower_that_missed_forgotten_deletions_is_informed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiny, "TOMBSTONES_KEPT", 3)
    store = opened_store(DataDir(folder))
    since = store.revision
    for number in range(10):
        store.put("proxies", named(f"p{number}"))
        store.delete("proxies", f"p{number}")
    store.put("proxies", named("last"))
    with pytest.raises(HistoryPruned) as caught:
        store.changed(since)
    changes = store.changed(caught.value.horizon)
    assert changes[-1].id == "last"
    assert 3 <= len(changes) <= 7
    newest = store.revision
    store.close()
    assert opened_store(DataDir(folder)).revision == newest


def test_a_deletion_of_what_was_deleted_before_and_put_back_is_not_forgotten_with_the_first(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiny, "TOMBSTONES_KEPT", 6)
    names = [f"p{number}" for number in range(6)]
    store = opened_store(DataDir(folder))
    for _ in range(2):
        store.commit([Write("proxies", name, named(name)) for name in names])
        since = store.revision
        store.commit([Write("proxies", name, None) for name in names])
    assert [each.id for each in store.changed(since) if each.body is None] == names


def test_threads_lose_no_change(folder: Path) -> None:
    store = opened_store(DataDir(folder))
    begin = store.revision
    revisions: list[int] = []

    def write(thread: int) -> None:
        for number in range(25):
            revisions.append(store.put("proxies", named(f"{thread}-{number}")).revision)
            assert store.get("proxies", f"{thread}-{number}") is not None
            store.find("proxies", lambda body: body["id"].endswith("7"))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(revisions) == list(range(begin + 1, begin + 101))
    store.close()
    assert len(opened_store(DataDir(folder)).find("proxies")) == 100


def test_parts_that_documents_have_alike_are_one_in_memory_and_those_that_differ_in_anything_are_not(
    folder: Path,
) -> None:
    store = opened_store(DataDir(folder))
    for identifier, part in (("a", 1), ("b", 1), ("c", 2), ("d", 1.0), ("e", True)):
        store.put("proxies", named(identifier, limits={"rate": part, "hosts": {}}))
    store.close()
    again = opened_store(DataDir(folder))
    parts = {each.id: each.body["limits"] for each in again.every("proxies")}
    assert parts["a"] is parts["b"]
    assert [repr(each["rate"]) for each in parts.values()] == ["1", "1", "2", "1.0", "True"]
    again.put("proxies", named("a", limits={"rate": 3, "hosts": {"x": "y"}}))
    rates = {each.id: each.body["limits"]["rate"] for each in again.find("proxies")}
    assert rates == {"a": 3, "b": 1, "c": 2, "d": 1.0, "e": True}


def test_files_are_private(folder: Path) -> None:
    opened_store(DataDir(folder)).put("proxies", named("a"))
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o600}


def test_a_store_that_vanished_is_no_first_start() -> None:
    with tempfile.TemporaryDirectory(prefix="pf-", dir=FOLDERS) as made:
        data = open_data_dir(Path(made))
        data.keys.mkdir()
        (data.keys / "secrets.key").write_text("00")
        with pytest.raises(StoreDamaged, match=r"is gone, but .*keys shows"):
            open_store(data)
