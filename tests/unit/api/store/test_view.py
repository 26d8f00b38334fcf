"""What readers see during a write, and that a file holds what they see."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import pytest

from api.store import StoreWriteError, TinyStore, storage, tiny

LONG = 120.0


def test_a_reader_waits_for_no_disk_and_sees_a_change_when_it_is_durable(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = TinyStore(folder)
    first = store.put("proxies", {"id": "a", "port": 1})
    at_the_disk, disk_is_done, write = threading.Event(), threading.Event(), storage.write_synced

    def slow(path: Path, content: bytes) -> None:
        at_the_disk.set()
        assert disk_is_done.wait(LONG)
        write(path, content)

    monkeypatch.setattr(storage, "write_synced", slow)
    writer = threading.Thread(target=lambda: store.put("proxies", {"id": "a", "port": 2}))
    writer.start()
    assert at_the_disk.wait(LONG)
    seen = (store.get("proxies", "a"), store.find("proxies"), store.revision, store.changes(first.revision))
    disk_is_done.set()
    writer.join()
    assert seen == (first, [first], first.revision, [])
    assert store.find("proxies", port=2)[0].revision == store.revision == first.revision + 1


def test_the_revision_of_a_document_is_zero_when_there_is_none(folder: Path) -> None:
    store = TinyStore(folder)
    made = store.put("proxies", {"id": "a"})
    assert store.revision_of("proxies", "a") == made.revision
    store.delete("proxies", "a")
    assert store.revision_of("proxies", "a") == 0


def test_a_deletion_is_made_though_older_ones_can_not_be_forgotten_after_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiny, "TOMBSTONES_KEPT", 1)
    store = TinyStore(folder)
    for name in ("a", "b"):
        store.put("proxies", {"id": name})
    store.delete("proxies", "a")

    def full(_collection: Any) -> list[str]:
        raise StoreWriteError("No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(tiny._Collection, "prune", full)
        gone = store.delete("proxies", "b")
    assert store.put("proxies", {"id": "c"}).revision == gone + 1
    store.close()
    again = TinyStore(folder)
    assert ([each.id for each in again.find("proxies")], again.revision) == (["c"], gone + 1)


def test_after_any_changes_and_failures_the_file_holds_what_readers_see(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiny, "TOMBSTONES_KEPT", 3)
    dice = random.Random(7)
    store = TinyStore(folder)
    for step in range(150):
        name = f"p{dice.randrange(12)}"
        with monkeypatch.context() as disk:
            if dice.random() < 0.2:
                disk.setattr(storage, "write_synced", _full)
            try:
                if dice.random() < 0.3 and store.get("proxies", name) is not None:
                    store.delete("proxies", name)
                else:
                    store.put("proxies", {"id": name, "step": step})
            except StoreWriteError:
                continue
    seen, newest = store.find("proxies"), store.revision
    store.close()
    again = TinyStore(folder)
    assert (again.find("proxies"), again.revision) == (seen, newest)


def _full(_path: Path, _content: bytes) -> None:
    raise OSError(28, "No space left on device")
