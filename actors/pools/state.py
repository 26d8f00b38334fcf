"""What a process has of one pool's state: a `Slot` for each upstream, in the order of the pool.

`refresh` comes before each choice: it costs one read, and maps the new file when another process has replaced it.
`actors.pools.state_file` has the file, and what may be lost.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from actors.bus.messages.fleet_objects import PoolSpec
from actors.bus.messages.upstreams import UpstreamSpec
from actors.pools.slot import Slot, Spans, spans_of
from actors.pools.state_file import (
    BANS,
    CHECKS,
    CHECKS_FAILED,
    REPLACED,
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


class PoolState:
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
        self.slots = tuple(Slot(spans) for _ in identities)
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

    def count_check(self, slot: Slot, failed: bool) -> None:
        """Count a check; for the process that makes them."""
        slot.count_check(failed)
        self._file.words[CHECKS] += 1.0
        if failed:
            self._file.words[CHECKS_FAILED] += 1.0

    def ban(self, slot: Slot, until: float) -> None:
        """Leave an upstream out until then; for the API. Raises `OSError`."""
        self._decide(partial(slot.ban, until))
        self._file.words[BANS] += 1.0

    def lift(self, slot: Slot, now: float) -> None:
        """End a ban and all cool-downs; for the API. Raises `OSError`."""
        self._decide(partial(slot.lift, now))

    def eligible(self, now: float) -> list[Slot]:
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
        missing: list[tuple[Slot, bytes]] = []
        for index, slot in enumerate(self.slots):
            digest = digest_at(self._layout.digests, index)
            if digest in places:
                slot.place(file.words, file.raw, places[digest])
            else:
                missing.append((slot, digest))
        if missing:
            self._place_privately(missing)

    def _place_privately(self, missing: Sequence[tuple[Slot, bytes]]) -> None:
        """For upstreams that a change has removed which this process gets in a moment."""
        private = private_file(self._layout)
        places = self._layout.places()
        for slot, digest in missing:
            slot.place(private.words, private.raw, places[digest])

    def __repr__(self) -> str:
        return f"<PoolState {self._path.name}, {len(self.slots)} upstreams>"


def _spans(spec: PoolSpec) -> Spans:
    return spans_of({kind: (first, longest) for kind, first, longest in spec.cooldown})


def pool_state(folder: Path, spec: PoolSpec, decides: bool = False) -> PoolState:
    """The state of this pool; `folder` is `RunDir.pools`."""
    identities = [identity(each) for each in spec.upstreams.entries]
    return PoolState(folder / spec.id, spec.revision, identities, _spans(spec), decides)


def known_state(folder: Path, pool_id: str, identities: Sequence[Identity]) -> Mapping[Identity, Slot]:
    """What is known of these upstreams, without making a file; for views. Raises `OSError`."""
    found = open_existing(folder / pool_id)
    if found is None:
        return {}
    places = found.layout.places()
    slots: dict[Identity, Slot] = {}
    digests = digests_of(identities)
    for index, each in enumerate(identities):
        at = places.get(digest_at(digests, index))
        if at is not None:
            slots[each] = slot = Slot(spans_of({}))
            slot.place(found.words, found.raw, at)
    return slots
