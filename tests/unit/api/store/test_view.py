"""What readers see during a write, and that a file holds what they see."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from api.store import StoreWriteError, fleet_file, tiny
from config.files.paths import DataDir
from tests.kit.ledgers import opened_store

LONG = 120.0


@pytest.mark.embedded
def test_a_reader_waits_for_no_disk_and_sees_a_change_when_it_is_durable(folder: Path) -> None:
    store = opened_store(DataDir(folder))
    first = store.put("proxies", {"id": "a", "port": 1})
    with store.file.transaction():
        store.put("proxies", {"id": "a", "port": 2})
        seen = []

        def read() -> None:
            found = store.get("proxies", "a"), store.find("proxies")
            seen.append((*found, store.revision, store.changed(first.revision)))

        reader = threading.Thread(target=read)
        reader.start()
        reader.join(LONG)
        assert seen == [(first, [first], first.revision, [])]
    assert store.find("proxies", port=2)[0].revision == store.revision == first.revision + 1


def test_the_revision_of_a_document_is_zero_when_there_is_none(folder: Path) -> None:
    store = opened_store(DataDir(folder))
    made = store.put("proxies", {"id": "a"})
    assert store.revision_of("proxies", "a") == made.revision
    store.delete("proxies", "a")
    assert store.revision_of("proxies", "a") == 0


def test_after_any_changes_and_failures_the_file_holds_what_readers_see(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiny, "TOMBSTONES_KEPT", 3)
    dice = random.Random(7)
    store = opened_store(DataDir(folder))
    for step in range(150):
        name = f"p{dice.randrange(12)}"
        with monkeypatch.context() as disk:
            if dice.random() < 0.2:
                disk.setattr(fleet_file, "SPARE", 2**60)
            try:
                if dice.random() < 0.3 and store.get("proxies", name) is not None:
                    store.delete("proxies", name)
                else:
                    store.put("proxies", {"id": name, "step": step})
            except StoreWriteError:
                continue
    seen, newest = store.find("proxies"), store.revision
    store.close()
    again = opened_store(DataDir(folder))
    assert (again.find("proxies"), again.revision) == (seen, newest)
