"""Records over time and the most frequent values of fields, exact if there is time for all, else from an even sample.

What the counts of a block (`actors.logs.dayfile.COUNTED`) decide, and lies in one bucket, is counted without reading
it. The other blocks are read until the time is over, in an order in which those that were read are always spread over
all of them. What could not be read is estimated: the records of a block by its counts, or by the share that matches
elsewhere, evenly over its time; the values by those that were read.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import compress
from typing import Any

from actors.bus.messages.records import CountLogs, LogCounts
from actors.log_lines import levels_from
from actors.logs.blocks import Block, LogSnapshot
from actors.logs.columns import DictionaryColumn
from actors.logs.query_filter import MICRO, CompiledQuery
from actors.logs.record_schema import HOST, OUTCOME, OUTCOME_FIELDS, SEPARATOR, TARGET, WAY, WAY_FIELDS, outcome_of
from config.model.choices import LOG_LEVELS

READ_MAX = 0.5
"""Seconds that it may take to read blocks."""
SAMPLE = 300
"""Blocks that are read for values: more would not change the order of the most frequent ones."""
FAILED = 400
"""The status from which on a record counts as failed, and below it from warnings on: those are refusals whose tunnel
was already announced."""

_JOINED: dict[str, tuple[tuple[str, ...], Callable[..., str]]] = {
    WAY: (WAY_FIELDS, lambda *values: SEPARATOR.join(values)),
    OUTCOME: (OUTCOME_FIELDS, outcome_of),
}
"""Names that stand for several fields, and how their values are one."""
_FAILURES = frozenset(map(str, range(FAILED, 600)))
_WARNINGS = levels_from("warning")
_CALM = frozenset(LOG_LEVELS) - _WARNINGS
_HOST_IN_TARGET = re.compile(r"(?:[a-z][a-z0-9+.-]*://)?(?:[^/?#@]*@)?(\[[^\]/]*\]|[^/?#:]*)", re.IGNORECASE)
_PORT_BEHIND = re.compile(r":([0-9]{1,5})(?![0-9])")
_USUAL_PORTS = {"http": 80, "https": 443, "ftp": 21}

Sums = dict[str, list[int]]
"""By value: records, bytes in, bytes out."""


def count_records(snapshot: LogSnapshot, message: CountLogs, clock: Callable[[], float]) -> LogCounts:
    """The counts. Raises `sqlite3.Error`."""
    return _ValueCount(snapshot, message).run(clock() + READ_MAX, clock)


class _ValueCount:
    def __init__(self, snapshot: LogSnapshot, message: CountLogs) -> None:
        self._message = message
        self._query = query = CompiledQuery.of(message.query)
        self._ngrams = query.ngrams()
        self._step = message.step * MICRO
        self._start = query.start // self._step * self._step
        buckets = max(1, -(-(query.end + 1 - self._start) // self._step))
        self._records, self._failed = [0.0] * buckets, [0.0] * buckets
        self._sums: dict[str, Sums] = {name: {} for name in message.fields}
        self._exact = snapshot.complete
        self._seen, self._matched, self._matched_failed = 0, 0, 0
        self._blocks: list[Block] = []
        self._counts: dict[int, int] = {}
        self._failures: dict[int, int] = {}
        for file in snapshot.files:
            self._blocks += file.between(query.start, query.end)
            if query.counts_suffice and query.counted:
                self._counts |= file.counts(query.counted)
            if query.counts_suffice:
                warnings = file.counts(self._counted_of(level=_WARNINGS))
                calm = file.counts(self._counted_of(level=_CALM, status_code=_FAILURES))
                for block in warnings.keys() | calm.keys():
                    self._failures[block] = warnings.get(block, 0) + calm.get(block, 0)

    def run(self, deadline: float, clock: Callable[[], float]) -> LogCounts:
        unread: list[Block] = []
        for block in self._blocks:
            if not self._is_known(block):
                unread.append(block)
            elif not self._message.fields:
                self._add_known(block)
        if self._message.fields:
            unread = list(self._blocks)
        left = self._read_until(unread, deadline, clock)
        for block in left:
            self._estimate(block)
        return self._result()

    def _read_until(self, blocks: list[Block], deadline: float, clock: Callable[[], float]) -> list[Block]:
        """Read blocks, in an order that is spread over all of them; those that were not read."""
        order = random.Random(0).sample(range(len(blocks)), len(blocks))  # noqa: S311 - the same order each time
        most = SAMPLE if self._message.fields else len(blocks)
        for done, at in enumerate(order):
            if done >= most or clock() > deadline:
                return [blocks[each] for each in order[done:]]
            self._read(blocks[at])
        return []

    # --- a block that is read ---

    def _read(self, block: Block) -> None:
        self._seen += block.count
        mask = self._mask(block)
        if mask is not None:
            self._add_times(block, mask)
            for name in self._message.fields:
                self._add_values(block, mask, name)
        block.release()

    def _mask(self, block: Block) -> bytes | None:
        if self._query.counts_suffice and not block.fresh and self._query.counted and block.first not in self._counts:
            return None
        return block.mask_in_time(self._query, self._ngrams)

    def _add_times(self, block: Block, mask: bytes) -> None:
        statuses, levels = block.columns.texts("status_code"), block.columns.texts("level")
        failing = [value in _FAILURES for value in statuses.values]
        warning = [value in _WARNINGS for value in levels.values]
        start, step = self._start, self._step
        rows = zip(block.columns.times(), statuses.codes, levels.codes, strict=True)
        for time, code, level in compress(rows, mask):
            bucket = (time - start) // step
            self._records[bucket] += 1
            self._matched += 1
            if failing[code] or warning[level]:
                self._failed[bucket] += 1
                self._matched_failed += 1

    def _add_values(self, block: Block, mask: bytes, name: str) -> None:
        columns, sums = block.columns, self._sums[name]
        names, joined = _JOINED.get(name, ((name,), None))
        parts = [columns.texts(TARGET if each == HOST else each) for each in names]
        codes: Iterable[Any] = zip(*(each.codes for each in parts), strict=True) if joined else parts[0].codes
        rows = zip(codes, columns.numbers("bytes_in"), columns.numbers("bytes_out"), strict=True)
        by_code: dict[Any, list[int]] = {}
        for code, bytes_in, bytes_out in compress(rows, mask):
            found = by_code.get(code)
            if found is None:
                by_code[code] = [1, bytes_in, bytes_out]
            else:
                found[0] += 1
                found[1] += bytes_in
                found[2] += bytes_out
        for code, added in by_code.items():
            value = joined(*map(_value, parts, code, names)) if joined else _value(parts[0], code, name)
            known = sums.setdefault(value, [0, 0, 0])
            for place, number in enumerate(added):
                known[place] += number

    # --- a block that is not ---

    def _is_known(self, block: Block) -> bool:
        """Whether its counts say all: they decide the query, and its records are in one bucket."""
        query = self._query
        if block.fresh or not query.counts_suffice or block.oldest < query.start or block.newest > query.end:
            return False
        return (block.oldest - self._start) // self._step == (block.newest - self._start) // self._step

    def _add_known(self, block: Block) -> None:
        records, failed = self._by_counts(block)
        bucket = (block.oldest - self._start) // self._step
        self._records[bucket] += records
        self._failed[bucket] += failed

    def _estimate(self, block: Block) -> None:
        """Its records evenly over its time."""
        if self._query.counts_suffice:
            records, failed = map(float, self._by_counts(block))
        else:
            records = block.count * self._matched / self._seen if self._seen else 0.0
            failed = block.count * self._matched_failed / self._seen if self._seen else 0.0
        self._exact = self._exact and self._is_known(block)
        for bucket, share in self._shares(block):
            self._records[bucket] += records * share
            self._failed[bucket] += failed * share

    def _by_counts(self, block: Block) -> tuple[int, int]:
        records = self._counts.get(block.first, 0) if self._query.counted else block.count
        return records, self._failures.get(block.first, 0)

    def _shares(self, block: Block) -> Iterator[tuple[int, float]]:
        """The buckets of a block, each with the part of its time that lies there."""
        span = block.newest - block.oldest + 1
        first, last = max(block.oldest, self._query.start), min(block.newest, self._query.end)
        for bucket in range((first - self._start) // self._step, (last - self._start) // self._step + 1):
            begin = max(first, self._start + bucket * self._step)
            end = min(last, self._start + (bucket + 1) * self._step - 1)
            yield bucket, (end - begin + 1) / span

    # --- the result ---

    def _result(self) -> LogCounts:
        total = sum(self._records)
        factor = total / self._matched if self._matched else 1.0
        return LogCounts(
            self._start // MICRO,
            tuple(map(round, self._records)),
            tuple(map(round, self._failed)),
            {name: self._most(sums, factor) for name, sums in self._sums.items()},
            self._exact and (not self._message.fields or round(total) == self._matched),
        )

    def _most(self, sums: Sums, factor: float) -> tuple[tuple[str, int, int, int], ...]:
        ordered = sorted(((value, added) for value, added in sums.items() if value), key=_order)[: self._message.most]
        return tuple(
            (value, round(records * factor), round(bytes_in * factor), round(bytes_out * factor))
            for value, (records, bytes_in, bytes_out) in ordered
        )

    def _counted_of(self, **only: frozenset[str]) -> dict[str, frozenset[str]]:
        """What the query wants of the counts, and of that only these values."""
        counted = self._query.counted
        return {**counted, **{name: values & counted.get(name, values) for name, values in only.items()}}


def _order(counted: tuple[str, list[int]]) -> tuple[int, int, str]:
    """Most records first, then most bytes, then by name."""
    value, (records, bytes_in, bytes_out) = counted
    return -records, -bytes_in - bytes_out, value


def _value(column: DictionaryColumn, code: int, name: str) -> str:
    return host_of(column.values[code]) if name == HOST else column.values[code]


def host_of(target: str) -> str:
    """The host of a URL or of `host:port`, in lower case; IPv6 in brackets."""
    found = _HOST_IN_TARGET.match(target)
    return found[1].lower() if found else ""


def port_of(target: str) -> int | None:
    """The port of a URL, that of its scheme where it names none, or of `host:port`; None where there is none."""
    found = _HOST_IN_TARGET.match(target)
    named = _PORT_BEHIND.match(target, found.end()) if found else None
    return int(named[1]) if named else _USUAL_PORTS.get(target.partition("://")[0].lower())
