"""Compiles the modules of `actors/compiled.txt` with mypyc: compile_modules.py SOURCE TARGET

SOURCE stays as it is. TARGET gets the extension modules, in the folders of their packages, and
the library that all of them share. Needs a C compiler and the headers of Python; takes one and a half minutes or more,
half a minute with `MYPYC_OPT_LEVEL=0`.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from mypyc.build import mypycify
from setuptools import setup

OPTIONS = ["--config-file=", "--ignore-missing-imports"]
"""Of mypy: not those of the checkout, whose plug-in needs more installed than is compiled."""


LEVEL = os.environ.get("MYPYC_OPT_LEVEL", "2")
"""How much the C compiler optimizes. 0 takes a fraction of the time, with a file of C for each module; else all of
them are one file, in which calls between modules are inlined."""


def compile_modules(source: Path, target: Path) -> None:
    """See the module."""
    with TemporaryDirectory() as folder:
        for package in ("actors", "config"):
            shutil.copytree(
                source / package, Path(folder, package), ignore=shutil.ignore_patterns("__pycache__", "*.so")
            )
        os.chdir(folder)
        files = Path("actors", "compiled.txt").read_text(encoding="utf-8").split()
        extensions = mypycify(
            [*OPTIONS, *files],
            opt_level=LEVEL,
            debug_level="0",
            multi_file=LEVEL == "0",
            group_name="proxyfleet",
            target_dir="build/c",
        )
        command = ["build_ext", "--build-lib", str(target), "--build-temp", "build/objects"]
        setup(name="proxyfleet", ext_modules=extensions, script_args=command)


if __name__ == "__main__":
    compile_modules(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve())
