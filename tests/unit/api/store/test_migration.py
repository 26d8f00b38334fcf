"""The data of an earlier release brought to the present format: done, refused, and cut off at every point."""

from __future__ import annotations

import errno
import hashlib
import json
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from api.audit import Trail
from api.store import migration, open_store
from api.store.migration import KEPT, Step, bring_up_to_date, missing_space
from api.store.storage import compose, digest_of, staging_path
from config.files.data_format import DataFormatError, Mark, read_mark, write_mark
from config.files.paths import DataDir, open_data_dir
from tests.kit.folders import FOLDERS
from tests.kit.later_release import STEPS


@pytest.fixture
def short() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="pf-", dir=FOLDERS) as folder:
        yield Path(folder)


@pytest.fixture
def data(short: Path) -> DataDir:
    """Data of before there was a mark: two proxies, one that was deleted, and two rows of audit."""
    made = open_data_dir(short / "data")
    store = open_store(made)
    for name, tags in (("a", ["z", "b"]), ("b", []), ("c", ["x"])):
        store.put("proxies", {"id": name, "tags": tags})
    store.delete("proxies", "c")
    store.close()
    trail = Trail(made)
    trail.append("proxy.created")
    trail.append("proxy.deleted")
    trail.close()
    return made


def tags(data: DataDir) -> dict[str, list[str]]:
    store = open_store(data)
    try:
        return {each.id: each.body["tags"] for each in store.find("proxies")}
    finally:
        store.close()


def day(data: DataDir) -> str:
    with sqlite3.connect(data.audit / "audit.sqlite") as database:
        (found,) = database.execute("SELECT name FROM day").fetchone()
    database.close()
    return str(found)


def content(folder: Path) -> dict[str, str]:
    """All files of a folder, as they are."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


OLD = {"a": ["z", "b"], "b": []}
NEW = {"a": ["b", "z", "tomorrow"], "b": ["tomorrow"]}


def test_a_new_directory_has_the_newest_format_and_no_step_is_done(short: Path) -> None:
    data = open_data_dir(short / "data")
    bring_up_to_date(data, STEPS)
    assert read_mark(data.path) == Mark(3)
    assert list(content(data.path)) == ["format"]


def test_data_without_a_mark_are_format_1_and_get_one(data: DataDir) -> None:
    before = content(data.path)
    bring_up_to_date(data, ())
    assert json.loads((data.path / "format").read_text()) == {"format": 1, "version": "0.1.0"}
    assert before.items() <= content(data.path).items()


def test_old_data_go_through_all_steps_and_what_they_were_is_kept(data: DataDir) -> None:
    before = {name: hash_ for name, hash_ in content(data.path).items() if name.startswith(("store/", "audit/"))}
    bring_up_to_date(data, STEPS)
    assert (tags(data), day(data)) == (NEW, "2")
    assert read_mark(data.path) == Mark(3)
    kept = content(data.path / "before-1")
    assert kept.pop("format")
    assert kept == before
    assert not (data.path / "upgrade").exists()


def test_the_way_back_is_to_move_what_was_kept_to_its_places(data: DataDir) -> None:
    bring_up_to_date(data, STEPS)
    for part in (data.path / "before-1").iterdir():
        target = data.path / part.name
        shutil.rmtree(target) if target.is_dir() else target.unlink()
        part.rename(target)
    bring_up_to_date(data, ())
    assert tags(data) == OLD
    bring_up_to_date(data, STEPS)
    assert (tags(data), day(data)) == (NEW, "2")


def test_deleted_documents_and_revisions_stay_and_both_generations_are_of_the_new_form(data: DataDir) -> None:
    store = open_store(data)
    changes = [(change.id, change.revision, change.body is None) for change in store.changes(0)]
    store.close()
    bring_up_to_date(data, STEPS)
    (data.store / "proxies.json").write_bytes(b"")
    store = open_store(data)
    assert [(change.id, change.revision, change.body is None) for change in store.changes(0)] == changes
    store.close()
    assert tags(data) == NEW


def test_newer_data_are_refused_and_not_touched(data: DataDir) -> None:
    write_mark(data.path, Mark(3, "0.4.0"))
    before = content(data.path)
    with pytest.raises(DataFormatError, match=r"format 3, since Proxyfleet 0\.4\.0.*up to format 2.*Install 0\.4\.0"):
        bring_up_to_date(data, STEPS[:1])
    assert content(data.path) == before


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2",
        "{}",
        '{"format": "2", "version": "1"}',
        '{"format": 0, "version": "1"}',
        '{"format": true, "version": "1"}',
        '{"format": 1, "version": "1", "installing": {"from": 1, "parts": ["../x"]}}',
    ],
)
def test_a_mark_that_says_nothing_is_refused(data: DataDir, text: str) -> None:
    (data.path / "format").write_text(text)
    with pytest.raises(DataFormatError, match="format: does not say"):
        bring_up_to_date(data, STEPS)


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), KeyError("tags"), ValueError("no")]
)
def test_a_step_that_fails_leaves_the_data_as_they_were(data: DataDir, error: Exception) -> None:
    def fail(folder: Path) -> None:
        (folder / "store" / "proxies.json").unlink()
        raise error

    bring_up_to_date(data, ())
    before = content(data.path)
    with pytest.raises(DataFormatError, match=r"from format 1 to 4.*as they were"):
        bring_up_to_date(data, (*STEPS, Step("it fails", ("store",), fail)))
    assert content(data.path) == before


def test_a_damaged_collection_is_not_brought_forward(data: DataDir) -> None:
    (data.store / "proxies.json").write_bytes(b"")
    with pytest.raises(DataFormatError, match=r"proxies\.json: not a file of the store"):
        bring_up_to_date(data, STEPS)
    assert tags(data) == {**OLD, "c": ["x"]}  # opening it goes back to the generation before, and then it can
    bring_up_to_date(data, STEPS)
    assert tags(data).keys() == {"a", "b", "c"}


def test_a_change_over_several_files_that_was_cut_off_is_finished_first(data: DataDir) -> None:
    fresh = staging_path(data.store / "proxies.json")
    fresh.write_bytes(compose(json.dumps({"late": {"revision": 9, "body": {"id": "late", "tags": ["y"]}}})))
    digests = {"proxies.json": digest_of(fresh.read_bytes())}
    (data.store / "journal.json").write_bytes(compose(json.dumps(digests)))
    bring_up_to_date(data, STEPS)
    assert tags(data) == {"late": ["y", "tomorrow"]}


def test_a_rehearsal_of_a_later_program_knows_whether_its_upgrade_has_room(
    data: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = Mark(1)
    assert missing_space(data, mark, STEPS) <= 0
    assert missing_space(data, mark, ()) == 0
    full = SimpleNamespace(free=1_000)
    monkeypatch.setattr(migration.shutil, "disk_usage", lambda _path: full)
    stored = sum(path.stat().st_size for part in (data.store, data.audit) for path in part.iterdir())
    assert missing_space(data, mark, STEPS) == 2 * stored - 1_000
    assert missing_space(data, Mark(3), STEPS) == 0


def test_the_newest_few_of_what_was_are_kept(data: DataDir) -> None:
    steps = [Step("nothing", ("store",), lambda _folder: None) for _ in range(KEPT + 2)]
    for count in range(1, len(steps) + 1):
        bring_up_to_date(data, steps[:count])
    kept = sorted(path.name for path in data.path.glob("before-*"))
    assert kept == [f"before-{number}" for number in range(len(steps) - KEPT + 1, len(steps) + 1)]


def test_a_disk_that_fails_at_the_decision_leaves_it_to_the_next_start(
    data: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    def decided_but_not_synced(folder: Path, mark: Mark) -> None:
        write_mark(folder, mark)
        if mark.installing:
            raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(migration, "write_mark", decided_but_not_synced)
        with pytest.raises(DataFormatError, match="the next start goes on"):
            bring_up_to_date(data, STEPS)
    with pytest.raises(DataFormatError, match="up to format 1"):
        bring_up_to_date(data, ())
    bring_up_to_date(data, STEPS)
    assert (tags(data), day(data)) == (NEW, "2")


def test_an_upgrade_that_was_decided_and_whose_parts_are_gone_is_refused(
    data: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(migration, "_install", fail)
        with pytest.raises(DataFormatError, match="the next start goes on"):
            bring_up_to_date(data, STEPS)
    shutil.rmtree(data.path / "upgrade")
    with pytest.raises(DataFormatError, match="upgrade"):
        bring_up_to_date(data, STEPS)


def test_a_kill_at_any_change_of_the_disk_leaves_the_old_data_or_goes_on_to_the_new(data: DataDir) -> None:
    """Each recovery is itself killed once, at another point, before it may end."""
    command = [sys.executable, "-m", "tests.kit.killed_store", str(data.path), "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["old"] > 20
    assert found["decided"] > 5
    assert found["wrong"] == []
