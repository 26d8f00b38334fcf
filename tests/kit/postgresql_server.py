"""A PostgreSQL of one's own: for tests that stop, kill or fill it, benchmarks, and `scripts/serve --cluster`."""

from __future__ import annotations

import atexit
import os
import select
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache
from itertools import count
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Self

import psycopg

from api.cluster.roles import verifier
from tests.kit.folders import FOLDERS
from tests.kit.ports import free_port
from tests.kit.wait import wait_until

PASSWORD = "sesame"
OLDEST = 13
"""The oldest PostgreSQL that a fleet can be on."""
RUN_AS: dict[str, Any] = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}
"""The server refuses to run as root."""
_numbers = count()


def programs(debian: Path = Path("/usr/lib/postgresql")) -> Path | None:
    """The folder of the newest one's programs: of Debian's packages, else of the PATH."""
    found = [each.parent for each in debian.glob("*/bin/postgres") if int(each.parts[-3]) >= OLDEST]
    if found:
        return max(found, key=lambda each: int(each.parts[-2]))
    on_path = shutil.which("postgres")
    return None if on_path is None else Path(on_path).resolve().parent


def _has_ended(connection: psycopg.Connection[Any]) -> bool:
    """Nothing comes from a server at rest but its end."""
    looks = select.poll()
    looks.register(connection, select.POLLIN)
    return bool(looks.poll(0))


class Operator:
    """One with `psql`: each thread keeps its connection until the server ends it, since a new one takes 10 ms."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._connections: dict[int, psycopg.Connection[Any]] = {}

    def execute(self, statement: str) -> list[Any]:
        """Commit it; its rows."""
        connection = self._connections.get(threading.get_ident())
        if connection is None or connection.closed or _has_ended(connection):
            if connection is not None:
                connection.close()
            connection = psycopg.connect(self._dsn, autocommit=True)
            self._connections[threading.get_ident()] = connection
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []

    def close(self) -> None:
        """Close all connections: a later statement has a new one."""
        for each in self._connections.values():
            each.close()


class Server:
    """A cluster of its own, and its server while it runs. With `durable` it is on a disk, and syncs what it writes."""

    def __init__(
        self,
        durable: bool = False,
        standby_of: Server | None = None,
        folder: Path | None = None,
        wrapper: Sequence[str] = (),
        **settings: str,
    ) -> None:
        """`settings` are those of the server that differ from what tests need; `folder` is an empty one for it.

        One that is `standby_of` another one has what that has, and follows it until it is promoted. `wrapper` is a
        command that runs it, as `nice` would.
        """
        self._folder = folder or Path(mkdtemp(prefix="pg-", dir="/tmp" if durable else FOLDERS))
        self._wrapper = wrapper
        self.port = free_port()
        self._settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": self.socket_folder,
            "fsync": "on" if durable else "off",
            "full_page_writes": "on" if durable else "off",
            "max_connections": "40",
            "shared_buffers": "16MB",
            "dynamic_shared_memory_type": "mmap",
            **settings,
        }
        self.operator = Operator(self.dsn())
        if RUN_AS:
            shutil.chown(self._folder, "postgres", "postgres")
        if standby_of is not None:
            more = ("-R", "-c", "fast", "--no-sync", "-d", standby_of.dsn())
            _run(str(_program("pg_basebackup")), "-D", str(self._folder / "data"), *more)
        else:
            _run("cp", "-a", str(_new_cluster()), str(self._folder / "data"))
        try:
            self.start()
        except BaseException:
            self.remove()
            raise

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
                [*self._wrapper, _program("postgres"), "-D", self._folder / "data", "-p", str(self.port), *options],
                stdout=log, stderr=log, cwd="/", **RUN_AS,
            )  # fmt: skip
        wait_until(self._takes_connections, f"PostgreSQL takes connections: {self._folder}/log", 60)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End it: by default at once with all its connections, with SIGQUIT or SIGKILL as a crash."""
        self.operator.close()
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

    def dsn(self, database: str = "postgres", host: str | None = None, **more: str) -> str:
        """How to connect as the role that may do anything: where it listens, or at its socket."""
        host = host or self._settings["listen_addresses"] or self.socket_folder
        parts = {"host": host, "port": self.port, "user": "postgres", "password": PASSWORD, "dbname": database, **more}
        return " ".join(f"{name}={value}" for name, value in parts.items())

    @contextmanager
    def database(self, like: str = "template1") -> Iterator[str]:
        """A new database, a copy of this one, for as long as the block lasts: its DSN."""
        name = f"test_{next(_numbers)}"
        ((version,),) = self.operator.execute("SHOW server_version_num")
        copied = "STRATEGY file_copy" if int(version) >= 150_000 else ""  # half of what it costs to log the content
        self.operator.execute(f"CREATE DATABASE {name} TEMPLATE {like} {copied}")
        try:
            yield self.dsn(name)
        finally:
            self.operator.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def execute(self, statement: str, database: str = "postgres") -> list[Any]:
        """As an operator with `psql`."""
        with closing(Operator(self.dsn(database))) as operator:
            return operator.execute(statement)

    def _takes_connections(self) -> bool:
        assert self.process.poll() is None, (self._folder / "log").read_text()
        with suppress(psycopg.OperationalError):
            psycopg.connect(self.dsn()).close()
            return True
        return False


@cache
def _new_cluster() -> Path:
    """The data of a cluster in which nothing was done yet. To copy them takes a tenth of the time of making them."""
    folder = Path(mkdtemp(prefix="pg-", dir=FOLDERS))
    atexit.register(shutil.rmtree, folder)
    password = folder / "password"
    password.write_text(verifier(PASSWORD, 1))  # each connection costs the client as many rounds
    if RUN_AS:
        for each in (folder, password):
            shutil.chown(each, "postgres", "postgres")
    more = ("-U", "postgres", "-E", "UTF8", "--no-sync")
    _run(str(_program("initdb")), "-D", str(folder / "data"), "-A", "scram-sha-256", f"--pwfile={password}", *more)
    return folder / "data"


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, cwd="/", **RUN_AS)
    assert done.returncode == 0, done.stderr


def _program(name: str) -> Path:
    folder = programs()
    assert folder is not None, "PostgreSQL is not installed"
    return folder / name
