"""What readers see during a write, and that a file holds what they see."""

from __future__ import annotations

import random
import threading
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from api.engine.commit import Engine
from api.engine.effects import CommitEffect
from api.engine.ledger import Commit
from api.engine.record_cache import RecordCache
from api.store import Change, Document, StoreWriteError, fleet_file, tiny
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


def loaded(document: Document) -> SimpleNamespace:
    return SimpleNamespace(record=SimpleNamespace(created_at=0.0, **document.body), revision=document.revision)


def test_who_reads_while_a_replica_is_read_anew_has_all_of_it_then_and_so_have_effects(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(Engine(DataDir(folder), None)) as engine:
        for name in "abc":
            engine.put("proxies", {"id": name, "name": name})
        cache = RecordCache(engine, "proxies", loaded)
        found: list[list[str]] = []

        def names() -> list[str]:
            return [each.record.name for each in cache.all()]

        engine.effects.follow(CommitEffect(["proxies"], lambda _changes: found.append(names())))
        usual, seen = engine.documents._view.step, [names()]

        def step(*changes: Change) -> None:
            usual(*changes)
            engine.effects.finish()  # as another thread may
            seen.append(names())

        monkeypatch.setattr(engine.documents._view, "step", step)
        gone, former = Change("proxies", "a", 1000, None), Change("proxies", "b", 1, {"id": "b", "name": "former"})
        parts = [Commit(1000, (each,), (), ()) for each in (gone, former)]
        engine.read_anew(engine.stamped(), (1000, None), parts, None)
        assert seen == [["a", "b", "c"]] * 3
        assert names() == ["former", "c"]
        assert found == [["former", "c"]]
