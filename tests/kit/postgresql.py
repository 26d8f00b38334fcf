"""A real PostgreSQL, one for each worker of the tests, at a port of its own on loopback and at a Unix socket.

`database()` is a new database in it. A test that stops, kills or fills the server has a
`postgresql_server.Server` alone. Where it is not installed, tests skip and say so.
"""

from __future__ import annotations

import atexit
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest
from psycopg.conninfo import conninfo_to_dict

from actors.cluster.database import Database
from api.cluster.migration_runner import migrate
from tests.kit.folders import FOLDERS
from tests.kit.ports import free_port
from tests.kit.postgresql_server import PASSWORD, RUN_AS, Server, programs
from tests.kit.wait import wait_until

needs_postgresql = pytest.mark.skipif(programs() is None, reason="PostgreSQL is not installed")
needs_pgbouncer = pytest.mark.skipif(shutil.which("pgbouncer") is None, reason="pgbouncer is not installed")


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
    if RUN_AS:
        for each in (folder, users, settings):
            shutil.chown(each, "postgres")
    command = ["pgbouncer", "-q", settings]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, **RUN_AS) as process:
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


@contextmanager
def migrated_database() -> Iterator[str]:
    """As `database`, but it has the schema of a fleet already: migrations run once for each worker."""
    with shared_server().database(like=_schema()) as dsn:
        name = conninfo_to_dict(dsn)["dbname"]
        # As the schema does: a copy has it not.
        shared_server().operator.execute(f"REVOKE TEMPORARY ON DATABASE {name} FROM PUBLIC")
        yield dsn


@cache
def _schema() -> str:
    """The name of the database that others are copies of."""
    shared_server().execute("CREATE DATABASE of_this_release")
    with closing(Database(shared_server().dsn("of_this_release"))) as made:
        migrate(made, "a")
    return "of_this_release"
