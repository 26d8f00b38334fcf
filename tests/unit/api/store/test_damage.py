"""What happens to the store: kills, cut and altered files, a full disk, a release from the future."""

from __future__ import annotations

import errno
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from api.store import StoreDamaged, StoreError, StoreTooNew, StoreWriteError, TinyStore, storage
from api.store.storage import compose


@pytest.fixture
def file(folder: Path) -> Path:
    """The file of a collection with two generations: `a`, then `a` and `b`."""
    store = TinyStore(folder)
    store.put("proxies", {"id": "a"})
    store.put("proxies", {"id": "b"})
    store.close()
    return folder / "proxies.json"


def ids(store: TinyStore) -> list[str]:
    return [each.id for each in store.find("proxies")]


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-7])


def empty(file: Path) -> None:
    file.write_bytes(b"")


def flip_a_digit_of_the_schema(file: Path) -> None:
    file.write_bytes(file.read_bytes().replace(b"store 1 ", b"store 3 ", 1))


def flip_in_the_body(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-10] ^= 1
    file.write_bytes(bytes(content))


def remove(file: Path) -> None:
    file.unlink()


DAMAGES = [cut, empty, flip_a_digit_of_the_schema, flip_in_the_body, remove]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_gives_way_to_the_previous_generation_loudly(
    file: Path, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    damage(file)
    store = TinyStore(file.parent)
    assert ids(store) == ["a"]
    assert any(record.levelno == logging.CRITICAL for record in caplog.records)
    store.close()
    assert ids(TinyStore(file.parent)) == ["a"]


@pytest.mark.parametrize("damage", DAMAGES)
def test_with_both_generations_damaged_opening_is_refused(file: Path, damage: Callable[[Path], None]) -> None:
    damage(file)
    damage(file.with_name("proxies.json.previous"))
    with pytest.raises(StoreDamaged, match=r"proxies\.json"):
        TinyStore(file.parent)


def test_every_single_flipped_byte_is_noticed(file: Path) -> None:
    whole = file.read_bytes()
    for position in range(len(whole)):
        altered = bytearray(whole)
        altered[position] ^= 0x04
        with pytest.raises(StoreDamaged):
            storage.parse(file, bytes(altered))


def test_every_cut_is_noticed(file: Path) -> None:
    whole = file.read_bytes()
    for length in range(len(whole)):
        with pytest.raises(StoreDamaged):
            storage.parse(file, whole[:length])


def test_revisions_that_were_given_out_are_not_given_out_again_after_damage(file: Path) -> None:
    newest = TinyStore(file.parent).revision
    cut(file)
    assert TinyStore(file.parent).put("proxies", {"id": "c"}).revision > newest


def test_a_missing_manifest_does_not_make_an_empty_store(file: Path) -> None:
    for path in file.parent.glob("manifest.json*"):
        path.unlink()
    with pytest.raises(StoreDamaged, match="manifest"):
        TinyStore(file.parent)


def test_a_first_start_that_was_cut_off_is_completed(folder: Path) -> None:
    TinyStore(folder).close()
    for path in folder.glob("manifest.json*"):
        path.unlink()
    (folder / "manifest.json.new").write_bytes(b"half")
    (folder / "users.json").unlink()
    assert ids(TinyStore(folder)) == []


def test_a_newer_schema_is_refused_and_left_alone(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "SCHEMA", 2)
    newer = compose(json.dumps({"a": {"revision": 9, "body": {"id": "a"}}}))
    monkeypatch.undo()
    file.write_bytes(newer)
    with pytest.raises(StoreTooNew, match="schema version 2"):
        TinyStore(file.parent)
    assert file.read_bytes() == newer


# --- writes that fail ---------------------------------------------------------------------------------------------

STEPS = ["open", "write", "fsync", "link", "rename"]


@pytest.mark.parametrize("step", STEPS)
def test_a_write_that_fails_at_any_step_changes_nothing(file: Path, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = TinyStore(file.parent)
    revision = store.revision
    with monkeypatch.context() as disk:
        _break(disk, step)
        for attempt in (
            lambda: store.put("proxies", {"id": "c"}),
            lambda: store.put("proxies", {"id": "a", "port": 1}),
            lambda: store.delete("proxies", "a"),
        ):
            with pytest.raises(StoreWriteError):
                attempt()
    assert ids(store) == ["a", "b"]
    assert store.get("proxies", "a").body == {"id": "a"}  # type: ignore[union-attr]
    assert store.revision == revision
    assert store.put("proxies", {"id": "c"}).revision == revision + 1
    store.check()
    store.close()
    assert ids(TinyStore(file.parent)) == ["a", "b", "c"]
    assert [path for path in file.parent.iterdir() if path.suffix == ".new"] == []


def _break(disk: pytest.MonkeyPatch, step: str) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    target = {"write": (storage, "write_synced"), "rename": (Path, "rename")}.get(step, (os, step))
    disk.setattr(*target, full)


def test_after_an_unsyncable_folder_no_more_is_built_on_it(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = TinyStore(file.parent)
    with monkeypatch.context() as disk:

        def unsynced(_folder: Path) -> None:
            raise OSError(errno.EIO, "Input/output error")

        disk.setattr(storage, "sync", unsynced)
        with pytest.raises(StoreWriteError):
            store.put("proxies", {"id": "c"})
    with pytest.raises(StoreWriteError, match="restart"):
        store.put("proxies", {"id": "d"})
    with pytest.raises(StoreError):
        store.check()
    assert ids(store) == ["a", "b"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a file system that is full")
def test_on_a_full_disk_the_old_data_stays(folder: Path) -> None:
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=128k,mode=0700", "tmpfs", str(folder)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("mounting is not allowed here")
    try:
        store = TinyStore(folder)
        kept = _fill(store)
        assert ids(store) == kept
        store.close()
        again = TinyStore(folder)
        assert ids(again) == kept
        again.close()
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def _fill(store: TinyStore) -> list[str]:
    kept: list[str] = []
    for number in range(1000):
        try:
            store.put("proxies", {"id": f"p{number}", "text": "x" * 4000})
        except StoreWriteError:
            return kept
        kept.append(f"p{number}")
    raise AssertionError("the disk was never full")


# --- kills --------------------------------------------------------------------------------------------------------

WRITER = """
import sys
from pathlib import Path
from api.store import TinyStore
store = TinyStore(Path(sys.argv[1]))
number = len(store.find("proxies"))
print("open", flush=True)
while True:
    store.put("proxies", {"id": f"p{number}", "text": "x" * 500}, expect=0)
    print(number, flush=True)
    number += 1
"""


def test_over_many_kills_no_acknowledged_write_is_lost(folder: Path) -> None:
    acknowledged = -1
    for round_number in range(12):
        acknowledged = max(acknowledged, _write_until_killed(folder, 3 + round_number * 2))
        store = TinyStore(folder)
        found = {each.id for each in store.find("proxies")}
        store.close()
        assert found >= {f"p{number}" for number in range(acknowledged + 1)}
        assert list(folder.glob("*.damaged-*")) == []
    assert acknowledged > 100


def _write_until_killed(folder: Path, writes: int) -> int:
    """Start a writer, kill it at any moment after so many writes, and tell the last that it acknowledged."""
    command = [sys.executable, "-c", WRITER, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "open\n"
        acknowledged = [writer.stdout.readline() for _ in range(writes)]
        writer.kill()
        acknowledged += writer.stdout.read().splitlines(keepends=True)
    return max(int(line) for line in acknowledged if line.endswith("\n"))
