"""A connection to the database whose every call ends in time, by the clock of this side."""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from typing import Any, Self, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.pq import TransactionStatus
from psycopg.waiting import Ready, Wait

T = TypeVar("T")

CONNECT = 2.0
"""Seconds to connect."""
GIVEN_UP = 0.2
"""Seconds until one that waits finds that it is given up."""
_EVENTS = {Wait.R: select.POLLIN, Wait.W: select.POLLOUT, Wait.RW: select.POLLIN | select.POLLOUT}


class TimedConnection(psycopg.Connection[Any]):
    """One that waits for the server until `deadline`, a reading of the monotonic clock, and is closed when that passes.

    Statements are sent by the simple protocol: one text may have several, with parameters put in on this side.
    """

    deadline = float("inf")
    _given_up = False

    @classmethod
    def opened(cls, dsn: str) -> Self:
        """A new connection. Raises `psycopg.Error`.

        A thread makes it, since nothing ends a look-up of a name in time.
        """
        opening = Future[Self]()

        def connect() -> None:
            try:
                connection = cls.connect(
                    dsn,
                    autocommit=True,
                    cursor_factory=psycopg.ClientCursor,
                    connect_timeout=int(CONNECT),
                    client_encoding="utf8",
                    application_name="proxyfleet",
                )
            except BaseException as error:  # noqa: BLE001 - it is raised for the one who waits
                opening.set_exception(error)
            else:
                opening.set_result(connection)

        threading.Thread(target=connect, name="connecting", daemon=True).start()
        try:
            return opening.result(CONNECT + 0.1)
        except TimeoutError:
            opening.add_done_callback(_close_late)
            raise psycopg.OperationalError(f"no connection within {CONNECT:g} s") from None

    def run(self, statements: str, parameters: Sequence[Any] | None, within: float) -> list[tuple[Any, ...]]:
        """Have these done within so many seconds: the rows of the last one that has any. Raises `psycopg.Error`."""
        self.deadline = time.monotonic() + within
        cursor = self.execute(statements.encode(), parameters)
        rows: list[tuple[Any, ...]] = []
        while True:
            if cursor.description:
                rows = cursor.fetchall()
            if not cursor.nextset():
                return rows

    def copy_rows(self, table: str, rows: Iterable[Sequence[Any]], within: float) -> int:
        """Add rows to a table, within so many seconds: how many they are. Raises `psycopg.Error`."""
        self.deadline, count = time.monotonic() + within, 0
        with self.cursor() as cursor, cursor.copy(f"COPY {table} FROM STDIN".encode()) as copy:
            for count, each in enumerate(rows, 1):  # noqa: B007 - it is what is returned
                copy.write_row(each)
        return count

    def wait(self, gen: PQGen[T], interval: float = 0, timeout: float | None = None) -> T:  # noqa: ARG002 - psycopg's
        """See `psycopg.Connection.wait`; the deadline takes the place of `interval` and `timeout`."""
        poll, fileno = select.poll(), self.pgconn.socket
        try:
            wanted = next(gen)
            poll.register(fileno, _EVENTS[Wait(wanted)])
            while True:
                left = 0.0 if self._given_up else self.deadline - time.monotonic()
                found = poll.poll(min(left, GIVEN_UP) * 1000) if left > 0 else []
                if not found and left > GIVEN_UP:
                    continue
                if not found:
                    self.close()
                    raise psycopg.OperationalError("no response in time")
                wanted = gen.send(_ready(found[0][1]))
                poll.modify(fileno, _EVENTS[Wait(wanted)])
        except StopIteration as done:
            result: T = done.value
            return result

    def give_up(self) -> None:
        """From any thread: what waits for the server has no more time, and nothing has later."""
        self._given_up = True

    @property
    def is_at_rest(self) -> bool:
        """Whether it can be used for something else: in no transaction, and not ended by the server meanwhile."""
        if self.closed or self.info.transaction_status != TransactionStatus.IDLE:
            return False
        poll = select.poll()
        poll.register(self.pgconn.socket, select.POLLIN)
        return not poll.poll(0)


def _ready(events: int) -> int:
    """What the descriptor is ready for; one that has failed is for both, so that libpq reads the error."""
    return (Ready.R if events & ~select.POLLOUT else Ready.NONE) | (Ready.W if events & ~select.POLLIN else Ready.NONE)


def _close_late(opening: Future[Any]) -> None:
    if opening.exception() is None:
        opening.result().close()
