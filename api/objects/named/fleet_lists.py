"""Lists and pools that are fetched, in a fleet: one node asks the source, and all have what it got.

The state of each is a document then, which names the compiled file by its SHA-256; pools have their upstreams in
documents anyway. A node that finds another state there gets the file, puts it where its own would be, and takes the
state over: what it knows of the list is what it would have fetched itself, so that any node can go on. Without the
database each keeps what it has. A database of places that is read from a file of the machine is of each node.

One machine has no such documents, and does all of it itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from pydantic import BaseModel

from actors.lists.files import is_whole, remove_outdated
from api.engine.record_cache import RecordCache
from api.fleet import SharedFiles, ThisNode
from api.objects.named.list_contents import ListState, ListStates, Sourced
from api.store import Document, NotStored, RevisionConflict, Store, StoreError
from config.model.shared_objects.lists import DestinationList, ListSource

log = logging.getLogger(__name__)

LIST_STATES = "list_states"
"""The collection, of lists and pools, by their ids."""
DUTY = "list-fetches"


class SharedState(BaseModel):
    """A document of the collection. `digest` is the SHA-256 of the compiled file; empty for none, and of pools."""

    id: str
    created_at: float
    digest: str
    state: ListState

    @property
    def name(self) -> str:
        """See `record_cache.Record`."""
        return self.id


class _Stored:
    def __init__(self, document: Document) -> None:
        self.record = SharedState.model_validate(document.body)
        self.revision = document.revision


class FleetLists:
    """Thread-safe, but `follow` is of one thread."""

    def __init__(self, store: Store, states: ListStates, node: Callable[[], ThisNode]) -> None:
        self._store = store
        self._states = states
        self._node = node
        self._known = RecordCache(store, LIST_STATES, _Stored)
        self._taken: dict[str, SharedState] = {}
        self._failed: set[str] = set()

    def asks(self, record: Sourced) -> bool:
        """Whether this node asks the source of it, when that is due."""
        return _is_of_machine(record) or self.has_duty

    @property
    def has_duty(self) -> bool:
        """Whether this node does what one does for all."""
        return self._node().duties.has(DUTY)

    def share(self, record: Sourced, state: ListState) -> None:
        """Have all nodes know that it is in this state, of which this one has the file. Raises `StoreError`."""
        files = self._node().files
        if files is None or _is_of_machine(record):
            return
        known = self._known.get(record.id)
        if known is not None and known.record.state.file == state.file:
            digest = known.record.digest
        else:
            digest = files.put(self._states.folder / state.file) if _has_file(record, state) else ""
        shared = SharedState(id=record.id, created_at=record.created_at, digest=digest, state=state)
        self._store.put(LIST_STATES, shared.model_dump(mode="json"))
        self._taken[record.id] = shared

    def follow(self, records: Sequence[Sourced]) -> Iterator[str]:
        """Take over what other nodes have fetched; the ids of those that have another content by that."""
        files = self._node().files
        if files is None:
            self._forget_all_but(set())  # those of a fleet that it has left
            return
        ids = {each.id for each in records if each.source is not None and not _is_of_machine(each)}
        for record in records:
            if record.id not in ids:
                continue
            known = self._known.get(record.id)
            before = self._states.get(record.id)
            try:
                if known is None:
                    if before.file and self.has_duty:
                        self.share(record, before)  # as before there was a fleet
                elif self._taken.get(record.id) != known.record:
                    is_another = self._take(record, before, known.record, files)
                    self._taken[record.id] = known.record
                    if is_another:
                        yield record.id
            except (StoreError, OSError) as error:
                self._note_failure(record, error)
            else:
                self._failed.discard(record.id)
        if self.has_duty:
            self._forget_all_but(ids)

    def _take(self, record: Sourced, before: ListState, shared: SharedState, files: SharedFiles) -> bool:
        """Whether the content is another one by that."""
        state = shared.state
        path = self._states.folder / state.file
        is_missing = bool(shared.digest) and not is_whole(path, state.kind)
        if is_missing:
            files.get(shared.digest, path)
        if state != before:
            self._states.put(record.id, state)
        if state.file != before.file:
            remove_outdated(self._states.folder, record.id, filter(None, (state.file, before.file)))
        return is_missing or state.file != before.file

    def _forget_all_but(self, ids: set[str]) -> None:
        for gone in self._taken.keys() - ids:
            del self._taken[gone]
        for each in self._known.all():
            if each.record.id not in ids:
                with suppress(NotStored, RevisionConflict):  # another node has done it
                    self._store.delete(LIST_STATES, each.record.id, each.revision)

    def _note_failure(self, record: Sourced, error: Exception) -> None:
        """Once, until it can be followed again."""
        if record.id not in self._failed:
            self._failed.add(record.id)
            log.warning("%s can't be followed, its content stays: %s", record.name, error)


def _is_of_machine(record: Sourced) -> bool:
    return isinstance(record.source, ListSource) and record.source.file is not None


def _has_file(record: Sourced, state: ListState) -> bool:
    return isinstance(record, DestinationList) and bool(state.file)
