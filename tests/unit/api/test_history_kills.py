"""Wherever a change is killed, the history has its revision if and only if the stores have the change."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from api.store import open_store
from config.files.paths import DataDir, open_data_dir
from tests.kit.folders import FOLDERS
from tests.kit.killed_history import CHANGES, opened


@pytest.fixture
def data() -> Iterator[DataDir]:
    with tempfile.TemporaryDirectory(prefix="pf-", dir=FOLDERS) as folder:
        made = open_data_dir(Path(folder) / "d")
        with opened(made):
            pass
        yield made


def test_each_revision_is_there_if_its_change_is(data: DataDir) -> None:
    command = [sys.executable, "-m", "tests.kit.killed_history", str(data.path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["wrong"] == []
    assert found["made"].keys() >= {str(number) for number in range(found["all"])}
    assert sum(found["made"].values()) > 100


def test_revisions_that_a_copy_of_the_stores_does_not_have_are_removed(data: DataDir, tmp_path: Path) -> None:
    """As in a backup: the trail is copied last."""
    with opened(data) as stores:
        CHANGES[0](stores)
        CHANGES[1](stores)
        kept = stores.state()
        copies = {path: path.read_bytes() for path in data.store.glob("*.json*")}
        for each in (*CHANGES[4:5], CHANGES[6], *CHANGES[4:5]):  # deleted, made again, deleted: with one id
            each(stores)
        assert stores.reader.newest == 5
    for path in data.store.glob("*.json*"):
        path.unlink()
    for path, content in copies.items():
        path.write_bytes(content)
    with opened(data) as stores:
        assert stores.reader.newest == 2
        assert stores.state() == kept
    with closing(open_store(data)) as store:
        assert store.get("proxies", "p") is not None
