"""A product that is installed in a folder of its own, and becomes another version there."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.kit.folders import ROOT
from tests.kit.product import Product


class Installed(Product):
    """A product that was installed by a copy of this checkout: `install` puts another version in its place."""

    def __init__(self, *, commit: str | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.program = self.directory / "current" / "proxyfleet"
        self.install("1.0.0", commit=commit)

    def install(self, version: str, *, pure: bool = False, commit: str | None = None) -> Path:
        """Make this the version that starts next, without compiled modules if `pure`; the folder of its code.

        It is the one of this checkout, or of a `commit`, which is not compiled.
        """
        release = self.directory / f"release-{version}"
        if commit is None:
            left_out = shutil.ignore_patterns("node_modules", *(["*.so"] if pure else []))  # 100 MB of the page's build
            for package in ("actors", "api", "config"):
                shutil.copytree(ROOT / package, release / package, ignore=left_out)
            for file in (ROOT / "supervisor.py", *ROOT.glob("*.so")):
                shutil.copy(file, release)
        else:
            release.mkdir()
            git = ["git", "-C", str(ROOT), "archive", commit, "actors", "api", "config", "supervisor.py"]
            archive = subprocess.run(git, capture_output=True, check=True).stdout
            subprocess.run(["tar", "-x", "-C", str(release)], input=archive, check=True)
        with (release / "config" / "__init__.py").open("a") as file:
            file.write(f'\nVERSION = "{version}"\n')
        script = release / "proxyfleet"
        script.write_text(
            f"#!{sys.executable} -P\nimport sys\n\nsys.path.insert(0, {str(release)!r})\n"
            "from supervisor import main\n\nmain()\n"
        )
        script.chmod(0o755)
        fresh = self.directory / "next"
        fresh.symlink_to(release.name)
        fresh.rename(self.directory / "current")
        return release

    @property
    def line(self) -> list[str]:
        return [str(self.program)]

    def upgrade(self) -> subprocess.CompletedProcess[str]:
        """The command of the version that is installed now."""
        return subprocess.run(
            [str(self.program), "upgrade", "--data-dir", str(self.data_dir), "--run-dir", str(self.run_dir)],
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=600,
        )

    @property
    def version(self) -> str:
        return str(self.data("GET", "/health")["version"])
