"""For the build of the wheel: it must have the dashboard, and gets compiled modules where `WHEEL=compiled` is set.

They are compiled in a temporary folder, so nothing compiled ever lies beside sources that may be edited.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

COMPILED = "compiled"
COMPILER = ["mypy==2.4.*", "pyzmq>=26.0", "setuptools>=77"]
"""mypyc is part of mypy; ZeroMQ's package has types that listed modules use."""


class WheelHook(BuildHookInterface[Any]):
    """See the module. An editable install has neither, since the page is in the checkout."""

    _folder: TemporaryDirectory[str] | None = None

    def dependencies(self) -> list[str]:
        """What the build needs beside hatchling."""
        return COMPILER if self._compiles() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Raises `FileNotFoundError` where the page is missing, and `CalledProcessError` where compiling fails."""
        if version == "editable":
            return
        page = Path(self.root, "api", "ui", "static", "index.html")
        if not page.is_file():
            raise FileNotFoundError(f"{page}: the wheel needs the dashboard; scripts/build-ui makes it")
        if self._compiles():
            self._compile(build_data)

    def finalize(self, _version: str, _build_data: dict[str, Any], _artifact_path: str) -> None:
        """Remove what was compiled: the wheel has it."""
        if self._folder is not None:
            self._folder.cleanup()

    def _compiles(self) -> bool:
        return self.target_name == "wheel" and os.environ.get("WHEEL") == COMPILED

    def _compile(self, build_data: dict[str, Any]) -> None:
        self._folder = TemporaryDirectory()
        program = Path(self.root, "scripts", "wheels", "compile_modules.py")
        subprocess.run([sys.executable, str(program), self.root, self._folder.name], check=True)
        made = Path(self._folder.name)
        build_data["force_include"].update({str(each): str(each.relative_to(made)) for each in made.rglob("*.so")})
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
