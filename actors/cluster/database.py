"""The database as a process uses it: a few connections, whether it responds, and what time it is there. Thread-safe."""

from __future__ import annotations

import os
import random
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from typing import Any
from uuid import UUID

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus

from actors.cluster.connection import CONNECT, TimedConnection
from actors.cluster.errors import DatabaseBusy, DatabaseError, DatabaseUnavailable, DatabaseUnusable, translated

CHANGE, REPORT, SIGN_IN = 5.0, 3.0, 1.0
"""Seconds that a call has: of a change; of a report, a heartbeat or a poll; of a sign-in."""
FAILURES = 2
"""After so many in a row calls fail at once."""
PROBE = 1.0
"""Seconds between two probes, in the mean."""
CONNECTIONS = 4
OLDEST_VERSION = 130_000
_PORT = "5432"

_OF_MACHINE = frozenset({"passfile", "service", "servicefile", "sslcert", "sslkey", "sslpassword"})
"""Parts of a DSN by which one role on one machine signs in."""

_CHECK = (
    "SELECT extract(epoch FROM clock_timestamp())::float8, current_setting('server_version_num')::int,"
    " current_setting('server_encoding'), pg_is_in_recovery(), current_setting('transaction_read_only')::bool"
)
_AND_FLEET = ", (SELECT id FROM proxyfleet.fleet)"
# Tables without statistics are taken for large, and compiling a statement takes a thousand times as long as to do it.
# No function or operator is one that another role has made: before PostgreSQL 15 each may make some in `public`.
_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL search_path = proxyfleet, pg_temp; SET LOCAL jit = off; "
_BOUNDS = (
    "SET LOCAL lock_timeout = {:.0f};"
    " SET LOCAL statement_timeout = {:.0f}; SET LOCAL idle_in_transaction_session_timeout = {:.0f}; "
)
_OF_DEADLINE = 800, 900, 500
"""Milliseconds of each second of a deadline, in this order: who hangs within a transaction is ended before those give
up that wait for its lock."""


class DatabaseSession:
    """One connection, for one transaction after the other. Each statement may be several, and has one round trip.

    All methods return the rows of the last statement that has any. They raise `DatabaseError`.
    """

    def __init__(self, connection: TimedConnection, monitored: Callable[[], Any]) -> None:
        self.connection = connection
        self._monitored = monitored

    def transaction(self, statements: str, parameters: Sequence[Any] = (), within: float = REPORT) -> list[Any]:
        """Do it in a transaction of its own."""
        return self._run(f"{_beginning(within)}{statements}; COMMIT", parameters, within)

    def begin(self, statements: str, parameters: Sequence[Any] = (), within: float = CHANGE) -> list[Any]:
        """Begin a transaction with it. One that nothing continues in time is ended by the server."""
        return self._run(f"{_beginning(within)}{statements}", parameters, within)

    def go_on(self, statements: str, parameters: Sequence[Any] | None = (), within: float = CHANGE) -> list[Any]:
        """Do it in the transaction that has begun. Without parameters (None) a `%` is one."""
        return self._run(statements, parameters, within)

    def go_on_within(self, statements: str, parameters: Sequence[Any], within: float) -> list[Any]:
        """As `go_on`; and what follows has so long, too, whatever it had when the transaction began."""
        return self._run(f"{_bounds(within)}{statements}", parameters, within)

    @property
    def own_address(self) -> str:
        """The address of this machine by which it reaches the database; empty where both are one machine."""
        with socket.socket(fileno=os.dup(self.connection.fileno())) as sock:
            if sock.family == socket.AF_UNIX:
                return ""
            address = str(sock.getsockname()[0])
        return "" if ip_address(address).is_loopback else address

    def copy(self, table: str, rows: Iterable[Sequence[Any]], within: float) -> int:
        """Add rows to a table, with its columns behind it, in the transaction that has begun; their number."""
        with self._monitored():
            return self.connection.copy_rows(table, rows, within)

    def finish(self, statements: str, parameters: Sequence[Any] = (), within: float = CHANGE) -> list[Any]:
        """Do it, and commit. After `DatabaseUnavailable` it may have been committed, or be so in a moment."""
        return self._run(f"{statements}; COMMIT", parameters, within)

    def _run(self, statements: str, parameters: Sequence[Any] | None, within: float) -> list[Any]:
        with self._monitored():
            try:
                return self.connection.run(statements, parameters, within)
            except psycopg.Error as error:
                if isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
                    self.connection.close()  # it stays so, also when the database takes changes again
                roll_back(self.connection)
                raise


class Database:
    """The database of a DSN. Nothing is connected until it is needed."""

    def __init__(self, dsn: str, fleet: UUID | None = None) -> None:
        """With `fleet` no connection is used that leads to another fleet, or to none.

        Raises `DatabaseUnusable` for a DSN that can't be read.
        """
        try:
            parts = conninfo_to_dict(dsn)
        except psycopg.Error:
            raise DatabaseUnusable("the DSN of the database can't be read") from None  # libpq's text may have it whole
        port = f":{parts['port']}" if parts.get("port") not in {None, "", _PORT} else ""
        self.place = f"{parts.get('host') or 'localhost'}{port}/{parts.get('dbname') or parts.get('user') or ''}"
        self._dsn, self._fleet = dsn, fleet
        self._lock = threading.Lock()
        self._idle: list[TimedConnection] = []
        self._used: set[TimedConnection] = set()
        self._places = threading.BoundedSemaphore(CONNECTIONS)
        self._failures = 0
        self._refusal = ""
        self._has_rest = False
        self._is_probing = False
        self._last_error: DatabaseError = DatabaseUnavailable(f"{self.place}: closed")
        self._closed = threading.Event()
        self._wall_offset = time.time() - time.monotonic()
        self._responded_at = time.monotonic()
        self.round_trip: float | None = None
        """Seconds of the last statement that has asked for the time."""

    @property
    def is_available(self) -> bool:
        """Whether calls are tried, or fail at once."""
        return self._responds and not self._refusal

    @property
    def _responds(self) -> bool:
        return self._failures < FAILURES

    def refuse(self, why: str, has_rest: bool = False) -> None:
        """From now on it is not used for this reason, but by who says that it shall be; empty: it is.

        It `has_rest` when it isn't even asked whether it is back.
        """
        self._refusal, self._has_rest = why, has_rest and bool(why)
        if self._has_rest:
            self._close_idle()

    def time(self) -> float:
        """The database's time in seconds since 1970, whatever this machine's clock does; until it is known, ours."""
        return time.monotonic() + self._wall_offset

    @property
    def silent_for(self) -> float:
        """Seconds since it has responded, or since this was made."""
        return time.monotonic() - self._responded_at

    @property
    def clock_offset(self) -> float:
        """Seconds by which the database's clock is ahead of this machine's."""
        return self.time() - time.time()

    @contextmanager
    def session(self, even_if_unavailable: bool = False, even_if_refused: bool = False) -> Iterator[DatabaseSession]:
        """A connection for the block; what it has begun and not committed is taken back. Raises `DatabaseError`."""
        if self._refusal and not even_if_refused:
            raise DatabaseUnusable(self._refusal)
        if self._closed.is_set() or not (self._responds or even_if_unavailable):
            raise type(self._last_error)(str(self._last_error)) from self._last_error
        if not self._places.acquire(timeout=CONNECT):
            raise DatabaseBusy(f"{self.place}: all {CONNECTIONS} connections are in use")
        try:
            connection = self._taken()
            self._used.add(connection)
            try:
                yield DatabaseSession(connection, self._monitored)
            finally:
                self._used.discard(connection)
                self._give_back(connection)
        finally:
            self._places.release()

    def transaction(self, statements: str, parameters: Sequence[Any] = (), within: float = REPORT) -> list[Any]:
        """As `DatabaseSession.transaction`, over one of the connections."""
        with self.session() as session:
            return session.transaction(statements, parameters, within)

    def check(self) -> None:
        """Ask for its time, and whether it can be used. Raises `DatabaseError`."""
        with self.session(even_if_unavailable=True, even_if_refused=True) as session, self._monitored():
            self._check(session.connection)

    def assume_ahead(self, seconds: float) -> None:
        """Until it responds its clock is taken to be ahead of this machine's by so much."""
        self._wall_offset += seconds

    def note_time(self, now: float, began: float, ended: float) -> None:
        """The database has said what time it is, between these readings of the monotonic clock."""
        self.round_trip = ended - began
        self._wall_offset = now - (began + ended) / 2

    def close(self) -> None:
        """End all connections, those that wait for it soon. Later calls raise `DatabaseUnavailable`."""
        self._closed.set()
        self._last_error = DatabaseUnavailable(f"{self.place}: closed")
        for each in self._used.copy():
            each.give_up()
        self._close_idle()

    # --- connections ---

    def _taken(self) -> TimedConnection:
        while True:
            with self._lock:
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                return self._connected()
            if connection.is_at_rest:
                return connection
            connection.close()

    def _connected(self) -> TimedConnection:
        try:
            with self._monitored():
                connection = TimedConnection.opened(self._dsn)
                try:
                    self._check(connection)
                except BaseException:
                    connection.close()
                    raise
                return connection
        except DatabaseUnusable as error:
            self._note_failure(error)
            raise

    def _give_back(self, connection: TimedConnection) -> None:
        roll_back(connection)
        with self._lock:
            if connection.is_at_rest and not self._closed.is_set():
                self._idle.append(connection)
                return
        connection.close()

    def _close_idle(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for each in idle:
            each.close()

    def _check(self, connection: TimedConnection) -> None:
        began = time.monotonic()
        statement = _CHECK if self._fleet is None else f"{_CHECK}{_AND_FLEET}"
        ((now, version, encoding, is_standby, is_read_only, *fleet),) = connection.run(statement, None, CONNECT)
        ended = time.monotonic()
        if fleet and fleet[0] != self._fleet:
            what = "no fleet" if fleet[0] is None else f"the fleet {fleet[0]}"
            raise DatabaseUnusable(f"{self.place}: holds {what}, and this node is of {self._fleet}")
        self.note_time(now, began, ended)
        if version < OLDEST_VERSION:
            raise DatabaseUnusable(f"{self.place}: is PostgreSQL {version // 10_000}, and 13 or newer is needed")
        if encoding != "UTF8":
            raise DatabaseUnusable(f"{self.place}: has the encoding {encoding}, and UTF8 is needed")
        if is_standby:
            raise DatabaseUnavailable(f"{self.place}: is a standby, which takes no changes")
        if is_read_only:
            raise DatabaseUnavailable(f"{self.place}: is read-only, and takes no changes")

    # --- whether it responds ---

    @contextmanager
    def _monitored(self) -> Iterator[None]:
        """Also one that refuses responds; a lock that isn't free says nothing."""
        try:
            with translated(self.place):
                yield
        except DatabaseBusy:
            raise
        except DatabaseUnavailable as error:
            self._note_failure(error)
            raise
        self._failures, self._responded_at = 0, time.monotonic()

    def _note_failure(self, error: DatabaseError) -> None:
        self._close_idle()  # those of a server that was restarted
        with self._lock:
            if self._closed.is_set():
                return
            self._last_error = error
            self._failures += 1
            if self._responds or self._is_probing:
                return
            self._is_probing = True
        threading.Thread(target=self._probe, name="database probe", daemon=True).start()

    def _probe(self) -> None:
        """Look whether it is back, until it is."""
        while not self._closed.wait(PROBE * random.uniform(0.5, 1.5)):  # noqa: S311 - no secret
            if self._has_rest:
                continue
            with suppress(DatabaseError):
                self.check()
            with self._lock:
                if self._responds:
                    self._is_probing = False
                    return


def dsn_of_role(dsn: str, role: str, password: str) -> str:
    """The DSN of the same database for another role, on whatever machine. Raises `DatabaseUnusable` for one that can't
    be read."""
    try:
        parts = {name: str(value) for name, value in conninfo_to_dict(dsn).items() if name not in _OF_MACHINE}
        return make_conninfo(**{**parts, "user": role, "password": password})
    except psycopg.Error:
        raise DatabaseUnusable("the DSN of the database can't be read") from None


def login_of(dsn: str) -> tuple[str, str]:
    """The role and the password of a DSN that can be read."""
    parts = conninfo_to_dict(dsn)
    return str(parts.get("user") or ""), str(parts.get("password") or "")


def roll_back(connection: TimedConnection) -> None:
    """Take back what it has begun, if it can; else its end does so."""
    if connection.info.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
        with suppress(psycopg.Error):
            connection.run("ROLLBACK", None, SIGN_IN)


def _beginning(within: float) -> str:
    return f"{_BEGIN}{_bounds(within)}"


def _bounds(within: float) -> str:
    return _BOUNDS.format(*(within * each for each in _OF_DEADLINE))
