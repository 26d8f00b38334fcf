"""What is built once for all tests of packages: the wheel, and an environment of exactly what it needs."""

from __future__ import annotations

import fcntl
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.kit.environments import INTERPRETER, environment_of
from tests.kit.folders import ROOT
from tests.packaging.built import Built, make

PACKAGING = ROOT / "scripts" / "packaging"


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Built:
    """Made once for all workers of a run."""
    base = tmp_path_factory.getbasetemp()
    shared = base if worker_id == "master" else base.parent
    with (shared / "distribution.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        made = Built(shared / "distribution")
        if not made.program.exists():
            shutil.rmtree(made.folder, ignore_errors=True)  # of a worker that failed in the middle
            make(made)
    return made


@pytest.fixture(scope="session")
def environment(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of Debian's Python, as `pip install` makes it of the line in the Containerfile, and trimmed."""
    if not INTERPRETER.exists():
        pytest.skip(f"there is no {INTERPRETER}")
    (extras,) = re.findall(r"\.whl\)\[([a-z,]+)\]", (PACKAGING / "Containerfile").read_text())
    folder = environment_of(built.wheel, tmp_path_factory.mktemp("exact") / "environment", extras)
    script = PACKAGING / "trim_environment.py"
    subprocess.run([str(folder / "bin" / "python"), "-EB", str(script), str(folder), "/opt/proxyfleet"], check=True)
    return folder
