"""What a process has of the state of upstreams: a slot for each, in a line of a table (`actors.state.table`).

**Of a pool** all processes of the machine share one file, in the folder `pools` of the run directory, with one line for
each upstream, which all write. A line for the pool itself has its revision, its counters, and how often its upstreams
have changed: `refresh` comes before each choice, reads that one word, and finds the lines anew when it is another. Only
who changes which upstreams there are takes a lock; one that has an older revision of the pool changes nothing. The line
of an upstream that is removed is used again a while later, since a process that doesn't know that yet may write it.

What can be lost: two processes that write the same word in the same microsecond lose one of the two updates: one
failure not counted, one measurement missing in the mean, one doubling of a cool-down omitted. The words of a slot are
not written together: a reader between two writes may see an upstream that is down with the error before. A text that
two write at once may be a mixture of both. Nothing of that lasts: the next use or check writes again. A ban is written
by one process only, the API, so none is lost.

**Of a proxy's own upstreams** each worker has a line for each, in a file of the proxy beside its other live state, and
is the only one that writes it. So what is known outlives the process: the next one of that worker goes on with the line
of one that has ended, or with a copy of it while that still drains. A process that begins ends the lines of what was
removed while no process was there to do that.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

from actors.bus.messages.specs import PoolSpec, UpstreamSpec
from actors.mapped_file import Words
from actors.pools.slot import (
    BANNED_UNTIL,
    CONNECTIONS,
    FAILED_EVER,
    LATENCY,
    READY_AT,
    SLOT,
    STATE,
    STATES,
    Spans,
    UpstreamSlot,
    spans_of,
)
from actors.pools.slot import CHECKS as CHECKED
from actors.state.live_state import LiveState
from actors.state.processes import NO_PROCESSES, UNOWNED
from actors.state.table import (
    FOREVER,
    KEY,
    NO_LINE,
    NUMBERS,
    OWNER,
    RELEASED,
    UNTIL,
    Table,
    TableKind,
    make_table,
    open_table,
)

log = logging.getLogger(__name__)

_LINE: Final = NUMBERS + SLOT
OWN_TABLE: Final = TableKind("upstreams", pages=1, lines=1 << 18, line=_LINE)
"""Of the upstreams of one proxy itself: eight kilobytes for a few of them."""
POOL_TABLE: Final = TableKind("pool", pages=16, lines=1 << 16, line=_LINE)

_POOL: Final = 1
"""The key of the line of the pool itself."""
REVISION, CHANGES, CHECKS, CHECKS_FAILED, BANS = range(NUMBERS, NUMBERS + 5)
"""Its words. The last three are counters of the pool, which outlive its upstreams: the process that checks counts
checks, the API bans."""
_ATTEMPTS: Final = 100
"""To get the lock of a pool, each for about a millisecond."""
_NOT_USED_FOR: Final = 600_000
"""Milliseconds until the line of an upstream that was removed is used again."""

Identity = tuple[str, str, int, str | None]


def identity(spec: UpstreamSpec) -> Identity:
    """The fields by which an upstream of a changed configuration is the same one."""
    return spec.protocol, spec.host, spec.port, spec.username


def number_of(upstream: object) -> int:
    """A number of 64 bits that stands for an `Identity` in all processes, and isn't 0."""
    return int.from_bytes(hashlib.blake2b(repr(upstream).encode(), digest_size=8).digest(), "little") or 2


def private_slots(spans: Spans, count: int) -> list[UpstreamSlot]:
    """What this process alone knows of so many upstreams."""
    slots = [UpstreamSlot(spans) for _ in range(count)]
    _place_privately(slots)
    return slots


def _place_privately(slots: Sequence[UpstreamSlot]) -> None:
    """Nothing is known of them, and this process alone will."""
    raw = memoryview(bytearray(8 * SLOT * len(slots)))
    words = raw.cast("d")
    for index, slot in enumerate(slots):
        slot.place(words, raw, SLOT * index)


class _Memory:
    """What a table is to slots."""

    def __init__(self, table: Table) -> None:
        self._raw = table.words.cast("B")
        self._numbers = self._raw.cast("d")

    def place(self, slot: UpstreamSlot, line: int) -> None:
        slot.place(self._numbers, self._raw, line + NUMBERS)


def _lines(table: Table) -> dict[int, int]:
    """By key, the lines that all processes write."""
    words, now, found = table.words, table.now(), dict[int, int]()
    for lines in table.used():
        keys = words[lines.start + KEY : lines.stop : lines.step].tolist()
        ends = words[lines.start + UNTIL : lines.stop : lines.step].tolist()
        found.update((key, line) for key, line, end in zip(keys, lines, ends, strict=True) if key and end > now)
    return found


# --- of a pool ---


class SharedPoolState:
    """The state of a pool as one configuration has it; another configuration has another object.

    While the file can't be made or mapped, the process knows what it has learned itself. `decides` is for the process
    that makes the checks: its upstreams are right whatever revision another has.
    """

    def __init__(
        self, path: Path, revision: int, identities: Sequence[Identity], spans: Spans, decides: bool = False
    ) -> None:
        self._path = path
        self._revision = revision
        self._keys = [number_of(each) for each in identities]
        self.slots = tuple(UpstreamSlot(spans) for _ in identities)
        self.is_shared = False
        """Whether other processes have the same state of all upstreams."""
        self._table: Table | None = None
        self._words: Words = memoryview(bytes(8 * _LINE)).cast("Q")
        self._pool = self._changes = 0
        try:
            self._open(decides)
        except OSError as error:
            log.warning("the state of a pool, %s, can't be shared: %s", path, error.strerror or error)
        self._place()

    def refresh(self) -> None:
        """Find the lines anew if there are other upstreams."""
        if self._words[self._pool + CHANGES] != self._changes:
            self._place()

    def reconfigure(self, spec: PoolSpec) -> None:
        """Apply other cool-downs of the same upstreams."""
        spans = _spans(spec)
        for slot in self.slots:
            slot.spans = spans

    def count_check(self, slot: UpstreamSlot, failed: bool) -> None:
        """Count a check; for the process that makes them."""
        slot.count_check(failed)
        self._count(CHECKS)
        if failed:
            self._count(CHECKS_FAILED)

    def ban(self, slot: UpstreamSlot, until: float) -> None:
        """Leave an upstream out until then; for the API."""
        slot.ban(until)
        self._count(BANS)

    def eligible(self, now: float) -> list[UpstreamSlot]:
        """The slots of all upstreams that may be used."""
        self.refresh()
        return [slot for slot in self.slots if slot.eligible(now)]

    def _count(self, counter: int) -> None:
        if self._pool:
            self._words[self._pool + counter] += 1

    def _open(self, decides: bool) -> None:
        self._path.parent.mkdir(mode=0o700, exist_ok=True)
        table = make_table(self._path, POOL_TABLE, NO_PROCESSES, UNOWNED)
        try:
            self._pool = self._settled(table, decides)
        finally:
            table.close()
        if not self._pool:
            raise TimeoutError("its lines can't be claimed")
        self._table, self._words = table, table.words

    def _settled(self, table: Table, decides: bool) -> int:
        """The line of the pool, once all upstreams that are to have a line have one."""
        there = _lines(table)
        pool = there.get(_POOL, NO_LINE)
        known = table.words[pool + REVISION] if pool else -1
        if not decides and (known > self._revision or (known == self._revision and there.keys() >= set(self._keys))):
            return pool
        for _ in range(_ATTEMPTS):
            with table.exclusive(_POOL) as alone:
                if alone:
                    return self._change(table, decides)
        return pool

    def _change(self, table: Table, decides: bool) -> int:
        """With the lock: there are lines of these upstreams and of no other ones. Each step may be the last one."""
        words, there = table.words, _lines(table)
        pool = there.get(_POOL) or table.take(_POOL, RELEASED)
        if not pool or (words[pool + REVISION] > self._revision and not decides):
            return pool
        keys, end = {_POOL, *self._keys}, table.now() + _NOT_USED_FOR
        for key in there.keys() - keys:
            words[there[key] + UNTIL] = end
            words[there[key] + KEY] = 0
        for key in keys:
            line = pool if key == _POOL else there.get(key) or table.take(key, RELEASED)
            if line:
                words[line + UNTIL] = FOREVER
        if there.keys() != keys or words[pool + REVISION] != self._revision:
            words[pool + CHANGES] += 1
        words[pool + REVISION] = self._revision  # last: until then the next one does all of it again
        return pool

    def _place(self) -> None:
        """Find the lines. One without, which a change has removed that this process gets in a moment, is private."""
        self._changes = self._words[self._pool + CHANGES]
        table = self._table
        memory, there = (None, {}) if table is None else (_Memory(table), _lines(table))
        missing: list[UpstreamSlot] = []
        for slot, key in zip(self.slots, self._keys, strict=True):
            line = there.get(key)
            if memory is not None and line:
                memory.place(slot, line)
            else:
                missing.append(slot)
        _place_privately(missing)
        self.is_shared = table is not None and not missing

    def __repr__(self) -> str:
        return f"<SharedPoolState {self._path.name}, {len(self.slots)} upstreams>"


def _spans(spec: PoolSpec) -> Spans:
    return spans_of({kind: (first, longest) for kind, first, longest in spec.cooldown})


def pool_state(folder: Path, spec: PoolSpec, decides: bool = False) -> SharedPoolState:
    """The state of this pool; `folder` is `RunDir.pools`."""
    identities = [identity(each) for each in spec.upstreams.entries]
    return SharedPoolState(folder / spec.id, spec.revision, identities, _spans(spec), decides)


# --- of a proxy's own upstreams ---


class OwnStates:
    """The lines of one worker. Without a table, or a line, the process knows what it has learned itself."""

    def __init__(self, state: LiveState, spans: Spans) -> None:
        self._live = state.further(OWN_TABLE)
        self._number = state.number
        self._worker = state.worker
        self._spans = spans
        self._memory: _Memory | None = None
        self._lines: dict[UpstreamSlot, int] = {}

    def slot(self, upstream: Identity, now: float) -> UpstreamSlot:
        """What is known of this upstream, by this worker or by those before it."""
        slot = private_slots(self._spans, 1)[0]
        table = self._live.made()
        if table is not None:
            line = self._claim(table, number_of((*upstream, self._worker)))
            if line:
                self._memory = self._memory or _Memory(table)
                self._memory.place(slot, line)
                self._lines[slot] = line
        slot.take_over(now)
        return slot

    def remove(self, slot: UpstreamSlot) -> None:
        """The upstream is none of the proxy any more; its slot has parted from its line."""
        line, table = self._lines.pop(slot, NO_LINE), self._live.present()
        if line and table is not None:
            table.words[line + UNTIL] = 0
            table.release(line)

    def end_others(self, upstreams: Iterable[Identity], workers: int) -> None:
        """End lines that processes have left of other upstreams than these, or of workers beyond so many."""
        table = self._live.present()
        if table is None:
            return
        words, lives = table.words, self._live.processes.lives
        keys = {number for each in upstreams for number in own_numbers(each, workers)}
        for line in chain.from_iterable(table.used()):
            key = words[line + KEY]
            if key not in keys and words[line + UNTIL] and not lives(words[line + OWNER]):
                with table.exclusive(key) as alone:
                    if alone and words[line + KEY] == key and not lives(words[line + OWNER]):
                        words[line + UNTIL] = 0

    def _claim(self, table: Table, key: int) -> int:
        """The line of the last process that has ended; or a new one, with what is known by the one that still lives."""
        words, lives = table.words, self._live.processes.lives
        with table.exclusive(key) as alone:
            if not alone:
                return NO_LINE
            there = list(table.lines(key))
            last = max(there, key=lambda each: words[each + OWNER], default=NO_LINE)
            if last and not lives(words[last + OWNER]):
                line = last
                words[line + OWNER] = self._number
            else:
                line = table.take(key, self._number)
                if line and last:
                    words[line + NUMBERS : line + _LINE] = words[last + NUMBERS : last + _LINE]
            if line:
                words[line + UNTIL] = FOREVER  # from here on it holds whatever becomes of this process
            for each in there:
                if each != line and not lives(words[each + OWNER]):
                    words[each + UNTIL] = 0
            return line

    def __repr__(self) -> str:
        return f"<OwnStates of {len(self._lines)} upstreams>"


# --- views ---


def known_state(folder: Path, pool_id: str, identities: Sequence[Identity]) -> Mapping[Identity, UpstreamSlot]:
    """What is known of these upstreams, without making a file; for views. Raises `OSError`."""
    table = _opened(folder / pool_id)
    slots: dict[Identity, UpstreamSlot] = {}
    if table is None:
        return slots
    memory, there = _Memory(table), _lines(table)
    for each in identities:
        line = there.get(number_of(each))
        if line:
            slots[each] = slot = UpstreamSlot(())
            memory.place(slot, line)
    return slots


def uses_of(path: Path, kind: TableKind = POOL_TABLE) -> dict[int, tuple[int, int]]:
    """By the number of each upstream in this file: uses and checks, and failures. Raises `OSError`.

    An upstream of a proxy has a number for each of its workers (`own_numbers`).
    """
    table = _opened(path, kind)
    if table is None:
        return {}
    lines, numbers = _lines(table), table.words.cast("B").cast("d")
    lines.pop(_POOL, None)
    return {
        key: (int(numbers[line + CONNECTIONS] + numbers[line + CHECKED]), int(numbers[line + FAILED_EVER]))
        for key, line in ((key, line + NUMBERS) for key, line in lines.items())
    }


def own_numbers(upstream: Identity, workers: int) -> list[int]:
    """What stands for an upstream of a proxy in the lines of so many workers."""
    return [number_of((*upstream, worker)) for worker in range(workers)]


def _opened(path: Path, kind: TableKind = POOL_TABLE) -> Table | None:
    """The table of a pool, or of another kind, to be read. Raises `OSError`."""
    table = open_table(path, kind, NO_PROCESSES, UNOWNED)
    if table is not None:
        table.close()
    return table


CHECK_SPACING = 0.01
"""Seconds between the first checks of two upstreams: the first one is checked at once."""


def longest_check(upstreams: int, timeout: float) -> float:
    """Seconds after which a check of all upstreams has surely ended."""
    return upstreams * CHECK_SPACING + timeout + 1.0


class PoolCounts(NamedTuple):
    """How many upstreams are in each state; each is in one of the first three.

    `usable` are those that are up and not left alone for a time: of one that is not known yet nothing is promised.
    `cooling_down` and `banned` exclude each other. `latency` is the mean of those that are known, seconds; None without
    any. The last three are counters since the file was made.
    """

    up: int
    down: int
    unknown: int
    cooling_down: int
    banned: int
    usable: int
    latency: float | None
    checks: int = 0
    checks_failed: int = 0
    bans: int = 0


def unknown(upstreams: int) -> PoolCounts:
    """Of a pool with so many upstreams, of which nothing is known."""
    return PoolCounts(0, 0, upstreams, 0, 0, 0, None)


def summary_of(path: Path, upstreams: int, now: float) -> PoolCounts:
    """Of the pool with this file and so many upstreams, of which nothing is known without it. Raises `OSError`."""
    table = _opened(path)
    there = {} if table is None else _lines(table)
    pool = there.pop(_POOL, NO_LINE)
    return unknown(upstreams) if table is None or not pool else _counts_of(table, pool, there.values(), now)


def _counts_of(table: Table, pool: int, lines: Collection[int], now: float) -> PoolCounts:
    words, numbers = table.words, table.words.cast("B").cast("d")

    def column(place: int) -> list[float]:
        return [numbers[line + NUMBERS + place] for line in lines]

    states = [STATES[int(each)] for each in column(STATE)]
    banned = sum(until > now for until in column(BANNED_UNTIL))
    ready = [until <= now for until in column(READY_AT)]
    known = [each for each in column(LATENCY) if each]
    return PoolCounts(
        states.count("up"),
        states.count("down"),
        states.count("unknown"),
        max(0, ready.count(False) - banned),
        banned,
        sum(state == "up" and is_ready for state, is_ready in zip(states, ready, strict=True)),
        sum(known) / len(known) if known else None,
        *(words[pool + each] for each in (CHECKS, CHECKS_FAILED, BANS)),
    )
