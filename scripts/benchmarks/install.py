"""What the benchmark needs: the load generator and the origin, and the peers as far as they can be had."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.management import servers
from benchmarks.processes import BenchError

NEEDED = ("wrk", "nginx-light", "openssl")
DISTRIBUTIONS = ("proxy.py", "pproxy", "mitmproxy")
PEERS = ("squid", "tinyproxy", "haproxy", "dante-server", "microsocks", "stunnel4")


def install(peers_dir: Path) -> None:
    """From Debian as root, and from PyPI into `peers_dir`. Raises `BenchError` when a needed package can't be had."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise BenchError(f"--install needs root and apt-get; install by hand: {' '.join((*NEEDED, *PEERS))}")
    if not (_apt("update") and _apt_install(*NEEDED)):
        raise BenchError(f"apt-get does not install {' '.join(NEEDED)}")
    left_out = [] if _apt_install(*PEERS) else [name for name in PEERS if not _apt_install(name)]
    left_out += _install_from_pypi(peers_dir) + servers.install(peers_dir)
    for name in left_out:
        print(f"left out: {name} could not be installed", file=sys.stderr)


def default_folder() -> Path:
    """Where the environment of the peers from PyPI is kept between runs."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "proxyfleet-bench"


def _install_from_pypi(folder: Path) -> list[str]:
    """Make the environment in `folder`; the distributions that could not be installed."""
    python = folder / "bin" / "python"
    if not python.exists():
        made = subprocess.run([sys.executable, "-m", "venv", str(folder)], stdin=subprocess.DEVNULL)
        if made.returncode != 0:
            return list(DISTRIBUTIONS)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    return [name for name in DISTRIBUTIONS if subprocess.run([*pip, name], stdin=subprocess.DEVNULL).returncode != 0]


def _apt_install(*packages: str) -> bool:
    return _apt("install", "-y", "--no-upgrade", "--no-install-recommends", *packages)


def _apt(*arguments: str) -> bool:
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    command = ["apt-get", "-qq", *arguments]
    return subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, stdout=sys.stderr).returncode == 0
