"""Prepares an environment for a package or an image: trim_environment.py ENVIRONMENT PLACE

It loses what no process of the product reads, its program names the interpreter by PLACE, where it will lie, and its
modules are compiled, since its account can't write there.
"""

from __future__ import annotations

import compileall
import shutil
import sys
from pathlib import Path

PROGRAMS = {"proxyfleet", "python", "python3", f"python3.{sys.version_info[1]}"}
UNREAD = (
    "pip*",
    "setuptools*",
    "_distutils_hack",
    "distutils-precedence.pth",
    "pkg_resources",
    "**/tests",
    *(f"**/*{suffix}" for suffix in (".pyi", ".pyx", ".pxd", ".c", ".h", ".hpp")),
    "pydantic/v1",
    "falcon/bench",
    "pygments/lexers/[!_p]*.py",  # of 250 languages that nothing here is written in, unlike Python
    "pygments/lexers/p[!y]*.py",
)
"""Below the folder of its packages: what installs, tests, types, sources of compiled modules, and parts for others."""
PROGRAM = """\
#!{place}/bin/python3
import sys

from supervisor import main

sys.exit(main())
"""


def trim(environment: Path, place: str) -> None:
    """See the module."""
    (packages,) = environment.glob("lib/python3*/site-packages")
    unread = [each for pattern in UNREAD for each in packages.glob(pattern)]
    unread += [each for each in (environment / "bin").iterdir() if each.name not in PROGRAMS]
    unread.append(environment / "include")
    for path in unread:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)  # its folder may have gone before it
    (environment / "bin" / "proxyfleet").write_text(PROGRAM.format(place=place), encoding="utf-8")
    settings = environment / "pyvenv.cfg"
    lines = settings.read_text(encoding="utf-8").splitlines(keepends=True)
    settings.write_text("".join(line for line in lines if not line.startswith("command")), encoding="utf-8")
    compile_modules(environment, place)


def compile_modules(folder: Path, place: str) -> None:
    """Compile all modules below `folder`, which will be at `place`. Raises `SystemExit` for one that can't be read."""
    if not compileall.compile_dir(folder, quiet=2, stripdir=str(folder), prependdir=place):
        raise SystemExit(f"{folder}: not all modules can be compiled")


if __name__ == "__main__":
    trim(Path(sys.argv[1]), sys.argv[2])
