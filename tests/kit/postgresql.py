"""A real PostgreSQL, one for each worker of the tests, at a port of its own on loopback and at a Unix socket.

`database()` is a new database in it. A test that stops, kills or fills the server has one of its own (`Server`).
Where it is not installed, tests skip and say so.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from itertools import count
from pathlib import Path
from tempfile import mkdtemp
from typing import Self

import psycopg
import pytest

from tests.kit.folders import FOLDERS
from tests.kit.ports import free_port
from tests.kit.wait import wait_until

PASSWORD = "sesame"
_INSTALLED = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda each: int(each.parts[-3]))
needs_postgresql = pytest.mark.skipif(not _INSTALLED, reason="PostgreSQL is not installed")
needs_pgbouncer = pytest.mark.skipif(shutil.which("pgbouncer") is None, reason="pgbouncer is not installed")
_USER = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}
"""The server refuses to run as root."""
_numbers = count()


class Server:
    """A cluster of its own, and its server while it runs. With `durable` it is on a disk, and syncs what it writes."""

    def __init__(self, durable: bool = False, standby_of: Server | None = None, **settings: str) -> None:
        """`settings` are those of the server that differ from what tests need.

        One that is `standby_of` another one has what that has, and follows it until it is promoted.
        """
        self._folder = Path(mkdtemp(prefix="pg-", dir="/tmp" if durable else FOLDERS))
        self.port = free_port()
        self._settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": self.socket_folder,
            "fsync": "on" if durable else "off",
            "max_connections": "40",
            "shared_buffers": "16MB",
            "dynamic_shared_memory_type": "mmap",
            **settings,
        }
        password = self._folder / "password"
        password.write_text(PASSWORD)
        if _USER:
            for each in (self._folder, password):
                shutil.chown(each, "postgres", "postgres")
        if standby_of is not None:
            self._run("pg_basebackup", "-R", "-c", "fast", "--no-sync", "-d", standby_of.dsn())
        else:
            more = ("-U", "postgres", "-E", "UTF8", "--no-sync")
            self._run("initdb", "-A", "scram-sha-256", f"--pwfile={password}", *more)
        self.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.remove()

    @property
    def socket_folder(self) -> str:
        return str(self._folder)

    def start(self) -> None:
        """Start the server, and wait until it takes connections."""
        options = [f"--{name}={value}" for name, value in self._settings.items()]
        with (self._folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [_INSTALLED[-1], "-D", self._folder / "data", "-p", str(self.port), *options],
                stdout=log, stderr=log, cwd="/", **_USER,  # type: ignore[call-overload]
            )  # fmt: skip
        wait_until(self._takes_connections, f"PostgreSQL takes connections: {self._folder}/log", 60)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End it: by default at once with all its connections, with SIGQUIT or SIGKILL as a crash."""
        if how == signal.SIGKILL:
            for pid in self.backends():
                with suppress(ProcessLookupError):
                    os.kill(pid, how)
        self.process.send_signal(how)
        self.process.wait(60)

    def part(self) -> None:
        """As a standby, get nothing more of what the other one commits."""
        self.execute("ALTER SYSTEM SET primary_conninfo = ''")
        self.execute("SELECT pg_reload_conf()")
        wait_until(lambda: not self.execute("SELECT 1 FROM pg_stat_wal_receiver"), "it follows no more", 20)

    def promote(self) -> None:
        """As a standby, become a server that takes changes."""
        self.execute("SELECT pg_promote(true, 30)")

    def remove(self) -> None:
        """End it, and remove all that it has."""
        if self.process.poll() is None:
            for pid in self.backends():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
            self.stop(signal.SIGQUIT)
        shutil.rmtree(self._folder)

    def backends(self) -> list[int]:
        """The processes of the server's own and those of its connections."""
        folder = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(each) for each in folder.read_text().split()]

    def dsn(self, database: str = "postgres", host: str = "127.0.0.1", **more: str) -> str:
        """How to connect as the role that may do anything."""
        parts = {"host": host, "port": self.port, "user": "postgres", "password": PASSWORD, "dbname": database, **more}
        return " ".join(f"{name}={value}" for name, value in parts.items())

    @contextmanager
    def database(self) -> Iterator[str]:
        """A new database, for as long as the block lasts: its DSN."""
        name = f"test_{next(_numbers)}"
        self.execute(f"CREATE DATABASE {name}")
        try:
            yield self.dsn(name)
        finally:
            self.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def execute(self, statement: str, database: str = "postgres") -> list[tuple[object, ...]]:
        """As an operator with `psql`."""
        with psycopg.connect(self.dsn(database), autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def _takes_connections(self) -> bool:
        assert self.process.poll() is None, (self._folder / "log").read_text()
        with suppress(psycopg.OperationalError):
            psycopg.connect(self.dsn()).close()
            return True
        return False

    def _run(self, program: str, *arguments: str) -> None:
        command = [_INSTALLED[-1].with_name(program), "-D", self._folder / "data", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, cwd="/", **_USER)  # type: ignore[call-overload]
        assert done.returncode == 0, done.stderr


@contextmanager
def pooler(server: Server, mode: str, sign_in: str = "auth_type = plain") -> Iterator[int]:
    """pgbouncer in front of a server, in this mode of pooling: its port. `sign_in` are settings of it about that."""
    port, folder = free_port(), Path(mkdtemp(prefix="pb-", dir=FOLDERS))
    users, settings = folder / "users.txt", folder / "settings.ini"
    users.write_text(f'"postgres" "{PASSWORD}"\n"pgbouncer" "pooler"\n')
    settings.write_text(
        f"[databases]\n* = host=127.0.0.1 port={server.port}\n[pgbouncer]\n"
        f"listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
        f"{sign_in}\nauth_file = {users}\npool_mode = {mode}\n"
    )
    if _USER:
        for each in (folder, users, settings):
            shutil.chown(each, "postgres")
    command = ["pgbouncer", "-q", settings]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, **_USER) as process:  # type: ignore[call-overload]
        try:
            wait_until(lambda: _is_open(port), "pgbouncer takes connections", 30)
            yield port
        finally:
            process.kill()
            shutil.rmtree(folder)


def _is_open(port: int) -> bool:
    with suppress(OSError):
        socket.create_connection(("127.0.0.1", port)).close()
        return True
    return False


@cache
def shared_server() -> Server:
    """That of this process, which it ends with."""
    server = Server()
    atexit.register(server.remove)
    return server


@contextmanager
def database() -> Iterator[str]:
    """A new and empty database on the server of this worker: its DSN."""
    with shared_server().database() as dsn:
        yield dsn
