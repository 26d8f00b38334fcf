"""The open connections of one forwarding actor: what each is to the rest (a client connection, and whatever it
becomes), their numbers, what is counted of them, and what becomes of them.

Going over all connections of a proxy, or what is made of them, a batch in each turn of the loop. Ten thousand at once
would be a stall.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Final, NamedTuple, Protocol, TypeVar

from actors.bus.loop import Loop
from actors.bus.records import Row
from actors.counters import CONNECTIONS, INTERNAL_ERRORS
from actors.forwarding.isolation import REASON, CrashLog
from actors.forwarding.limits.limits import LimitsOfProxy
from actors.forwarding.limits.meter import MeteredConnection
from actors.forwarding.net.timer_wheel import Expirable, TimerWheel
from actors.forwarding.protocols.commands import Report
from actors.forwarding.protocols.failures import Failure
from actors.forwarding.reporting import trace
from actors.forwarding.stats import ConnectionStats
from actors.state.live_state import LiveState


class ConnectionInfo(NamedTuple):
    """What a connection is doing at one moment: the fields of `ConnectionReport` that are its own. `target` and `user`
    are empty as long as there is none."""

    client: str
    user: str
    target: str
    state: str
    bytes_in: int
    bytes_out: int
    parent: str = ""
    credential: str = ""
    source_address: str = ""
    source_rule: str = ""
    parameters: str = ""
    pool: str = ""
    listen_port: int = 0
    tls_name: str = ""
    alpn: str = ""
    tls_version: str = ""


class OpenConnection(Expirable, MeteredConnection, Protocol):
    """An open connection or tunnel, which can be inspected and ended from outside."""

    number: int
    """When it came, in microseconds of `ForwardingContext.clock`: its age and its id within this process in one."""

    listen_port: int
    """The port of the proxy that the client has come to."""

    def info(self) -> ConnectionInfo:
        """What it is doing now."""

    def policies_changed(self) -> None:
        """Policies have changed, and what they no longer allow is to end: a tunnel, or an association."""

    def drop(self) -> None:
        """Close the sockets that are still open: `end` has raised an exception."""


T = TypeVar("T")

VISIT_BATCH: Final = 250
"""What is visited in one turn; a millisecond or less."""


def visit_in_batches(
    loop: Loop,
    waiting: dict[T, None],
    visit: Callable[[T], None],
    complete: Callable[[], None],
) -> None:
    """Visit those that wait, the first in this very call. What is not to be visited any more is removed by others.

    Then call `complete`, in this call as well if there were few.
    """
    for each in tuple(islice(waiting, VISIT_BATCH)):
        if waiting.pop(each, each) is None:
            visit(each)
    if waiting:
        loop.call_soon(partial(visit_in_batches, loop, waiting, visit, complete))
    else:
        complete()


class OpenConnections:
    """The part of `ForwardingContext` that knows them."""

    def __init__(self, loop: Loop, add_record: Callable[[Row], None], state: LiveState) -> None:
        self.loop = loop
        self.debug = trace.enabled()
        """Whether each decision about a connection is logged."""
        self.id_prefix = os.urandom(6).hex()
        """Begins the ids of requests and ends those of connections; no other process has it."""
        self.stats = ConnectionStats(loop, add_record, self.id_prefix)
        self.connections: dict[OpenConnection, None] = {}
        """Those that are open; a set of as many takes twice the memory."""
        self.on_empty: Callable[[], None] | None = None
        """Called when the last of them has ended."""
        self.timers = TimerWheel(loop)
        self.limits = LimitsOfProxy(loop, state)
        self.stats.on_refusal = self.limits.count_refusal
        self._unvisited: list[dict[OpenConnection, None]] = []
        """Those that something is still to be done with, a table for each time that all were to be visited."""
        self._crashes = CrashLog()
        self._last_number = 0
        self._epoch = time.time() - time.monotonic()

    def clock(self) -> float:
        """Unix seconds at the actor's start, and on from there whatever happens to the wall clock."""
        return self.loop.now + self._epoch

    def new_number(self) -> int:
        """A new connection's number: when it came, in microseconds of `clock`, and no two alike."""
        self._last_number = max(self._last_number + 1, int(self.clock() * 1e6))
        return self._last_number

    def connection_id(self, number: int) -> str:
        """The id of a connection: its number, and what distinguishes this process from all others."""
        return f"{number:x}{self.id_prefix[:8]}"

    def add(self, connection: OpenConnection) -> None:
        """Register a client connection that was accepted."""
        if self.debug:
            trace.note(self.connection_id(connection.number), "accepted from %s", connection.client_ip)
        self.stats.values[CONNECTIONS] += 1
        self.connections[connection] = None
        if self.limits.counts:
            self.limits.connection_added(connection, len(self.connections))

    def remove(self, connection: OpenConnection) -> None:
        """Remove a connection that has ended."""
        if self.debug:
            age = self.clock() - connection.number / 1e6
            trace.note(self.connection_id(connection.number), "ended after %.3f s", age)
        self.connections.pop(connection, None)
        self.timers.cancel(connection)
        for unvisited in self._unvisited:
            unvisited.pop(connection, None)
        if connection.meter is not None:
            connection.meter.close()
        if self.limits.counts:
            self.limits.connection_removed(connection, len(self.connections))
        if not self.connections and self.on_empty is not None:
            self.on_empty()

    def replace(self, connection: OpenConnection, successor: OpenConnection) -> None:
        """Put a tunnel or association in the place of the client connection that has become it."""
        self.connections.pop(connection, None)
        self.timers.cancel(connection)
        self.connections[successor] = None
        for unvisited in self._unvisited:
            if unvisited.pop(connection, successor) is None:
                unvisited[successor] = None
        if successor.meter is not None:
            successor.meter.holder = successor
        if self.limits.counts_clients:
            self.limits.connection_closed(connection)
            self.limits.connection_opened(successor)

    def visit_all(self, visit: Callable[[OpenConnection], None], done: Callable[[], None]) -> None:
        """Visit all that are open now and do not end before, in batches; then call `done`, at once where they are few.

        What takes the place of one meanwhile is visited instead.
        """
        unvisited = dict.fromkeys(self.connections)
        self._unvisited.append(unvisited)

        def complete() -> None:
            self._unvisited.remove(unvisited)
            done()

        visit_in_batches(self.loop, unvisited, visit, complete)

    def tunnel_ended(self, tunnel: OpenConnection, report: Report) -> None:
        """Count, record and remove a tunnel or association that has ended."""
        if self.debug:
            trace.note_report(self.connection_id(tunnel.number), report, None)
        self.stats.exchange_ended(report, tunnel.client_ip, tunnel.listen_port)
        self.remove(tunnel)

    def handshake_failed(self, connection: OpenConnection, failure: Failure) -> None:
        """Count a failed TLS handshake with a client, and record it within bounds."""
        if self.debug:
            trace.note(self.connection_id(connection.number), "%s: %s", failure.reason, failure.detail)
        self.stats.handshake_failed(connection.client_ip, connection.listen_port, failure)

    def crashed(self, connection: OpenConnection, error: Exception) -> None:
        """Count and log an unforeseen exception within a connection, and end that connection alone."""
        self.count_crash(f"a connection of {connection.client_ip}", error)
        try:
            connection.end(REASON)
        except Exception as again:  # noqa: BLE001 - what it was in the middle of may be in its way
            self.count_crash(f"the end of a connection of {connection.client_ip}", again)
        if connection in self.connections:
            connection.drop()
            self.remove(connection)

    def count_crash(self, what: str, error: Exception) -> None:
        """Count and log an unforeseen exception, with which `what` ends."""
        self.stats.values[INTERNAL_ERRORS] += 1
        self._crashes.add(what, error, self.loop.now)
