"""Each database that can't be a fleet's says why in words of its own, and nothing is changed."""

from __future__ import annotations

import socket
import ssl
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest

from actors.bus.messages.cluster import FoundFleet
from actors.cluster import database as module
from api.cluster.founding import found_fleet
from api.engine.commit import Engine
from config import OperatorError
from config.files.paths import open_data_dir
from config.files.secret_box import secret_box_of
from tests.kit.certificates import make_pair
from tests.kit.folders import FOLDERS
from tests.kit.ports import free_port
from tests.kit.postgresql import database, needs_pgbouncer, needs_postgresql, pooler, shared_server
from tests.kit.tables import table
from tests.unit.api.cluster.nodes import fleet, owner

pytestmark = [needs_postgresql, needs_pgbouncer]
Made = Callable[[ExitStack, pytest.MonkeyPatch], str]


def prepared(statement: str) -> Made:
    """A database in which an operator has done this."""

    def make(stack: ExitStack, _patch: pytest.MonkeyPatch) -> str:
        dsn = stack.enter_context(database())
        shared_server().execute(statement, dsn.rpartition("dbname=")[2].partition(" ")[0])
        return dsn

    return make


def checked(what: str, instead: str) -> Made:
    """One of which the check that is made of each connection gets this."""

    def make(stack: ExitStack, patch: pytest.MonkeyPatch) -> str:
        assert what in module._CHECK
        patch.setattr(module, "_CHECK", module._CHECK.replace(what, instead))
        return stack.enter_context(database())

    return make


def weak(stack: ExitStack, _patch: pytest.MonkeyPatch) -> str:
    server = shared_server()
    server.execute("CREATE ROLE no_schema LOGIN PASSWORD 'sesame'")
    stack.callback(server.execute, "DROP ROLE no_schema")
    return stack.enter_context(database()).replace("user=postgres", "user=no_schema")


def of_others(stack: ExitStack, _patch: pytest.MonkeyPatch) -> str:
    return stack.enter_context(fleet()).dsn


def pooled(stack: ExitStack, _patch: pytest.MonkeyPatch) -> str:
    return f"host=127.0.0.1 port={stack.enter_context(pooler(shared_server(), 'statement'))} user=postgres \
password=sesame dbname=postgres"


def not_trusted(stack: ExitStack, _patch: pytest.MonkeyPatch) -> str:
    """A server with a certificate of its own, where that of another one is known."""
    folders = [Path(stack.enter_context(tempfile.TemporaryDirectory(dir=FOLDERS))) for _ in range(2)]
    (own, key), (other, _) = map(make_pair, folders)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own, key)
    listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))

    def serve() -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                client.recv(8)  # SSLRequest
                client.sendall(b"S")
                with suppress(OSError), context.wrap_socket(client, server_side=True) as encrypted:
                    encrypted.recv(1)

    threading.Thread(target=serve, daemon=True).start()
    port = listener.getsockname()[1]
    return f"host=127.0.0.1 port={port} user=x dbname=x sslmode=verify-ca sslrootcert={other} gssencmode=disable"


def fixed(dsn: Callable[[], str]) -> Made:
    return lambda _stack, _patch: dsn()


NEWER = (
    "CREATE SCHEMA proxyfleet; CREATE TABLE proxyfleet.migrations (number int, name text, sha256 text, version text);"
    " INSERT INTO proxyfleet.migrations VALUES (9999, 'future', '', '99.0')"
)


def rows() -> Iterator[tuple[Made, str]]:
    server = shared_server()
    yield fixed(lambda: "host=nowhere.invalid user=x dbname=x"), "resolve host"
    yield fixed(lambda: f"host=127.0.0.1 port={free_port()} user=x dbname=x"), "refused"
    yield fixed(lambda: server.dsn(sslmode="require")), "does not support SSL"
    yield not_trusted, "certificate verify failed"
    yield fixed(lambda: server.dsn(password="wrong")), "password authentication failed"
    yield fixed(lambda: server.dsn("nowhere")), '"nowhere" does not exist'
    yield weak, "permission denied for database"
    yield lambda stack, _patch: stack.enter_context(owner(may_make_roles=False)), "the role of the DSN needs CREATEROLE"
    yield checked("current_setting('server_version_num')::int", "120022"), "is PostgreSQL 12, and 13 or newer is needed"
    yield checked("current_setting('server_encoding')", "'LATIN1'"), "has the encoding LATIN1, and UTF8 is needed"
    yield checked("pg_is_in_recovery()", "true"), "is a standby, which takes no changes"
    yield checked("current_setting('transaction_read_only')", "'on'"), "is read-only, and takes no changes"
    yield pooled, "not allowed in statement pooling mode"
    yield of_others, "holds the fleet .* since .*cluster join"
    yield prepared(NEWER), "brought forward to 9999_future by release 99.0, not this one"
    yield prepared("CREATE SCHEMA proxyfleet; CREATE TABLE proxyfleet.books ()"), "a schema proxyfleet that is not"


@table("make, why", rows)
def test_a_database_that_can_not_be_a_fleets_is_refused_in_words_of_its_own(make: Made, why: str) -> None:
    with (
        ExitStack() as stack,
        pytest.MonkeyPatch.context() as patch,
        tempfile.TemporaryDirectory(prefix="pf-", dir=FOLDERS) as folder,
    ):
        data = open_data_dir(Path(folder) / "d")
        engine = stack.enter_context(closing(Engine(data, secret_box_of(data))))
        with pytest.raises(OperatorError, match=why) as caught:
            found_fleet(engine, FoundFleet(make(stack, patch), "first"))
        assert "\n" not in str(caught.value)
        assert "sesame" not in str(caught.value)
        assert not data.node.exists()
        engine.put("lists", {"id": "l", "name": "goes on alone"})
