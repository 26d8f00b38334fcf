"""What is given out: the sdist, the one wheel that is built of it, and the product that is installed from that.

`tests.packaging.built` makes them.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from wheels.man_page import page

from config import VERSION
from tests.kit.folders import ROOT
from tests.kit.product import Product
from tests.packaging.built import Built

PACKAGES = {"actors", "api", "config", "supervisor.py"}
PAGE_SOURCE = ROOT / "api" / "ui" / "source"
"""What the dashboard is made from: in the sdist, not in the wheel."""


def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_the_sdist_has_all_that_the_tests_need_and_nothing_of_this_machine(built: Built) -> None:
    sdist = built.sdist
    there = {path.name for path in sdist.iterdir()}
    assert {"README.md", "LICENSE", "CHANGELOG.md", "pyproject.toml", "tests", "docs", "scripts", ".ci"} <= there
    assert there >= PACKAGES
    assert there.isdisjoint({"data", ".venv", ".git", "dist", ".mypy_cache"})
    assert (sdist / "scripts" / "serve").stat().st_mode & 0o111


def test_the_wheel_is_the_four_packages_whole_and_nothing_else(built: Built) -> None:
    found = names(built.wheel)
    beside = {f"proxyfleet-{VERSION}.dist-info", f"proxyfleet-{VERSION}.data"}
    assert {name.partition("/")[0] for name in found} - beside == PACKAGES
    files = {
        str(path.relative_to(ROOT))
        for package in PACKAGES - {"supervisor.py"}
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and not path.is_relative_to(PAGE_SOURCE)
    }
    assert files <= found
    page = {name for name in files if name.startswith("api/ui/static/")}
    assert {"api/ui/static/index.html", "api/ui/static/LICENSES.txt"} <= page
    large = {name for name in page if (ROOT / name).stat().st_size >= 1000}
    assert len(large) > 5
    assert {name + suffix for name in large for suffix in (".br", ".gz")} <= found
    assert not any(name.startswith("api/ui/source/") for name in found)


def test_no_wheel_is_built_without_the_dashboard(built: Built, tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(built.context, source)
    shutil.rmtree(source / "api" / "ui" / "static")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "dist")]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, timeout=600)
    assert done.returncode != 0
    assert "the wheel needs the dashboard; scripts/build-ui makes it" in done.stderr
    assert not list(tmp_path.glob("dist/*.whl"))


def test_units_dashboards_sample_documentation_and_manual_page_are_installed(built: Built) -> None:
    share = built.program.parent.parent / "share"
    for name in ("systemd/proxyfleet.service", "grafana/dashboard.json", "proxyfleet.toml"):
        assert (share / "proxyfleet" / name).is_file()
    assert (share / "proxyfleet" / "docs" / "index.html").read_text() == "the documentation"
    service = (share / "proxyfleet" / "systemd" / "proxyfleet.service").read_text()
    named = re.findall(r"^Documentation=file:/opt/proxyfleet/current/(.+)$", service, re.MULTILINE)
    assert [(share.parent / name).read_text() for name in named] == [page()]


def test_the_installed_command_knows_its_version_and_where_data_go(built: Built, tmp_path: Path) -> None:
    def run(*command: str, **environment: str) -> str:
        done = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, timeout=300, env={"HOME": "/nowhere", **environment}
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    assert run(str(built.program), "version") == f"proxyfleet {VERSION}"
    where = "import os, config.files.paths as p; os.geteuid = lambda: {}; print(p.default_data_dir(), p.__file__)"
    python = str(built.python)
    found, file = run(python, "-c", where.format(0)).split()
    assert found == "/var/lib/proxyfleet"
    assert Path(file).is_relative_to(built.environment)
    if not Path("/var/lib/proxyfleet").exists():
        assert run(python, "-c", where.format(1000)).split()[0] == "/nowhere/.local/share/proxyfleet"
        assert run(python, "-c", where.format(1000), XDG_DATA_HOME="/x").split()[0] == "/x/proxyfleet"


class Installed(Product):
    """The product from an environment, started outside of the checkout."""

    def __init__(self, built: Built) -> None:
        super().__init__()
        self._program = built.program

    def command(self) -> list[str]:
        return [str(self._program), *super().command()[3:]]

    def environment(self) -> dict[str, str]:
        own = {name: value for name, value in super().environment().items() if name != "PYTHONPATH"}
        return own | {"PYTHONSAFEPATH": "1", "PYTHONNOUSERSITE": "1"}


@pytest.mark.product
def test_the_installed_product_serves_its_pages_and_a_proxy(built: Built) -> None:
    with Installed(built) as product:
        for path in ("/health", "/openapi.json", "/api/v1/docs"):
            assert product.session.get(product.base_url + path, timeout=60).status_code == 200, path
        page = product.session.get(f"{product.base_url}/ui/", timeout=60)
        assert page.content == (ROOT / "api" / "ui" / "static" / "index.html").read_bytes()
        for path in re.findall(r'(?:src|href)="([^"]+)"', page.text):
            assert product.session.get(product.base_url + path, timeout=60).status_code == 200, path
        path = re.findall(r'(assets/first-[^"]+\.js)"', page.text)[0]
        for encoding in ("br", "gzip"):
            asked = {"Accept-Encoding": encoding}
            script = product.session.get(f"{product.base_url}/ui/{path}", headers=asked, timeout=60)
            assert script.headers["Content-Encoding"] == encoding
            assert script.content == (ROOT / "api" / "ui" / "static" / path).read_bytes()
        proxy = product.proxy()
        assert proxy["runtime"]["state"] == "running"
        loaded = {name for name in Path(f"/proc/{product.pid}/cmdline").read_text().split("\0") if str(ROOT) in name}
        assert loaded == set()
        ready = subprocess.run(
            [str(built.python), "-m", "api.operator.readiness_probe"],
            env={
                **product.environment(),
                "PROXYFLEET_SERVER__PORT": str(product.port),
                "PROXYFLEET_DATA_DIR": str(product.data_dir),
            },
            capture_output=True,
            text=True,
            timeout=180,
        )
        assert (ready.returncode, ready.stdout.count("healthy")) == (0, 1), ready.stdout + ready.stderr
        assert product.stop() == 0
