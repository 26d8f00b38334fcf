"""Environments as pip makes them, without asking for anything: the packages are those of the tests' own environment."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement

INTERPRETER = Path(f"/usr/bin/python3.{sys.version_info[1]}")
"""Debian's, of the version that runs the tests, for which their packages are compiled; perhaps not there."""


def environment_of(wheel: Path, folder: Path, extras: str, interpreter: Path = INTERPRETER) -> Path:
    """A virtual environment in `folder` with the wheel, its `extras`, and exactly what these need; its own path."""
    subprocess.run([str(interpreter), "-m", "venv", "--without-pip", str(folder)], check=True, timeout=120)
    command = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "--quiet"]
    subprocess.run([*command, "--no-deps", "--no-index", "--no-compile", str(wheel)], check=True, timeout=600)
    (packages,) = folder.glob("lib/python3*/site-packages")
    for name in sorted(needed(f"proxyfleet[{extras}]")):
        copy_distribution(name, packages)
    return folder


def needed(requirement: str) -> set[str]:
    """The names of all distributions that it needs, and theirs, as installed here."""
    found: set[tuple[str, frozenset[str]]] = set()
    waiting = [Requirement(requirement)]
    while waiting:
        each = waiting.pop()
        name = re.sub(r"[-_.]+", "-", each.name).lower()
        if (name, frozenset(each.extras)) in found:
            continue
        found.add((name, frozenset(each.extras)))
        for inner in map(Requirement, distribution(name).requires or ()):
            chosen = ({"extra": extra} for extra in ("", *each.extras))
            if inner.marker is None or any(map(inner.marker.evaluate, chosen)):
                waiting.append(inner)
    return {name for name, _extras in found} - {"proxyfleet"}


def copy_distribution(name: str, packages: Path) -> None:
    """What its wheel has put below the folder of packages."""
    for file in distribution(name).files or ():
        source = Path(str(file.locate()))
        if ".." not in file.parts and file.suffix != ".pyc" and source.is_file():
            target = packages / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
