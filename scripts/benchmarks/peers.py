"""The origin and the peers: Debian's nginx, squid, tinyproxy and haproxy, each from a configuration made here.

All listen on a free port of loopback, write an access log as the product does, and cache nothing.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Protocol

from benchmarks.processes import BenchError, Child, free_port, tree

BIG = 1 << 30


class Subject(Protocol):
    """A proxy under measure. `speaks_connect` is false for a plain TCP relay whose target is fixed."""

    name: str
    port: int
    speaks_connect: bool
    keeps_alive: bool

    def forwarding(self) -> list[int]:
        """The processes that carry the bytes."""

    def everything(self) -> list[int]:
        """All processes that the proxy consists of."""

    def end(self) -> None:
        """Stop it."""


def program(name: str) -> str:
    """The path of an installed program. Raises `BenchError` when it is missing."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if found is None:
        raise BenchError(f"{name} is not installed; scripts/bench --install installs all that is needed")
    return found


class _Program:
    """One program that is started from a configuration file and listens on `port`."""

    speaks_connect = True
    keeps_alive = True

    def __init__(self, name: str, folder: Path, port: int, configuration: str, command: list[str]) -> None:
        self.name = name
        self.port = port
        (folder / f"{name}.conf").write_text(configuration)
        self._child = Child(name, command, folder)
        self._child.wait_for_port(port)

    def forwarding(self) -> list[int]:
        return tree(self._child.process.pid)

    def everything(self) -> list[int]:
        return self.forwarding()

    def end(self) -> None:
        self._child.end()


class Origin(_Program):
    """nginx with `/1k`, `/100k` and `/big` (1 GiB, sparse), sent by `sendfile`."""

    def __init__(self, folder: Path) -> None:
        files = folder / "files"
        files.mkdir()
        (files / "1k").write_bytes(b"x" * 1024)
        (files / "100k").write_bytes(b"x" * 102_400)
        with (files / "big").open("wb") as big:
            big.truncate(BIG)
        port = free_port()
        configuration = f"""
            {"user root;" if os.geteuid() == 0 else ""}
            daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/nginx.log;
            events {{ worker_connections 8192; }}
            http {{
                access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000000; keepalive_timeout 600;
                client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fcgi;
                uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
                server {{ listen 127.0.0.1:{port} backlog=4096; root {files}; }}
            }}"""
        nginx = [program("nginx"), "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", f"{folder}/nginx.log"]
        super().__init__("nginx", folder, port, configuration, nginx)


class Squid(_Program):
    """squid without its cache, one process, access log to a file."""

    def __init__(self, folder: Path) -> None:
        folder.chmod(0o777)  # it gives up root's rights before it opens its log
        port = free_port()
        configuration = f"""
http_port 127.0.0.1:{port}
http_access allow all
cache deny all
cache_mem 8 MB
access_log stdio:{folder}/squid-access.log
cache_log {folder}/squid-cache.log
pid_filename none
netdb_filename none
pinger_enable off
coredump_dir none
shutdown_lifetime 0 seconds
max_filedescriptors 16384
"""
        squid = [program("squid"), "-N", "-f", str(folder / "squid.conf")]
        super().__init__("squid", folder, port, configuration, squid)


class Tinyproxy(_Program):
    """tinyproxy with a log line for each connection. It closes a client's connection after each answer."""

    keeps_alive = False

    def __init__(self, folder: Path) -> None:
        port = free_port()
        configuration = f"""
Port {port}
Listen 127.0.0.1
Timeout 600
MaxClients 5000
LogFile "{folder}/tinyproxy.log"
LogLevel Connect
"""
        tinyproxy = [program("tinyproxy"), "-d", "-c", str(folder / "tinyproxy.conf")]
        super().__init__("tinyproxy", folder, port, configuration, tinyproxy)


class Haproxy(_Program):
    """haproxy in front of one fixed target; `mode` is `http` or `tcp`. It is no forward proxy: a reference only."""

    speaks_connect = False

    def __init__(self, folder: Path, mode: str, target: int, splice: bool = False) -> None:
        port = free_port()
        name = f"haproxy-{mode}{'-splice' if splice else ''}"
        configuration = f"""
global
    nbthread 1
    maxconn 4000
    log stdout format raw local0
defaults
    mode {mode}
    log global
    option {mode}log
    {"option splice-auto" if splice else ""}
    timeout connect 10s
    timeout client 600s
    timeout server 600s
listen bench
    bind 127.0.0.1:{port}
    server origin 127.0.0.1:{target}
"""
        haproxy = [program("haproxy"), "-db", "-f", str(folder / f"{name}.conf")]
        super().__init__(name, folder, port, configuration, haproxy)
