"""Reads and changes of the objects of one kind."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol

from api.engine.kind import Kind, ObjectKind
from api.engine.records import R, Stored, view_of
from api.errors import Invalid, NotFound, StaleRevision
from api.security.caller import Caller
from api.store import Document, NotStored, RevisionConflict, Store, StoreWriteError
from api.store.records import is_same
from config.files.secret_box import SecretBox, SecretBoxError
from config.model.proxy_checks import Warned


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
    """A change that is not made yet: `before` None is a new object, `after` None a deletion."""

    before: Stored[R] | None
    after: R | None
    body: Any = None


def _nothing(*_given: Any) -> None:
    pass


def _as_they_are(_caller: Caller, stored: Sequence[Stored[Any]], whole: bool) -> list[dict[str, Any]]:
    return [view_of(each.record, whole) for each in stored]


def one_at_a_time() -> Callable[[Any], AbstractContextManager[object]]:
    """A lock of its own for the changes of a kind."""
    lock = threading.Lock()
    return lambda _body: lock


@dataclass(frozen=True, slots=True)
class Hooks(Generic[R]):
    """What the engine asks and tells a kind. All but `views` may raise a `DomainError`, which refuses the change."""

    lock: Callable[[Any], AbstractContextManager[object]]
    """Holds up other changes for the time of one with this body; None for a deletion."""
    permit: Callable[[Caller, R], None] = _nothing
    """Refuses a record that this caller may not make or leave behind."""
    check: Callable[[Proposal[R]], None] = _nothing
    """Refuses what does not fit to other objects."""
    guard: Callable[[Proposal[R]], AbstractContextManager[object]] = lambda _proposal: nullcontext()
    """Holds up what could make a change wrong from here until it is stored, or refuses it."""
    complete: Callable[[Stored[R]], Stored[R]] = lambda stored: stored
    """An object with what is known of it beside its document, as it is used; views and warnings get that."""
    views: Callable[[Caller, Sequence[Stored[R]], bool], list[dict[str, Any]]] = _as_they_are
    """These objects as this caller sees them: whole, or as lists have them."""
    warnings: Callable[[Stored[R]], Sequence[Warned]] = field(default=lambda _stored: ())
    """What is worth knowing about it, beside what its record alone tells."""


class Objects(Generic[R]):
    """The objects of one kind. Thread-safe.

    Changes raise `Invalid`, `InvalidResource`, `NotFound`, `StaleRevision`, `StoreWriteError`, and what hooks raise.
    """

    def __init__(
        self,
        kind: ObjectKind[R],
        store: Store,
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

    def create(self, body: Any, caller: Caller | None = None) -> Stored[R]:
        """A new one."""
        record = self._made(lambda: self.kind.new(body, time.time(), self._seal))
        if caller is not None:
            self.hooks.permit(caller, record)
        proposal = Proposal(None, record, body)
        with self.hooks.lock(body):
            most = self.kind.most
            if most is not None and len(self.all()) >= most:
                raise Invalid(None, f"there are {most} {self.kind.collection} already")
            stored = self._store_checked(proposal)
        self._event("created", record)
        return stored

    def update(self, key: str, body: Any, if_match: int | None, caller: Caller | None = None) -> Stored[R]:
        """Change any part."""
        return self.change(
            key, lambda before: self.kind.change(before, body, time.time(), self._seal), if_match, body, caller
        )

    def change(
        self,
        key: str,
        change: Callable[[R], R],
        if_match: int | None,
        body: Any = None,
        caller: Caller | None = None,
    ) -> Stored[R]:
        """Change one by `change`, which makes the new record of the present one."""
        with self.hooks.lock(body):
            before = self.matching(key, if_match)
            record = self._made(lambda: change(before.record))
            if caller is not None:
                self.hooks.permit(caller, record)
            if is_same(before.record, record):
                return before
            stored = self._store_checked(Proposal(before, record, body))
        self._event("updated", record)
        return stored

    def delete(self, key: str, if_match: int | None) -> str:
        """Delete one; its id."""
        with self.hooks.lock(None):
            before = self.matching(key, if_match)
            proposal: Proposal[R] = Proposal(before, None)
            with self.hooks.guard(proposal):
                self._delete(before)
        self._event("deleted", before.record)
        return _id(before.record)

    def matching(self, key: str, if_match: int | None) -> Stored[R]:
        """The one with this key, if it is at this revision. Raises `NotFound`, `StaleRevision`."""
        stored = self.get(key)
        if if_match not in (None, stored.revision):
            raise StaleRevision(stored.revision)
        return stored

    def views(self, caller: Caller, stored: Sequence[Stored[R]], whole: bool) -> list[dict[str, Any]]:
        """These objects as this caller sees them: whole, or as lists have them."""
        return self.hooks.views(caller, [self.hooks.complete(each) for each in stored], whole)

    def warnings(self, stored: Stored[R]) -> list[Warned]:
        """What is worth knowing about one."""
        stored = self.hooks.complete(stored)
        of_record = () if self.kind.warnings is None else self.kind.warnings(stored.record)
        return [*of_record, *self.hooks.warnings(stored)]

    # --- inside ---

    def _made(self, make: Callable[[], R]) -> R:
        try:
            return make()
        except SecretBoxError as error:
            raise StoreWriteError(str(error)) from error

    def _store_checked(self, proposal: Proposal[R]) -> Stored[R]:
        record, before = proposal.after, proposal.before
        assert record is not None
        if self.kind.unique_names and self._records.named(_name(record)) not in (None, _id(record)):
            raise Invalid("name", f'the name "{_name(record)}" is in use')
        self.hooks.check(proposal)
        with self.hooks.guard(proposal):
            expected = 0 if before is None else before.revision
            document = self._store.put(self.kind.collection, record.model_dump(mode="json"), expected)
        return Stored(record, document.revision)

    def _delete(self, before: Stored[R]) -> None:
        try:
            self._store.delete(self.kind.collection, _id(before.record), before.revision)
        except (NotStored, RevisionConflict) as error:
            raise NotFound(f"The {self.kind.name}") from error

    def _event(self, action: str, record: R) -> None:
        if self.kind.events:
            self._publish(f"{self.kind.name}.{action}", self.kind.about(record))


def load(kind: Kind[R], document: Document) -> Stored[R]:
    """The object in a document."""
    return Stored(kind.model.model_validate(document.body), document.revision)


def _id(record: Any) -> str:
    return str(record.id)


def _name(record: Any) -> str:
    return str(record.name)
