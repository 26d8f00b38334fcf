"""What a process has of one pool's state: a `UpstreamSlot` for each upstream, in the order of the pool.

`refresh` comes before each choice: it costs one read, and maps the new file when another process has replaced it.
`actors.pools.state_file` has the file, and what may be lost.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from actors.bus.messages.specs import PoolSpec, UpstreamSpec
from actors.pools.slot import BANNED_UNTIL, LATENCY, READY_AT, STATE, STATES, Spans, UpstreamSlot, spans_of
from actors.pools.state_file import (
    BANS,
    CHECKS,
    CHECKS_FAILED,
    REPLACED,
    SLOT,
    Layout,
    StateFile,
    digest_at,
    digests_of,
    locked,
    open_existing,
    open_for,
    private_file,
)

log = logging.getLogger(__name__)

Identity = tuple[str, str, int, str | None]


def identity(spec: UpstreamSpec) -> Identity:
    """The fields by which an upstream of a changed configuration is the same one."""
    return spec.protocol, spec.host, spec.port, spec.username


def private_slots(spans: Spans, count: int) -> list[UpstreamSlot]:
    """What this process alone knows of so many upstreams."""
    raw = memoryview(bytearray(8 * SLOT * count))
    words, slots = raw.cast("d"), [UpstreamSlot(spans) for _ in range(count)]
    for index, slot in enumerate(slots):
        slot.place(words, raw, SLOT * index)
    return slots


class SharedPoolState:
    """The state of a pool as one configuration has it; another configuration has another object.

    While the file can't be made or mapped, the process knows what it has learned itself. `decides` is for the process
    that makes the checks: the layout of its file is right whatever revision another has.
    """

    def __init__(
        self, path: Path, revision: int, identities: Sequence[Identity], spans: Spans, decides: bool = False
    ) -> None:
        self._path = path
        self.is_shared = True
        """Whether other processes have the same state."""
        self._layout = Layout(digests_of(identities), revision)
        self.slots = tuple(UpstreamSlot(spans) for _ in identities)
        self._place(self._opened(decides))

    def refresh(self) -> None:
        """Map the new file if there is one."""
        if self._file.words[REPLACED]:
            self._place(self._reopened())

    def reconfigure(self, spec: PoolSpec) -> None:
        """Apply other cool-downs of the same upstreams."""
        spans = _spans(spec)
        for slot in self.slots:
            slot.spans = spans

    def count_check(self, slot: UpstreamSlot, failed: bool) -> None:
        """Count a check; for the process that makes them."""
        slot.count_check(failed)
        self._file.words[CHECKS] += 1.0
        if failed:
            self._file.words[CHECKS_FAILED] += 1.0

    def ban(self, slot: UpstreamSlot, until: float) -> None:
        """Leave an upstream out until then; for the API. Raises `OSError`."""
        self._decide(partial(slot.ban, until))
        self._file.words[BANS] += 1.0

    def lift(self, slot: UpstreamSlot, now: float) -> None:
        """End a ban and all cool-downs; for the API. Raises `OSError`."""
        self._decide(partial(slot.lift, now))

    def eligible(self, now: float) -> list[UpstreamSlot]:
        """The slots of all upstreams that may be used."""
        self.refresh()
        return [slot for slot in self.slots if slot.eligible(now)]

    def _decide(self, change: Callable[[], None]) -> None:
        """Make a change that must not be lost to a replacement of the file."""
        while True:
            self.refresh()
            with locked(self._path):
                if not self._file.words[REPLACED]:
                    change()
                    return

    def _opened(self, decides: bool) -> StateFile:
        try:
            return open_for(self._path, self._layout, decides)
        except OSError as error:
            return self._private(error)

    def _reopened(self) -> StateFile:
        """The file as another process has made it; this one's layout is older, or as good."""
        try:
            found = open_existing(self._path)
        except OSError as error:
            return self._private(error)
        return self._opened(False) if found is None else found

    def _private(self, error: OSError) -> StateFile:
        self.is_shared = False
        log.warning("the state of a pool, %s, can't be shared: %s", self._path, error.strerror or error)
        return private_file(self._layout)

    def _place(self, file: StateFile) -> None:
        self._file = file
        places = file.layout.places()
        missing: list[tuple[UpstreamSlot, bytes]] = []
        for index, slot in enumerate(self.slots):
            digest = digest_at(self._layout.digests, index)
            if digest in places:
                slot.place(file.words, file.raw, places[digest])
            else:
                missing.append((slot, digest))
        if missing:
            self._place_privately(missing)

    def _place_privately(self, missing: Sequence[tuple[UpstreamSlot, bytes]]) -> None:
        """For upstreams that a change has removed which this process gets in a moment."""
        private = private_file(self._layout)
        places = self._layout.places()
        for slot, digest in missing:
            slot.place(private.words, private.raw, places[digest])

    def __repr__(self) -> str:
        return f"<SharedPoolState {self._path.name}, {len(self.slots)} upstreams>"


def _spans(spec: PoolSpec) -> Spans:
    return spans_of({kind: (first, longest) for kind, first, longest in spec.cooldown})


def pool_state(folder: Path, spec: PoolSpec, decides: bool = False) -> SharedPoolState:
    """The state of this pool; `folder` is `RunDir.pools`."""
    identities = [identity(each) for each in spec.upstreams.entries]
    return SharedPoolState(folder / spec.id, spec.revision, identities, _spans(spec), decides)


def known_state(folder: Path, pool_id: str, identities: Sequence[Identity]) -> Mapping[Identity, UpstreamSlot]:
    """What is known of these upstreams, without making a file; for views. Raises `OSError`."""
    found = open_existing(folder / pool_id)
    if found is None:
        return {}
    places = found.layout.places()
    slots: dict[Identity, UpstreamSlot] = {}
    digests = digests_of(identities)
    for index, each in enumerate(identities):
        at = places.get(digest_at(digests, index))
        if at is not None:
            slots[each] = slot = UpstreamSlot(spans_of({}))
            slot.place(found.words, found.raw, at)
    return slots


CHECKS_APART = 0.01
"""Seconds between the first checks of two upstreams: the first one is checked at once."""


def longest_check(upstreams: int, timeout: float) -> float:
    """Seconds after which a check of all upstreams has surely ended."""
    return upstreams * CHECKS_APART + timeout + 1.0


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
    file = open_existing(path)
    return unknown(upstreams) if file is None else _of_file(file, now)


def _of_file(file: StateFile, now: float) -> PoolCounts:
    states = [STATES[int(each)] for each in file.column(STATE)]
    banned = sum(until > now for until in file.column(BANNED_UNTIL))
    ready = [until <= now for until in file.column(READY_AT)]
    known = [each for each in file.column(LATENCY) if each]
    return PoolCounts(
        states.count("up"),
        states.count("down"),
        states.count("unknown"),
        max(0, ready.count(False) - banned),
        banned,
        sum(state == "up" and is_ready for state, is_ready in zip(states, ready, strict=True)),
        sum(known) / len(known) if known else None,
        *(int(file.words[each]) for each in (CHECKS, CHECKS_FAILED, BANS)),
    )
