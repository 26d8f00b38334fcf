"""Git repositories and packages to fetch through a proxy."""

from __future__ import annotations

import os
import subprocess
import zipfile
from pathlib import Path


def run(*command: str, cwd: Path | None = None) -> str:
    """What the program printed; its failure is the test's, with all that it said."""
    clean = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, cwd=cwd, env=clean, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def make_repository(work: Path, bare: Path) -> str:
    """A bare repository with twenty files, ready for the plain HTTP protocol; gives the commit."""
    run("git", "init", "-q", "-b", "main", str(work))
    for number in range(20):
        (work / f"file-{number}").write_text("line\n" * number * 100)
    run("git", "add", ".", cwd=work)
    person = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "commit.gpgsign=false")
    run("git", *person, "commit", "-q", "-m", "Twenty files", cwd=work)
    run("git", "clone", "-q", "--bare", str(work), str(bare))
    run("git", "update-server-info", cwd=bare)
    return run("git", "rev-parse", "HEAD", cwd=work).strip()


def make_wheel(folder: Path) -> Path:
    """The smallest wheel that pip takes (PEP 427), of the package `tiny-thing`."""
    folder.mkdir()
    path, info = folder / "tiny_thing-1.0-py3-none-any.whl", "tiny_thing-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("tiny_thing.py", "value = 1\n")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-thing\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", f"tiny_thing.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    return path
