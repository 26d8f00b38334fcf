"""For the build of the wheel: it must have the dashboard, and gets compressed forms of its files and the manual page.

Where `WHEEL=compiled` is set, it gets compiled modules as well, and where `SITE` names a folder, that as documentation.
All of it is made in a temporary folder: nothing that was made ever lies beside sources that may be edited.
"""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import brotli
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

COMPILED = "compiled"
PAGE = Path("api", "ui", "static")
COMPILER = ["mypy==2.4.*", "pyzmq>=26.0", "setuptools>=77"]
"""mypyc is part of mypy; ZeroMQ's package has types that listed modules use."""


class WheelHook(BuildHookInterface[Any]):
    """See the module. An editable install gets nothing: the page is in the checkout."""

    _folder: TemporaryDirectory[str] | None = None

    def dependencies(self) -> list[str]:
        """What the build needs beside `build-system.requires`."""
        return COMPILER if self._compiles() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Raises `FileNotFoundError` where the page is missing, and `CalledProcessError` where a script fails."""
        if version == "editable":
            return
        page = Path(self.root, PAGE, "index.html")
        if not page.is_file():
            raise FileNotFoundError(f"{page}: the wheel needs the dashboard; scripts/build-ui makes it")
        self._folder = TemporaryDirectory()
        manual, made = Path(self._folder.name, "proxyfleet.1"), Path(self._folder.name, "packages")
        self._run("man_page", manual)
        build_data["shared_data"][str(manual)] = "share/man/man1/proxyfleet.1"
        if os.environ.get("SITE"):
            build_data["shared_data"][os.environ["SITE"]] = "share/proxyfleet/docs"
        compress(Path(self.root, PAGE), made / PAGE)
        if self._compiles():
            self._run("compile_modules", self.root, made)
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
        files = (each for each in made.rglob("*") if each.is_file())
        build_data["force_include"].update({str(each): str(each.relative_to(made)) for each in files})

    def finalize(self, _version: str, _build_data: dict[str, Any], _artifact_path: str) -> None:
        """Remove what was made: the wheel has it."""
        if self._folder is not None:
            self._folder.cleanup()

    def _run(self, script: str, *arguments: Path | str) -> None:
        # by -m, whose folder comes after pip has taken a checkout that is installed as editable out of the path
        command = [sys.executable, "-B", "-m", f"scripts.wheels.{script}", *map(str, arguments)]
        subprocess.run(command, cwd=self.root, check=True)

    def _compiles(self) -> bool:
        return self.target_name == "wheel" and os.environ.get("WHEEL") == COMPILED


def compress(source: Path, target: Path) -> None:
    """Put `.gz` and `.br` of each file below `source` into the same place below `target`, where they are smaller."""
    for file in (each for each in source.rglob("*") if each.is_file()):
        raw = file.read_bytes()
        for suffix, form in ((".gz", gzip.compress(raw, mtime=0)), (".br", brotli.compress(raw))):
            if len(form) < len(raw):
                place = target / file.relative_to(source).with_name(file.name + suffix)
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(form)
