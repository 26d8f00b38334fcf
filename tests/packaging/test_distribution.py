"""What is given out: the sdist, the wheel that is built from it, and the product that is installed from that."""

from __future__ import annotations

import fcntl
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from config import VERSION
from tests.kit.folders import ROOT
from tests.kit.product import Product

PACKAGES = {"actors", "api", "config", "supervisor.py"}
PAGE_SOURCE = ROOT / "api" / "ui" / "source"
"""What the dashboard is made from: in the sdist, not in the wheel."""


def build(kind: str, source: Path, target: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(target)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    (built,) = target.glob("*.tar.gz" if kind == "sdist" else "*.whl")
    return built


def clean_copy(target: Path) -> Path:
    """The project's files alone, as a checkout has them: no environment, caches or data."""
    ignored = shutil.ignore_patterns(
        *(".git", ".venv", "data", "__pycache__", ".*_cache", ".hypothesis", "dist", "build", "node_modules"),
        *(".cache", "test-results"),  # which are written to while tests run
    )
    kept = {"samples"}

    def ignore(folder: str, names: list[str]) -> set[str]:
        return set() if kept & set(Path(folder).parts) else ignored(folder, names)

    shutil.copytree(ROOT, target, ignore=ignore, symlinks=True)
    return target


@dataclass(frozen=True)
class Built:
    """`sdist` is the one that was packed, unpacked; `wheel` was built from it, `program` was installed from that."""

    folder: Path

    @property
    def sdist(self) -> Path:
        return self.folder / "unpacked" / f"proxyfleet-{VERSION}"

    @property
    def wheel(self) -> Path:
        return next((self.folder / "dist").glob("*.whl"))

    @property
    def program(self) -> Path:
        return self.folder / "venv" / "bin" / "proxyfleet"

    @property
    def python(self) -> Path:
        return self.program.with_name("python")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Built:
    """Made once for all workers of a run."""
    base = tmp_path_factory.getbasetemp()
    shared = base if worker_id == "master" else base.parent
    with (shared / "distribution.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        made = Built(shared / "distribution")
        if not made.program.exists():
            shutil.rmtree(made.folder, ignore_errors=True)  # of a worker that failed in the middle
            make(made)
    return made


def make(made: Built) -> None:
    packed = build("sdist", clean_copy(made.folder / "checkout"), made.folder / "dist")
    with tarfile.open(packed) as archive:
        archive.extractall(made.folder / "unpacked", filter="data")
    install(build("wheel", made.sdist, made.folder / "dist"), made.folder / "venv")


def install(wheel: Path, environment: Path) -> None:
    """What it depends on is that of our own environment, without our checkout."""
    venv.create(environment, symlinks=True)
    (site,) = environment.glob("lib/python3*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    python = str(environment / "bin" / "python")
    command = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index"]
    done = subprocess.run([*command, str(wheel)], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr


def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_the_sdist_has_all_that_the_tests_need_and_nothing_of_this_machine(built: Built) -> None:
    sdist = built.sdist
    there = {path.name for path in sdist.iterdir()}
    assert {"README.md", "LICENSE", "CHANGELOG.md", "pyproject.toml", "tests", "docs", "scripts", ".ci"} <= there
    assert there >= PACKAGES
    assert there.isdisjoint({"data", ".venv", ".git", "dist", ".mypy_cache"})
    samples = {path.relative_to(sdist) for path in sdist.glob("tests/samples/*/data/store/*.json")}
    assert samples == {path.relative_to(ROOT) for path in ROOT.glob("tests/samples/*/data/store/*.json")}
    assert (sdist / "scripts" / "serve").stat().st_mode & 0o111


def test_the_benchmark_of_the_sdist_has_no_runners_of_other_proxies_and_says_so(built: Built) -> None:
    found = built.sdist / "scripts" / "benchmarks"
    assert (found / "ours.py").is_file()
    assert not (found / "other_proxies").exists()
    ask = "from benchmarks.entrants import squid; from unittest.mock import Mock; squid(Mock()).start()"
    asked = subprocess.run([sys.executable, "-c", ask], cwd=found.parent, capture_output=True, text=True, timeout=180)
    assert "Missing: the runners of other proxies are in the repository alone" in asked.stderr.splitlines()[-1]


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
    assert {"api/ui/static/index.html", "api/ui/static/LICENSES.txt"} <= found
    assert not any(name.startswith("api/ui/source/") for name in found)


def test_no_wheel_is_built_without_the_dashboard(built: Built, tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(built.sdist, source, symlinks=True)
    shutil.rmtree(source / "api" / "ui" / "static")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "dist")]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, timeout=600)
    assert done.returncode != 0
    assert "the wheel needs the dashboard; scripts/build-ui makes it" in done.stderr
    assert not list(tmp_path.glob("dist/*.whl"))


def test_units_dashboards_sample_and_manual_page_are_installed(built: Built) -> None:
    share = built.program.parent.parent / "share"
    for name in ("systemd/proxyfleet.service", "grafana/dashboard.json", "proxyfleet.toml"):
        assert (share / "proxyfleet" / name).is_file()
    assert (share / "man" / "man1" / "proxyfleet.1").is_file()


def test_what_the_containerfile_copies_is_enough_for_the_same_wheel(built: Built, tmp_path: Path) -> None:
    lines = (ROOT / "Containerfile").read_text().splitlines()
    source = tmp_path / "context"
    source.mkdir()
    ignored = shutil.ignore_patterns("__pycache__", "node_modules")
    for line in (line for line in lines if line.startswith("COPY ") and "--from" not in line):
        *copied, target = line.split()[1:]
        for name in copied:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, source / target, ignore=ignored)
            else:
                shutil.copy(ROOT / name, source / target)
    assert names(build("wheel", source, tmp_path / "dist")) == names(built.wheel)


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
    assert Path(file).is_relative_to(built.folder / "venv")
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
        return {**super().environment(), "PYTHONSAFEPATH": "1", "PYTHONNOUSERSITE": "1"}


@pytest.mark.product
def test_the_installed_product_serves_its_pages_and_a_proxy(built: Built) -> None:
    with Installed(built) as product:
        for path in ("/health", "/openapi.json", "/api/v1/docs"):
            assert product.session.get(product.base_url + path, timeout=60).status_code == 200, path
        page = product.session.get(f"{product.base_url}/ui/", timeout=60)
        assert page.content == (ROOT / "api" / "ui" / "static" / "index.html").read_bytes()
        for path in re.findall(r'(?:src|href)="([^"]+)"', page.text):
            assert product.session.get(product.base_url + path, timeout=60).status_code == 200, path
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
