"""Changes over several collections: whole or never made, wherever they are cut off, and whatever the disk refuses."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from api.store import (
    NotStored,
    RevisionConflict,
    StoreDamaged,
    StoreWriteError,
    TinyStore,
    Write,
    commit_journal,
    storage,
    tiny,
)
from tests.kit.folders import FOLDERS


@pytest.fixture
def store(folder: Path) -> TinyStore:
    return filled(folder)


def filled(folder: Path) -> TinyStore:
    """`a` in two collections, `old` in a third."""
    made = TinyStore(folder)
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


def content(store: TinyStore) -> dict[str, dict[str, str]]:
    return {name: {each.id: each.body["text"] for each in store.find(name)} for name in BEFORE}


def test_several_changes_are_made_together_each_of_them_a_step(store: TinyStore, folder: Path) -> None:
    first = store.revision + 1
    assert store.commit(change()) == [first, first + 1, first + 2]
    assert content(store) == AFTER
    assert [(each.collection, each.id, each.body is None) for each in store.changes(first - 1)] == [
        ("proxies", "a", False),
        ("users", "b", False),
        ("webhooks", "old", True),
    ]
    store.close()
    again = TinyStore(folder)
    assert content(again) == AFTER
    assert again.revision == first + 2
    assert again.put("proxies", {"id": "c", "text": ""}).revision == first + 3


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (Write("users", "a", {"id": "a"}, expect=0), RevisionConflict),
        (Write("users", "a", {"id": "a"}, expect=99), RevisionConflict),
        (Write("users", "absent", None), NotStored),
    ],
)
def test_one_change_that_is_refused_refuses_all(store: TinyStore, wrong: Write, error: type[Exception]) -> None:
    revision = store.revision
    with pytest.raises(error):
        store.commit([*change(), wrong])
    assert content(store) == BEFORE
    assert store.revision == revision


def test_a_commit_wakes_who_waits_for_changes(store: TinyStore) -> None:
    assert store.wait(store.revision - 1, 0) == store.revision
    before = store.revision
    store.commit(change())
    assert store.wait(before, 5) == before + 3


def test_deletions_in_a_commit_are_pruned_like_others(store: TinyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiny, "TOMBSTONES_KEPT", 3)
    for number in range(8):
        store.put("users", {"id": f"u{number}", "text": ""})
    store.commit([Write("users", f"u{number}", None) for number in range(8)])
    store.commit(change())
    assert content(store) == AFTER
    assert len(store._collections["users"].entries(lambda _entry: True)) <= 2 + 2 * 3


# --- cut off ------------------------------------------------------------------------------------------------------


class Cut(BaseException):
    """The machine stops here: nothing that would tidy up runs."""


class Disk:
    """Counts what is done to the disk, and raises at one of the steps."""

    def __init__(self, patch: pytest.MonkeyPatch, at: int, error: Callable[[], BaseException]) -> None:
        self.steps = 0
        self._at = at
        self._error = error
        for target, name in ((os, "fsync"), (os, "link"), (Path, "rename"), (Path, "unlink"), (os, "open")):
            self._watch(patch, target, name)

    def _watch(self, patch: pytest.MonkeyPatch, target: Any, name: str) -> None:
        real = getattr(target, name)

        def step(*args: Any, **more: Any) -> Any:
            self.steps += 1
            if self.steps == self._at:
                raise self._error()
            return real(*args, **more)

        patch.setattr(target, name, step)


def test_cut_off_at_any_step_a_restart_finds_all_of_it_or_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = []
    at = 0
    while True:
        at += 1
        with tempfile.TemporaryDirectory(prefix="pf-", dir=FOLDERS) as made:
            store = filled(Path(made) / "s")
            with monkeypatch.context() as patched:
                disk = Disk(patched, at, Cut)
                with contextlib.suppress(Cut):
                    store.commit(change())
            again = TinyStore(Path(made) / "s")
            found = content(again)
            assert found in (BEFORE, AFTER), f"cut off at step {at}"
            assert not (Path(made) / "s" / "journal.json").exists()
            again.put("proxies", {"id": "c", "text": "later"})  # and it goes on from there
            again.close()
            assert content(TinyStore(Path(made) / "s"))["proxies"]["c"] == "later"
            outcomes.append(found == AFTER)
        if disk.steps < at:
            break
    assert len(outcomes) > 20
    assert outcomes == sorted(outcomes)  # there is one moment before which nothing is made and after which all is


def test_a_completion_that_is_cut_off_itself_is_completed_by_the_next_start(
    store: TinyStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(storage.GenerationStorage, "install", lambda _self: cut())
        with pytest.raises(Cut):
            store.commit(change())
    assert (folder / "journal.json").exists()
    for at in range(1, 12):
        with monkeypatch.context() as patched:
            Disk(patched, at, Cut)
            with contextlib.suppress(Cut):
                TinyStore(folder)
    assert content(TinyStore(folder)) == AFTER


def cut() -> None:
    raise Cut


WRITER = """
import sys
from pathlib import Path
from api.store import TinyStore, Write
store = TinyStore(Path(sys.argv[1]))
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
    for round_number in range(12):
        acknowledged = max(acknowledged, write_until_killed(folder, 2 + round_number))
        store = TinyStore(folder)
        found = {(store.get(name, "n") or cut_short(name)).body["n"] for name in TOUCHED}
        store.close()
        assert len(found) == 1
        assert found.pop() >= acknowledged
        assert list(folder.glob("*.damaged-*")) == []
    assert acknowledged > 50


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


# --- refused by the disk ------------------------------------------------------------------------------------------


def test_refused_by_the_disk_at_any_step_nothing_is_changed_or_nothing_more_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at, went_on, stopped = 0, 0, 0
    while True:
        at += 1
        with tempfile.TemporaryDirectory(prefix="pf-", dir=FOLDERS) as made:
            path = Path(made) / "s"
            store = filled(path)
            with monkeypatch.context() as patched:
                disk = Disk(patched, at, lambda: OSError(errno.ENOSPC, "No space left on device"))
                try:
                    store.commit(change())
                except StoreWriteError:
                    assert content(store) == BEFORE
            if disk.steps < at:
                break
            if store.get("users", "b") is not None:
                continue  # the step didn't matter
            try:
                store.commit(change())
                went_on += 1
            except StoreWriteError:
                stopped += 1
                with pytest.raises(StoreWriteError, match="restart"):
                    store.put("users", {"id": "z"})
            store.close()
            assert content(TinyStore(path)) in ((BEFORE, AFTER) if stopped else (AFTER,))
    assert went_on > 5
    assert stopped > 5


def test_a_journal_whose_files_are_gone_is_not_taken_for_done(
    store: TinyStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(storage.GenerationStorage, "install", lambda _self: cut())
        with pytest.raises(Cut):
            store.commit(change())
    (folder / "users.json.new").unlink()
    with pytest.raises(StoreDamaged, match=r"users\.json.*half made"):
        TinyStore(folder)


def test_a_damaged_journal_is_reported(folder: Path) -> None:
    TinyStore(folder).close()
    (folder / "journal.json").write_bytes(b"not one of ours")
    with pytest.raises(StoreDamaged, match=r"journal\.json"):
        commit_journal.complete(folder)
