"""The sdist, the one wheel that is built of it, and the product that is installed from that.

The wheel is built of what the Containerfile copies, which is therefore enough for it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from dataclasses import dataclass
from pathlib import Path

from config import VERSION
from tests.kit.folders import ROOT
from tests.packaging.install_page import commands


def build(kind: str, source: Path, target: Path, **environment: str) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(target)]
    env = {**os.environ, **environment}
    done = subprocess.run(command, cwd=source, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    (built,) = target.glob("*.tar.gz" if kind == "sdist" else "*.whl")
    return built


@dataclass(frozen=True)
class Built:
    """`sdist` is the one that was packed, unpacked; `context` has what the Containerfile copies of it.

    `wheel` was built there, `program` was installed from that.
    """

    folder: Path

    @property
    def sdist(self) -> Path:
        return self.folder / "unpacked" / f"proxyfleet-{VERSION}"

    @property
    def context(self) -> Path:
        return self.folder / "context"

    @property
    def wheel(self) -> Path:
        return next((self.folder / "dist").glob("*.whl"))

    @property
    def environment(self) -> Path:
        return self.folder / "proxyfleet"

    @property
    def program(self) -> Path:
        return self.environment / "bin" / "proxyfleet"

    @property
    def python(self) -> Path:
        return self.program.with_name("python")


def make(made: Built) -> None:
    with tarfile.open(build("sdist", ROOT, made.folder / "dist")) as archive:
        archive.extractall(made.folder / "unpacked", filter="data")
    lines = (made.sdist / "scripts" / "packaging" / "Containerfile").read_text().splitlines()
    for line in (line for line in lines if line.startswith("COPY ") and "--from" not in line):
        *copied, target = line.split()[1:]
        (made.context / target).mkdir(parents=True, exist_ok=True)
        for name in copied:
            if (made.sdist / name).is_dir():
                shutil.copytree(made.sdist / name, made.context / target, dirs_exist_ok=True)
            else:
                shutil.copy(made.sdist / name, made.context / target)
    (made.folder / "site").mkdir()
    (made.folder / "site" / "index.html").write_text("the documentation")
    build("wheel", made.context, made.folder / "dist", SITE=str(made.folder / "site"))
    install(made)


def install(made: Built) -> None:
    """By the lines of docs/how-to/install.md. What it depends on is that of the tests, without our checkout."""
    _build, *lines, _serve = commands("With pipx or pip")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    alone = {"HOME": str(made.folder), "PATH": path, "PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1"}
    script = ["bash", "-euc", "\n".join(lines)]
    done = subprocess.run(script, cwd=made.folder, env=alone, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    (packages,) = made.environment.glob("lib/python3*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
