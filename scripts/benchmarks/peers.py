"""What takes part in a measure, and the origin: each program runs from a configuration made here.

All listen on a free port of loopback and write an access log as the product does.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Literal, Protocol

from benchmarks.processes import BenchError, Child, Missing, free_port, tree

GIGABYTE = 1 << 30
"""What compiled programs carry in about a second; also the size of the origin's `/big`."""

Speaks = Literal["http", "socks5", "relay"]
"""How a tunnel is asked for; a relay has one fixed target and is asked for nothing."""


class Subject(Protocol):
    """A proxy under measure. `tls` when clients speak TLS to it; `carries` is its share of bytes in a round of bulk."""

    name: str
    port: int
    speaks: Speaks
    tls: bool
    keeps_alive: bool
    carries: int

    def forwarding(self) -> list[int]:
        """The processes that carry the bytes."""

    def everything(self) -> list[int]:
        """All processes that the proxy consists of."""

    def version(self) -> str:
        """Its version, as short as it says it."""

    def end(self) -> None:
        """Stop it."""


def program(name: str) -> str:
    """The path of an installed program. Raises `Missing`."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if found is None:
        raise Missing(f"{name} is not installed (scripts/bench --install installs it)")
    return found


def version_of(*command: str) -> str:
    """The first thing like a version in what the command prints."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    except OSError:  # the command itself is missing
        return "unknown"
    found = re.search(r"\d+(\.\d+)+", done.stdout + done.stderr)
    return found.group() if found else "unknown"


class Program:
    """One program that listens on `port`. It has a folder of its own, in which its configuration lies."""

    speaks: Speaks = "http"
    tls = False
    keeps_alive = True
    carries = GIGABYTE
    asks_version = ("--version",)

    def __init__(self, name: str, folder: Path, port: int, command: list[str], configuration: str = "") -> None:
        self.name = name
        self.port = port
        self._program = command[0]
        if configuration:
            (folder / f"{name}.conf").write_text(configuration)
        self._child = Child(name, command, folder)
        try:
            self._child.wait_for_port(port)
        except BenchError:
            self._child.end()
            raise

    def forwarding(self) -> list[int]:
        return tree(self._child.process.pid)

    def everything(self) -> list[int]:
        return self.forwarding()

    def version(self) -> str:
        return version_of(self._program, *self.asks_version)

    def end(self) -> None:
        self._child.end()


class Origin(Program):
    """nginx with `/1k`, `/100k` and `/big` (1 GiB, sparse), sent by `sendfile`."""

    asks_version = ("-v",)

    def __init__(self, folder: Path) -> None:
        files = folder / "files"
        files.mkdir()
        (files / "1k").write_bytes(b"x" * 1024)
        (files / "100k").write_bytes(b"x" * 102_400)
        with (files / "big").open("wb") as big:
            big.truncate(GIGABYTE)
        port = free_port()
        configuration = f"""
            {"user root;" if os.geteuid() == 0 else ""}
            daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/nginx.log;
            events {{ worker_connections 16384; }}
            http {{
                access_log off; sendfile on; tcp_nopush off; keepalive_requests 1000000000; keepalive_timeout 600;
                client_header_timeout 600;
                client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fcgi;
                uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
                server {{ listen 127.0.0.1:{port} backlog=4096; root {files}; }}
            }}"""
        nginx = [program("nginx"), "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", f"{folder}/nginx.log"]
        super().__init__("nginx", folder, port, nginx, configuration)
        self._big = files / "big"

    def bring_into_memory(self) -> None:
        """Read `/big` once: the first client should not be the one that waits for the page cache."""
        with self._big.open("rb", buffering=0) as big:
            while big.read(1 << 22):
                pass


Key = Literal["ecdsa", "rsa"]

_NEW_KEYS: dict[Key, tuple[str, ...]] = {
    "ecdsa": ("ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
    "rsa": ("rsa:4096",),
}


def self_signed(folder: Path, kind: Key = "ecdsa") -> Path:
    """A PEM file with a fresh key and a certificate for loopback, as the README makes it. Raises `BenchError`."""
    file, key = folder / f"bench-{kind}.pem", folder / f"bench-{kind}.key"
    if file.exists():
        return file
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    new_key = ["-newkey", *_NEW_KEYS[kind], "-nodes"]
    command = [program("openssl"), "req", "-x509", *new_key, "-days", "30", *names, "-keyout", str(key), "-out"]
    done = subprocess.run([*command, str(file)], capture_output=True, text=True)
    if done.returncode != 0:
        raise BenchError(f"openssl makes no certificate: {done.stderr}")
    file.write_text(file.read_text() + key.read_text())
    file.chmod(0o600)
    return file
