"""The programs beside the product: the origin, and the peers as they are usually run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Literal

from benchmarks.processes import BenchError, Child, Missing
from tests.kit.ports import free_port

GIGABYTE = 1 << 30
"""The size of the origin's `/big`."""

Speaks = Literal["http", "socks5", "relay"]
"""How a tunnel is asked for; a relay has one fixed target and is asked for nothing."""


@dataclass(frozen=True, slots=True)
class Kind:
    """How a program is started: `command` and the file `configuration`, which lies here, may name `$port`, `$folder`,
    `$file` (where the configuration of this run is), `$target` (the port of the origin), `$certificate`, and what is in
    `values`."""

    command: str
    configuration: str
    speaks: Speaks = "http"
    tls: bool = False
    asks_version: str = "-v"
    values: Mapping[str, str] = field(default_factory=dict)


def _haproxy(mode: str, tls: str = "") -> Kind:
    values = {"mode": mode, "tls": tls}
    return Kind("haproxy -db -f $file", "haproxy.conf", "relay", bool(tls), values=values)


PEERS = {
    "squid": Kind("squid -N -f $file", "squid.conf"),
    "haproxy-http": _haproxy("http"),
    "haproxy-tcp": _haproxy("tcp"),
    "haproxy-tls": _haproxy("http", "ssl crt $certificate"),
    "haproxy-tls-tcp": _haproxy("tcp", "ssl crt $certificate"),
    "dante": Kind("danted -f $file -p $folder/dante.pid", "dante.conf", "socks5"),
    "stunnel": Kind("stunnel4 $file", "stunnel.conf", "relay", tls=True, asks_version="-version"),
}


class Program:
    """One that runs in a folder of its own, with a line of log for each request or connection."""

    def __init__(self, name: str, kind: Kind, folder: Path, values: Mapping[str, object]) -> None:
        folder.chmod(0o777)  # some give up root's rights before they open their log
        self.port, self.speaks, self.tls, self._kind = free_port(), kind.speaks, kind.tls, kind
        file = folder / f"{name}.conf"
        given = {**values, "port": self.port, "folder": folder, "file": file}
        given |= {name: Template(text).substitute(given) for name, text in kind.values.items()}
        configuration = Path(__file__).with_name(kind.configuration).read_text()
        file.write_text(Template(configuration).substitute(given))
        self._program, *arguments = Template(kind.command).substitute(given).split()
        self._child = Child(name, [program(self._program), *arguments], folder, self.port)

    def forwarding(self) -> list[int]:
        return self._child.processes()

    everything = forwarding

    def version(self) -> str:
        return version_of(program(self._program), self._kind.asks_version)

    def end(self) -> None:
        self._child.end()


def origin(folder: Path) -> Program:
    """nginx with `/1k`, `/100k` and `/big` (1 GiB, sparse), sent by `sendfile`."""
    files = folder / "files"
    files.mkdir()
    (files / "1k").write_bytes(b"x" * 1024)
    (files / "100k").write_bytes(b"x" * 102_400)
    with (files / "big").open("wb") as big:
        big.truncate(GIGABYTE)
    with (files / "big").open("rb", buffering=0) as big:  # the first client should not wait for the page cache
        while big.read(1 << 22):
            pass
    nginx = Kind("nginx -p $folder -c $file -e $folder/nginx.log", "nginx.conf")
    return Program("nginx", nginx, folder, {"user": "user root;" if os.geteuid() == 0 else ""})


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


def self_signed(folder: Path, key: str = "ec -pkeyopt ec_paramgen_curve:prime256v1") -> Path:
    """A PEM file with a fresh key and a certificate for loopback; once for each kind of key. Raises `BenchError`."""
    file, key_file = (folder / f"{key.partition(' ')[0]}.{end}" for end in ("pem", "key"))
    if not file.exists():
        names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
        command = [program("openssl"), "req", "-x509", "-newkey", *key.split(), "-nodes", "-days", "30", *names]
        done = subprocess.run([*command, "-keyout", str(key_file), "-out", str(file)], capture_output=True, text=True)
        if done.returncode != 0:
            raise BenchError(f"openssl makes no certificate: {done.stderr}")
        file.write_text(file.read_text() + key_file.read_text())
    return file
