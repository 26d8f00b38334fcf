"""Wherever a change is killed, the history has its revision if and only if the stores have the change."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from config.files.paths import DataDir, open_data_dir
from tests.kit.folders import FOLDERS
from tests.kit.killed_history import opened


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
