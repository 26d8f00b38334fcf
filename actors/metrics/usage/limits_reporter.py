"""Limits of accounts over nodes: what each node counts goes to the fleet's database, and what the others count returns.

An exchange each `EACH` seconds while any node has such accounts in use, of these alone. What returns is written as the
line of one more process (`actors.state.other_nodes`), so that the first use here finds what others count. Where the
database doesn't respond the last division holds: what the others counted then goes on to count, but for so much that
this node has `limit / N` at least.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from actors.bus.loop import Loop, Timer
from actors.cluster.database import Database
from actors.cluster.errors import DatabaseError, level_of
from actors.cluster.usage_report import UsageTable
from actors.log_lines import ThrottledLog
from actors.state.other_nodes import NOTHING, Figures, KeyInUse, OtherNodes, open_other_nodes
from actors.thread_pool import ThreadPool

log = logging.getLogger(__name__)

EACH: Final = 0.75
"""Seconds. Another node's exchange and this one's, one after the other, take less than two."""
IDLE: Final = 4.0
"""Seconds, while no node has any such account in use."""
CUT_OFF_AFTER: Final = 10.0
NEWS_LAST: Final = 8.0
"""Seconds after which what the heartbeat has said is no reason not to look."""
UNUSED: Final = KeyInUse(NOTHING, 0, 0, False)
WRITTEN_AT_ONCE: Final = 256
"""Lines in one turn of the loop: a few milliseconds."""


class LimitsReporter:
    """Of a node. It opens and closes nothing but its thread and the table."""

    def __init__(self, loop: Loop, state: Path, database: Database, node: str, nodes: Callable[[], int]) -> None:
        """`state` is `RunDir.state`, `node` the node's id, and `nodes` returns how many the fleet has."""
        self._loop = loop
        self._state = state
        self._database = database
        self._table = UsageTable(database, node)
        self._nodes = nodes
        self._threads = ThreadPool(loop, 1)
        self._errors = ThrottledLog(log, "cannot count limits of accounts over nodes")
        self._counts: OtherNodes | None = None
        self._others: dict[int, Figures] = {}
        """What other nodes count, as they said last."""
        self._to_write: list[tuple[int, Figures | None, bool]] = []
        """Keys whose lines are still to be written: what it says, None for nothing, and whether it is a bandwidth."""
        self._is_busy = self._closed = False
        self._reported = False
        """Whether the others may have figures of this node."""
        self._exchanged_at = self._began_at = loop.now
        self._news_at = loop.now - NEWS_LAST
        self._timer: Timer = loop.call_later(EACH, self._tick)

    def note(self, in_use: bool) -> None:
        """This node's heartbeat has been at the database; whether another node has accounts with limits in use."""
        self._news_at = self._loop.now - (NEWS_LAST if in_use else 0.0)
        if not in_use and self._is_idle:
            self._exchanged_at = self._loop.now
        elif in_use:
            self._began_at = self._loop.now - IDLE

    @property
    def _is_idle(self) -> bool:
        """Whether there is nothing that an exchange would say or change, as far as is known here."""
        return not (self._reported or self._others)

    def close(self) -> None:
        """End. What is written goes on to count for a while, until the next collector goes on."""
        self._closed = True
        self._timer.cancel()
        self._threads.close()

    def forget(self) -> None:
        """Let no other node count any more, since this machine leaves the fleet."""
        counts = self._opened()
        if counts is not None:
            for key in counts.keys:
                counts.free(key)

    @property
    def is_cut_off(self) -> bool:
        """Whether the database has not responded for so long."""
        return self._loop.now - self._exchanged_at >= CUT_OFF_AFTER

    def _opened(self) -> OtherNodes | None:
        if self._counts is None:
            try:
                self._counts = open_other_nodes(self._state, lambda: self._loop.now)
            except OSError as error:
                self._errors.error(error)
            if self._counts is not None:
                self._others = self._counts.written()
        return self._counts

    def _tick(self) -> None:
        self._timer = self._loop.call_later(EACH, self._tick)
        counts = self._opened()
        if counts is None:
            return
        in_use = counts.in_use()
        now, is_idle = self._loop.now, not in_use and self._is_idle
        if self._is_busy or not self._database.is_available:
            self._divide(counts, in_use)
        elif not is_idle or (now - self._began_at >= IDLE and now - self._news_at >= NEWS_LAST):
            self._exchange(counts, in_use)

    def _exchange(self, counts: OtherNodes, in_use: Mapping[int, KeyInUse]) -> None:
        self._is_busy, self._began_at = True, self._loop.now
        figures = {key: each.figures for key, each in in_use.items()}

        def run() -> dict[int, list[int]] | DatabaseError:
            try:
                return self._table.limits(figures)
            except DatabaseError as error:
                return error

        def ended(result: dict[int, list[int]] | DatabaseError | None) -> None:
            self._is_busy = False
            if self._closed:
                return
            if isinstance(result, dict):
                self._exchanged_at, self._reported = self._loop.now, bool(in_use)
                self._others = {key: Figures(*each) for key, each in result.items()}
                self._errors.recovered()
            elif self.is_cut_off:
                self._errors.error(result or RuntimeError("it failed"), level_of(result))
            self._divide(counts, in_use)

        self._threads.submit(run, ended)

    def _divide(self, counts: OtherNodes, in_use: Mapping[int, KeyInUse]) -> None:
        """Let processes know what other nodes count; of much some in each turn."""
        writes = dict[int, tuple[int, Figures | None, bool]]((key, (key, None, False)) for key in counts.keys)
        is_cut_off, nodes = self.is_cut_off, self._nodes()
        for key, others in self._others.items():
            here = in_use.get(key, UNUSED)
            figures = last_division(others, here, nodes) if is_cut_off and here is not UNUSED else others
            if here.is_bandwidth or figures[:2] != (0, 0):
                writes[key] = key, figures, here.is_bandwidth
        waits = bool(self._to_write)
        self._to_write = list(writes.values())
        if not waits:
            self._write_some(counts)

    def _write_some(self, counts: OtherNodes) -> None:
        if self._closed:
            return
        some, self._to_write = self._to_write[:WRITTEN_AT_ONCE], self._to_write[WRITTEN_AT_ONCE:]
        for key, figures, is_bandwidth in some:
            if figures is None:
                counts.free(key)
            else:
                counts.write(key, figures, is_bandwidth)
        if self._to_write:
            self._loop.call_soon(lambda: self._write_some(counts))

    def __repr__(self) -> str:
        return f"<LimitsReporter{', cut off' if self.is_cut_off else ''}: {len(self._others)} keys>"


def last_division(others: Figures, here: KeyInUse, nodes: int) -> Figures:
    """What counts of the other nodes at one that is cut off, which has a part of `nodes` of each limit at least."""
    flows = nodes - 1
    return Figures(
        min(others.connections, here.max_connections - -(-here.max_connections // nodes)),
        min(others.requests, here.max_requests - -(-here.max_requests // nodes)),
        others.bytes_in,
        others.bytes_out,
        min(others.flows_in, flows * max(1, here.figures.flows_in)),
        min(others.flows_out, flows * max(1, here.figures.flows_out)),
    )
