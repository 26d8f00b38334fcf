"""The peers from PyPI, written in Python: proxy.py, pproxy and mitmproxy.

They live in a virtual environment of their own (`benchmarks.install`); the product's environment stays as it is.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.peers import GIGABYTE, Program, Speaks, version_of
from benchmarks.processes import Missing, free_port


class _FromPyPI(Program):
    carries = GIGABYTE // 8

    def __init__(self, name: str, folder: Path, port: int, peers_dir: Path, command: list[str]) -> None:
        installed = peers_dir / "bin" / command[0]
        if not installed.exists():
            raise Missing(f"{name} is not installed in {peers_dir} (scripts/bench --install installs it)")
        super().__init__(name, folder, port, [str(installed), *command[1:]])


class ProxyPy(_FromPyPI):
    """proxy.py with one worker and its access log."""

    def __init__(self, folder: Path, peers_dir: Path) -> None:
        port = free_port()
        one = ["--num-workers", "1", "--num-acceptors", "1", "--timeout", "600"]
        files = ["--data-dir", str(folder)]
        proxy = ["proxy", "--hostname", "127.0.0.1", "--port", str(port), *one, *files]
        super().__init__("proxy.py", folder, port, peers_dir, proxy)


class Pproxy(_FromPyPI):
    """pproxy, for HTTP or for SOCKS5, with its line for each connection."""

    def __init__(self, folder: Path, peers_dir: Path, speaks: Speaks = "http") -> None:
        port = free_port()
        pproxy = ["pproxy", "-l", f"{speaks}://127.0.0.1:{port}", "-v"]
        super().__init__("pproxy", folder, port, peers_dir, pproxy)
        self.speaks = speaks


class Mitmproxy(_FromPyPI):
    """mitmproxy's `mitmdump`, for HTTP or for SOCKS5; it looks into no tunnel, and prints a line for each request."""

    def __init__(self, folder: Path, peers_dir: Path, speaks: Speaks = "http") -> None:
        port = free_port()
        where = ["--listen-host", "127.0.0.1", "--listen-port", str(port), "--set", f"confdir={folder}"]
        mode = ["--mode", "socks5" if speaks == "socks5" else "regular"]
        mitmdump = ["mitmdump", *where, *mode, "--ignore-hosts", ".*", "--set", "termlog_verbosity=warn"]
        super().__init__("mitmproxy", folder, port, peers_dir, mitmdump)
        self.speaks = speaks
        self._peers_dir = peers_dir

    def version(self) -> str:
        return version_of(str(self._peers_dir / "bin" / "mitmdump"), "--version")
