"""Reads and changes of the objects of one kind."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, Protocol

from api.engine.kind import Kind, ObjectKind
from api.engine.records import R, Stored, view_of
from api.errors import Invalid, NotFound, StaleRevision
from api.security.caller import Caller
from api.store import ATTEMPTS, Document, FleetStore, RevisionConflict, StoreWriteError, Write
from api.store.loaded import is_same
from config.files.secret_box import SecretBox, sealing_as
from config.model.proxy_parts import FieldWarning


class Records(Protocol[R]):
    """The objects of a kind that are there."""

    def all(self) -> Sequence[Stored[R]]:
        """All of them, oldest first."""
        ...

    def get(self, identifier: str) -> Stored[R] | None:
        """The one with this id."""
        ...

    def named(self, name: str) -> str | None:
        """The id of the one with this name."""
        ...


@dataclass(frozen=True, slots=True)
class Proposal(Generic[R]):
    """A change that is prepared and not made yet: `before` None is a new object, `after` None a deletion.

    `path` precedes fields in errors about it.
    """

    before: Stored[R] | None
    after: R | None
    path: str = ""
    caller: Caller | None = None
    """Who asks for it, as of when the request was authenticated."""

    @property
    def record(self) -> R:
        """The object after the change, or the one that is deleted."""
        if self.after is not None:
            return self.after
        assert self.before is not None
        return self.before.record

    @property
    def id(self) -> str:
        """Of the object."""
        return str(self.record.id)  # type: ignore[attr-defined]  # see `R`

    @property
    def action(self) -> str:
        """What events call it."""
        return "created" if self.before is None else "deleted" if self.after is None else "updated"

    @property
    def is_none(self) -> bool:
        """Whether nothing would change."""
        return self.before is not None and self.after is not None and is_same(self.before.record, self.after)

    def write(self, collection: str) -> Write:
        """For the store."""
        body = None if self.after is None else self.after.model_dump(mode="json")
        return Write(collection, self.id, body, 0 if self.before is None else self.before.revision)


Proposals = Sequence[Proposal[R]]


def _nothing(*_given: Any) -> None:
    pass


def _as_they_are(_caller: Caller, stored: Sequence[Stored[Any]], whole: bool) -> list[dict[str, Any]]:
    return [view_of(each.record, whole) for each in stored]


def one_at_a_time() -> Callable[[Any], AbstractContextManager[object]]:
    """A lock of its own for the changes of a kind."""
    lock = threading.Lock()
    return lambda _proposals: lock


@dataclass(frozen=True, slots=True)
class Hooks(Generic[R]):
    """What the engine asks and tells a kind. All but `views` may raise a `DomainError`, which refuses the change."""

    lock: Callable[[Proposals[R]], AbstractContextManager[object]]
    """Holds up other changes for the time of these."""
    make: Callable[[Caller | None, R | None, Any, str], R] | None = None
    """The record of a body, for this caller, from the one that is there; the last is the `path` of a `Proposal`.

    It may take its time, since it holds nothing up. None: as the kind says."""
    permit: Callable[[Caller, Proposal[R]], None] = _nothing
    """Refuses what this caller may not do, make or leave behind."""
    check: Callable[[Proposals[R]], None] = _nothing
    """Refuses what does not fit to other objects, of changes that are made together. Called under the lock.

    In a fleet it is called again when other nodes can't change anything: it waits for nothing."""
    prepare: Callable[[Proposals[R]], None] = _nothing
    """Makes what has to be there before they are stored, once they are checked. It may take its time."""
    guard: Callable[[Proposal[R]], AbstractContextManager[object]] = lambda _proposal: nullcontext()
    """Holds up what could make a change wrong from here until it is stored, or refuses it; in a fleet twice, as
    `check`: its lock is one that a thread may take again."""
    again: Callable[[R, R], bool] = lambda _seen, _now: True
    """Whether a change that another one overtook, without `If-Match`, is made of what is there now instead."""
    commit: Callable[[Proposals[R], Sequence[Write]], int] | None = None
    """Stores them with what follows from them in one commit, and returns its number. None: nothing follows."""
    complete: Callable[[Stored[R]], Stored[R]] = lambda stored: stored
    """An object with what is known of it beside its document, as it is used; views and warnings get that."""
    views: Callable[[Caller, Sequence[Stored[R]], bool], list[dict[str, Any]]] = _as_they_are
    """These objects as this caller sees them: whole, or as lists have them."""
    warnings: Callable[[Stored[R]], Sequence[FieldWarning]] = field(default=lambda _stored: ())
    """What is worth knowing about it, beside what its record alone tells."""


class Objects(Generic[R]):
    """The objects of one kind. Thread-safe.

    A change is prepared first, which may take its time, and then checked and stored under the lock of the kind; any
    number of them are one commit. Changes raise `Invalid`, `InvalidResource`, `NotFound`, `StaleRevision`,
    `RevisionConflict`, `StoreWriteError`, and what hooks raise.
    """

    def __init__(
        self,
        kind: Kind[R],
        store: FleetStore,
        records: Records[R],
        seal: SecretBox,
        publish: Callable[[str, dict[str, Any]], None],
        hooks: Hooks[R],
    ) -> None:
        self.kind = kind
        self.hooks = hooks
        self._store = store
        self._records = records
        self._seal = seal
        self._publish = publish

    def all(self) -> Sequence[Stored[R]]:
        """All of them, oldest first."""
        return self._records.all()

    def get(self, key: str) -> Stored[R]:
        """The one with this id, or this name where the kind is known by it. Raises `NotFound`."""
        found = self._records.get(key)
        if found is None and self.kind.by_name:
            found = self._records.get(self._records.named(key) or "")
        if found is None:
            raise NotFound(f"The {self.kind.name}")
        return found

    # --- changes ---

    def create(self, body: Any, caller: Caller | None = None) -> Stored[R]:
        """A new one."""
        (stored,) = self.commit([self.prepare_create(body, caller)])
        assert stored is not None
        return stored

    def update(self, key: str, body: Any, if_match: int | None, caller: Caller | None = None) -> Stored[R]:
        """Change any part."""
        stored = self._repeated(if_match, lambda: self.prepare_update(key, body, if_match, caller))
        assert stored is not None
        return stored

    def change(self, key: str, change: Callable[[R], R], if_match: int | None) -> Stored[R]:
        """Change one by `change`, which makes the new record of the present one."""

        def prepare() -> Proposal[R]:
            before = self.matching(key, if_match)
            with sealing_as(StoreWriteError):
                return Proposal(before, change(before.record))

        stored = self._repeated(if_match, prepare)
        assert stored is not None
        return stored

    def delete(self, key: str, if_match: int | None, caller: Caller | None = None) -> str:
        """Delete one; its id."""
        proposals: list[Proposal[R]] = []

        def prepare() -> Proposal[R]:
            proposals.append(self.prepare_delete(key, if_match, caller))
            return proposals[-1]

        self._repeated(if_match, prepare)
        return proposals[-1].id

    def prepare_create(self, body: Any, caller: Caller | None = None, path: str = "") -> Proposal[R]:
        """A new one, not stored yet. It may hash a password."""
        return self._permitted(caller, Proposal(None, self._record(caller, None, body, path), path, caller))

    def prepare_update(
        self, key: str, body: Any, if_match: int | None = None, caller: Caller | None = None, path: str = ""
    ) -> Proposal[R]:
        """A changed one, not stored yet. It may hash a password."""
        before = self.matching(key, if_match)
        return self._permitted(caller, Proposal(before, self._record(caller, before.record, body, path), path, caller))

    def prepare_delete(
        self, key: str, if_match: int | None = None, caller: Caller | None = None, path: str = ""
    ) -> Proposal[R]:
        """A deletion, not made yet."""
        return self._permitted(caller, Proposal(self.matching(key, if_match), None, path, caller))

    def commit(self, proposals: Proposals[R]) -> list[Stored[R] | None]:
        """Make all of the changes or none; the objects after it, None for a deleted one. Publishes their events.

        Raises `RevisionConflict` when one of them has changed since it was prepared.
        """
        pending = [each for each in proposals if not each.is_none]
        number = 0
        if pending:
            with self.hooks.lock(pending), ExitStack() as guards:
                self.check(pending)
                self.hooks.prepare(pending)
                for each in pending:
                    guards.enter_context(self.hooks.guard(each))
                with self._store.rechecked(partial(self._check_again, pending)):
                    number = self._store_all(pending)
            self.publish(pending)
        return [each.before if each.is_none else _after(each, number) for each in proposals]

    def check(self, proposals: Proposals[R]) -> None:
        """Refuse what does not fit to the objects that are there. The caller holds the lock."""
        most, new = self.kind.most, sum(each.before is None for each in proposals)
        if most is not None and new and len(self.all()) + new > most:
            raise Invalid(None, f"there are {most} {self.kind.collection} already")
        for each in proposals if self.kind.unique_names else ():
            name = each.record.name  # type: ignore[attr-defined]  # see `R`
            if each.after is not None and self._records.named(name) not in (None, each.id):
                raise Invalid("name", f'the name "{name}" is in use')
        self.hooks.check(proposals)

    def _check_again(self, proposals: Proposals[R]) -> None:
        self.check(proposals)
        for each in proposals:
            with self.hooks.guard(each):
                pass

    def publish(self, proposals: Proposals[R]) -> None:
        """Publish the events of changes that were made."""
        for each in proposals if self.kind.events else ():
            self._publish(f"{self.kind.name}.{each.action}", self.kind.about(each.record))

    def matching(self, key: str, if_match: int | None) -> Stored[R]:
        """The one with this key, if it is at this revision. Raises `NotFound`, `StaleRevision`."""
        stored = self.get(key)
        if if_match not in (None, stored.revision):
            raise StaleRevision(stored.revision)
        return stored

    def views(self, caller: Caller, stored: Sequence[Stored[R]], whole: bool) -> list[dict[str, Any]]:
        """These objects as this caller sees them: whole, or as lists have them."""
        return self.hooks.views(caller, [self.hooks.complete(each) for each in stored], whole)

    def warnings(self, stored: Stored[R]) -> list[FieldWarning]:
        """What is worth knowing about one."""
        stored = self.hooks.complete(stored)
        of_record = () if self.kind.warnings is None else self.kind.warnings(stored.record)
        return [*of_record, *self.hooks.warnings(stored)]

    # --- inside ---

    def _record(self, caller: Caller | None, before: R | None, body: Any, path: str) -> R:
        if self.hooks.make is not None:
            return self.hooks.make(caller, before, body, path)
        kind, now = self.kind, time.time()
        assert isinstance(kind, ObjectKind)
        with sealing_as(StoreWriteError):
            record: R = (
                kind.new(body, now, self._seal) if before is None else kind.change(before, body, now, self._seal)
            )
        return record

    def _permitted(self, caller: Caller | None, proposal: Proposal[R]) -> Proposal[R]:
        if caller is not None:
            self.hooks.permit(caller, proposal)
        return proposal

    def _repeated(self, if_match: int | None, prepare: Callable[[], Proposal[R]]) -> Stored[R] | None:
        for attempt in range(ATTEMPTS):
            proposal = prepare()
            try:
                return self.commit([proposal])[0]
            except RevisionConflict:
                if if_match is not None or attempt == ATTEMPTS - 1 or not self._again(proposal):
                    raise
        raise AssertionError

    def _again(self, proposal: Proposal[R]) -> bool:
        now = self._records.get(proposal.id)
        return now is None or proposal.before is None or self.hooks.again(proposal.before.record, now.record)

    def _store_all(self, proposals: Proposals[R]) -> int:
        writes = [each.write(self.kind.collection) for each in proposals]
        return self._store.commit(writes) if self.hooks.commit is None else self.hooks.commit(proposals, writes)


def _after(proposal: Proposal[R], revision: int) -> Stored[R] | None:
    return None if proposal.after is None else Stored(proposal.after, revision)


def load(kind: Kind[R], document: Document) -> Stored[R]:
    """The object in a document."""
    return Stored(kind.model.model_validate(document.body), document.revision)
