"""The records plane: batches of access records to the log indexer, acknowledged after commit.

The sender numbers its batches; the indexer commits a batch and its number in one transaction and acknowledges the
number. What isn't acknowledged is sent again, in order, with the same number, and the indexer drops what it has: so a
record is stored once, whichever of the two dies in between. The sender keeps at most `ROWS_MAX` rows; what comes on
top is dropped and counted, and traffic never waits.

A batch is one frame, msgpack: `[source, instance, number, first, rows, proxy_name]`, where `rows` is msgpack in its
turn, packed once however often it is sent: lists with the fields of `config.text.access_fields`. (Several frames would
let libzmq 4.3.5 abort when the socket is closed amid them.) `first` is the oldest number that the sender still keeps:
all before it are on disk, so an indexer that knows nothing of this sender (its file is gone) waits for nothing that
will never come. `proxy_name` is what the proxy is called at the moment. The acknowledgement is
`[source, instance, number]`: this number and all before it are on disk.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import msgpack
import zmq

from actors.bus.loop import Loop, bind, new_socket
from actors.log_lines import LogThrottle
from config.text.access_fields import ACCESS_FIELDS

log = logging.getLogger(__name__)

Row = tuple[Any, ...]
_STATUS, _REASON = ACCESS_FIELDS.index("status_code"), ACCESS_FIELDS.index("reason")

BATCH_ROWS: Final = 1_000
ROWS_MAX = 100_000
FLUSH_PERIOD = 0.25
RESEND_AFTER = 2.0
RESENT_AT_ONCE = 8
"""Batches that are sent once more in one turn of the loop: they may have megabytes."""


def is_error(row: Row) -> bool:
    """Whether it is the record of a request that failed or was refused."""
    return row[_STATUS] >= 400 or bool(row[_REASON])


class RecordSender:
    """A forwarding actor's end. `add` is on the hot path and does hardly more than append.

    The socket is made for the first records: an actor without clients has none.
    """

    def __init__(self, loop: Loop, context: zmq.Context[Any], address: str, source: str, instance: int) -> None:
        self._loop = loop
        self._context = context
        self._address = address
        self._source = source
        self._instance = instance
        self._rows: list[Row] = []
        self._unacknowledged: deque[tuple[int, int, bytes]] = deque()
        self._kept = 0
        self._timed = False
        self._number = 0
        self._last_progress = loop.now
        self._resent = 0
        """The number that was last sent once more, while others are still to be; else 0."""
        self.proxy_name = ""
        """The proxy's name, for the outputs beside the index."""
        self._drops = LogThrottle()
        self.dropped = 0
        self._socket: zmq.Socket[bytes] | None = None
        self._closed = False

    def add(self, row: Row) -> None:
        """Queue a record; it is sent within `FLUSH_PERIOD`, or when a batch is full."""
        self._rows.append(row)
        if len(self._rows) >= BATCH_ROWS:
            self._send_rows()
        if not self._timed:
            self._timed = True
            self._loop.call_later(FLUSH_PERIOD, self._on_flush_timer)

    def _on_flush_timer(self) -> None:
        self._timed = False
        self.flush()
        if self._unacknowledged:
            self._timed = True
            self._loop.call_later(FLUSH_PERIOD, self._on_flush_timer)

    @property
    def settled(self) -> bool:
        """True when everything that was added is on disk."""
        return not self._rows and not self._unacknowledged

    @property
    def waiting(self) -> int:
        """How many records are not on disk, as far as is known."""
        return len(self._rows) + self._kept

    def flush(self) -> None:
        """Send what was added, and once more what has waited too long for its acknowledgement."""
        if self._rows:
            self._send_rows()
        if self._unacknowledged and self._loop.now - self._last_progress > RESEND_AFTER:
            self._last_progress = self._loop.now
            if not self._resent:
                self._resend()

    def close(self, linger: float = 0.2) -> None:
        """Close the socket; what is queued gets `linger` seconds."""
        self._closed = True
        if self._socket is not None:
            self._loop.detach(self._socket)
            self._socket.close(linger=int(linger * 1000))

    def _resend(self) -> None:
        """Send the next `RESENT_AT_ONCE` of what isn't acknowledged, and the others in the turns after this one."""
        if self._closed or not self._unacknowledged:
            self._resent = 0
            return
        begin = max(0, self._resent + 1 - self._unacknowledged[0][0])
        for number, _count, frame in tuple(islice(self._unacknowledged, begin, begin + RESENT_AT_ONCE)):
            if not self._transmit(number, frame):
                self._resent = 0
                return
            self._resent = number
        if self._resent < self._unacknowledged[-1][0]:
            self._loop.call_soon(self._resend)
        else:
            self._resent = 0

    def _send_rows(self) -> None:
        rows, self._rows = self._rows, []
        if self._kept + len(rows) > ROWS_MAX:
            self._drop(len(rows))
            return
        if not self._unacknowledged:
            self._last_progress = self._loop.now
        self._number += 1
        frame: bytes = msgpack.packb(rows)
        self._unacknowledged.append((self._number, len(rows), frame))
        self._kept += len(rows)
        self._transmit(self._number, frame)

    def _drop(self, count: int) -> None:
        self.dropped += count
        if self._drops.due():
            log.error("dropped %d access records so far: the log indexer acknowledges none", self.dropped)

    def _transmit(self, number: int, frame: bytes) -> bool:
        """Returns False when the indexer is away and the queue is full."""
        first = self._unacknowledged[0][0]
        batch = msgpack.packb([self._source, self._instance, number, first, frame, self.proxy_name])
        try:
            if self._socket is None:
                self._socket = self._connect()
            self._loop.send(self._socket, [batch])
        except zmq.Again:
            return False  # sent again when its acknowledgement stays out
        except zmq.ZMQError as error:  # no descriptor is left for the socket: tried again then
            log.debug("no socket for access records: %s", error)
            return False
        return True

    def _connect(self) -> zmq.Socket[bytes]:
        """Raises `zmq.ZMQError`."""
        made = new_socket(self._context, zmq.DEALER, high_water=1_000)
        made.setsockopt(zmq.ROUTING_ID, f"{self._source}/{self._instance}".encode())
        made.connect(self._address)
        self._loop.attach(made, self._on_acknowledged)
        return made

    def _on_acknowledged(self, frames: list[bytes]) -> None:
        source, instance, number = msgpack.unpackb(frames[-1])
        if source != self._source or instance != self._instance:
            return
        self._last_progress = self._loop.now
        while self._unacknowledged and self._unacknowledged[0][0] <= number:
            _number, count, _frame = self._unacknowledged.popleft()
            self._kept -= count


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """One batch as it arrived; see the module."""

    source: str
    instance: int
    number: int
    first: int
    rows: list[list[Any]]
    proxy_name: str = ""


Commit = Callable[[RecordBatch], int]
"""Puts a batch on disk if it is the next one; returns the last number of this instance that is on disk in any case."""


class RecordReceiver:
    """The log indexer's end."""

    def __init__(self, loop: Loop, context: zmq.Context[Any], address: str, commit: Commit) -> None:
        self._loop = loop
        self._commit = commit
        self._socket = new_socket(context, zmq.ROUTER, high_water=1_000)
        self._socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
        bind(self._socket, address)
        loop.attach(self._socket, self._on_batch)

    def close(self) -> None:
        """Receive no more batches."""
        self._loop.detach(self._socket)
        self._socket.close(linger=100)

    def _on_batch(self, frames: list[bytes]) -> None:
        try:
            sender, packed = frames
            batch = _batch_of(packed)
        except (ValueError, TypeError, msgpack.exceptions.UnpackException) as error:
            log.error("batch of records refused: %s", error)
            return
        committed = self._commit(batch)
        self._loop.send(self._socket, [sender, msgpack.packb([batch.source, batch.instance, committed])])


def _batch_of(packed: bytes) -> RecordBatch:
    """Raises what msgpack does, `TypeError` and `ValueError`."""
    source, instance, number, first, body, proxy_name = msgpack.unpackb(packed)
    rows = msgpack.unpackb(body)
    if (
        {type(source), type(proxy_name)} != {str}
        or not isinstance(rows, list)
        or {type(instance), type(number), type(first)} != {int}
    ):
        raise ValueError("not a batch")
    return RecordBatch(source, instance, number, first, rows, proxy_name)
