"""Builds the wheel of this checkout: build_wheel.py [--pure] [--out FOLDER]; prints where it is.

It has compiled modules (`actors/compiled.txt`) where there is a C compiler and compiling works; else it is pure, and
one line on standard error says why. It has the documentation as a site where what makes that is installed
(`scripts/build-docs`). What is in the checkout stays as it is. Needs pip, and nothing else installed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[2]
NO_COMPILER = "no C compiler"
NO_HEADERS = "no headers of Python (python3-dev)"


class CannotBuild(Exception):
    """The build has failed; the text is its output."""


def obstacle() -> str:
    """Why nothing can be compiled here; empty when it can be tried."""
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        return NO_COMPILER
    return "" if Path(sysconfig.get_path("include"), "Python.h").is_file() else NO_HEADERS


def build(out: Path, *, compiled: bool, source: Path = ROOT, documented: bool = True) -> Path:
    """The new wheel in `out`. Raises `CannotBuild`."""
    with TemporaryDirectory() as folder:
        site = build_site(Path(folder, "site"), source) if documented else None
        environment = {**os.environ, "WHEEL": "compiled" if compiled else "pure", "SITE": str(site or "")}
        command = [sys.executable, "-m", "pip", "wheel", "--disable-pip-version-check", "--no-deps", "--wheel-dir"]
        done = subprocess.run([*command, folder, str(source)], env=environment, capture_output=True, text=True)
        if done.returncode:
            raise CannotBuild(done.stdout + done.stderr)
        (wheel,) = Path(folder).glob("*.whl")
        out.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(wheel, out))


def build_site(target: Path, source: Path) -> Path | None:
    """The documentation as a site in `target`; None where what makes it is not installed. Raises `CannotBuild`."""
    script = source / "scripts" / "build_docs.py"
    if find_spec("zensical") is None or not script.is_file():
        return None
    environment = {**os.environ, "PYTHONPATH": str(source)}
    done = subprocess.run([sys.executable, str(script), str(target)], env=environment, capture_output=True, text=True)
    if done.returncode:
        raise CannotBuild(done.stdout + done.stderr)
    return target


def build_best(out: Path) -> Path:
    """The compiled wheel, or the pure one and a line that says why. Raises `CannotBuild`."""
    reason = obstacle()
    if not reason:
        try:
            return build(out, compiled=True)
        except CannotBuild as error:
            reason = f"compiling failed ({reason_of(str(error))})"
    print(f"{reason[:1].upper()}{reason[1:]}: the pure version is built", file=sys.stderr)
    return build(out, compiled=False)


def reason_of(output: str) -> str:
    """The last line of a build's output that names an error."""
    lines = [line.strip() for line in output.splitlines() if "error" in line.lower()]
    return lines[-1][:200] if lines else "no reason was named"


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/build-wheel", description="Build the wheel of this checkout.")
    parser.add_argument("--pure", action="store_true", help="compile nothing")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", metavar="FOLDER", help="where to (dist)")
    given = parser.parse_args()
    try:
        print(build(given.out, compiled=False) if given.pure else build_best(given.out))
    except CannotBuild as error:
        sys.exit(f"{error}\nThe wheel could not be built; see above")


if __name__ == "__main__":
    main()
