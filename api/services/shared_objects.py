"""Changes of pools, lists and policies: objects that any number of proxies name.

They name each other by their names. So an object in use is neither deleted nor renamed, and one that names another is
accepted only while that is there. All changes are made under the lock of the proxies: the supervisor gets each with
the order in which the store has them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

from actors.bus.messages.fleet_objects import FleetObject, ListRef
from actors.bus.messages.supervision import ApplyObjects
from api.errors import Invalid, NotFound, StaleRevision
from api.services.object_kinds import KINDS, LISTS, FileOf, ObjectKind
from api.services.object_messages import object_message, policies_message, with_policies
from api.services.object_specs import list_ref
from api.services.pool_sources import PoolSources
from api.services.record_cache import RecordCache
from api.services.supervisor_link import SupervisorLink
from api.store import Document, NotStored, RevisionConflict, Store, StoreDamaged, StoreWriteError
from api.store.records import is_same
from config.files.secret_box import SecretBox, SecretBoxError
from config.model.object_names import Named
from config.model.upstreams import ProxyUpstream
from config.net.entries import GEO

USERS_NAMED = 10
"""Users of an object that a refusal names."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """A record and its revision. Requests share it, so it must not be altered."""

    record: Any
    revision: int


def _load(kind: ObjectKind, document: Document) -> StoredObject:
    return StoredObject(kind.model.model_validate(document.body), document.revision)


class SharedObjects:
    """Reads and changes of all kinds. Thread-safe.

    Changes raise `Invalid`, `InvalidResource`, `NotFound`, `StaleRevision`, `PeerUnavailable` and `StoreWriteError`.
    """

    def __init__(
        self,
        store: Store,
        seal: SecretBox,
        lock: Callable[[], AbstractContextManager[None]],
        link: SupervisorLink,
        publish: Callable[[str, dict[str, Any]], None],
        file_of: FileOf,
        sources: PoolSources,
    ) -> None:
        """`lock` holds up other changes, `link` sends them to the supervisor."""
        self.sources = sources
        self._store = store
        self._seal = seal
        self.lock = lock
        self._link = link
        self._file_of = file_of
        self._publish = publish
        self._caches = {name: RecordCache(store, name, partial(_load, kind)) for name, kind in KINDS.items()}
        self.other_users: Callable[[str, str], Iterable[str]] = lambda _collection, _name: ()
        """Further users of the object with this collection and name: `proxy office`."""
        self.users_lock: AbstractContextManager[object] = nullcontext()
        """Holds up changes of those that are not made under `lock`."""
        self.named_policies: Callable[[], Iterable[str]] = tuple
        """The names of policies that accounts and plans have."""
        self.checks: Mapping[str, Callable[[Any], None]] = {}
        """By collection, what refuses a record that may not be stored; raises `InvalidResource`."""

    def all(self, kind: ObjectKind) -> Sequence[StoredObject]:
        """All of a kind, oldest first."""
        return self._caches[kind.collection].all()

    def get(self, kind: ObjectKind, key: str) -> StoredObject:
        """The one with this id or name. Raises `NotFound`."""
        cache = self._caches[kind.collection]
        found = cache.get(key) or cache.get(cache.named(key) or "")
        if found is None:
            raise NotFound(f"The {kind.name}")
        return found

    def complete(self, stored: StoredObject) -> StoredObject:
        """As it is used: a pool that has a source with what was fetched from it."""
        return StoredObject(*self.sources.complete(stored.record, stored.revision))

    def list_ref(self, name: str) -> ListRef:
        """What forwarding actors get of the list. Raises `NotFound`."""
        found = self.get(LISTS, name)
        return list_ref(found.record, found.revision, self._file_of(found.record))

    def create(self, kind: ObjectKind, body: Any) -> StoredObject:
        """A new one."""
        record = self._made(lambda: kind.new(body, time.time(), self._seal))
        with self.lock():
            if len(self.all(kind)) >= kind.most:
                raise Invalid(None, f"there are {kind.most} {kind.collection} already")
            self._refuse(kind, record)
            stored = self._stored(kind, record, 0)
            self._send(kind, stored)
        self._event(kind, "created", record)
        return stored

    def update(self, kind: ObjectKind, key: str, body: Any, if_match: int | None) -> StoredObject:
        """Change any part."""
        with self.lock():
            before = self._matching(kind, key, if_match)
            record = self._made(lambda: kind.change(before.record, body, time.time(), self._seal))
            if is_same(before.record, record):
                return before
            self._refuse(kind, record)
            with self.users_lock:
                if record.name != before.record.name:
                    self._refuse_in_use(kind, before.record, "name", "give it no other name")
                if (kind_of(record) == GEO) != (kind_of(before.record) == GEO):
                    self._refuse_in_use(kind, before.record, "kind", "they name it as what it is")
                stored = self._stored(kind, record, before.revision)
            self._send(kind, stored)
        self._event(kind, "updated", record)
        return stored

    def delete(self, kind: ObjectKind, key: str, if_match: int | None) -> str:
        """Delete one that nothing names; its id."""
        with self.lock():
            before = self._matching(kind, key, if_match)
            with self.users_lock:
                self._refuse_in_use(kind, before.record, None, "change them first")
                self._delete(kind, before)
            self._link.apply(ApplyObjects((), (before.record.id,)))
        self._event(kind, "deleted", before.record)
        return str(before.record.id)

    def messages(self) -> tuple[FleetObject, ...]:
        """All objects, for the supervisor. Raises `StoreDamaged` when a secret in one can't be opened."""
        try:
            objects = [self._message(kind, each) for kind in KINDS.values() for each in self.all(kind)]
        except SecretBoxError as error:
            raise StoreDamaged(str(error)) from error
        return with_policies(objects, self.named_policies())

    def send_again(self, kind: ObjectKind, object_id: str) -> None:
        """Send an object that has not changed itself: a list whose content has. Raises `PeerUnavailable`."""
        with self.lock():
            stored = self._caches[kind.collection].get(object_id)
            if stored is not None:
                self._send(kind, stored)

    def send_policies(self, names: Iterable[str]) -> None:
        """Have proxies know the policies that accounts and plans name, these among them, before one is needed.

        The caller holds `lock`. Raises `PeerUnavailable`.
        """
        self._link.request(ApplyObjects((policies_message([*self.named_policies(), *names]),)))

    def users(self, kind: ObjectKind, name: str) -> list[str]:
        """What names the object, as `policy builds` and `proxy office`."""
        own = (
            f"{other.name} {each.record.name}"
            for other in KINDS.values()
            for each in self.all(other)
            if any((found.collection, found.name) == (kind.collection, name) for found in other.names(each.record))
        )
        return [*own, *self.other_users(kind.collection, name)]

    def refuse_unknown(self, named: Iterable[Named]) -> None:
        """Raise `Invalid` for the first name of no object, or of a list of another kind."""
        for each in named:
            cache = self._caches[each.collection]
            found = cache.get(cache.named(each.name) or "")
            if found is None:
                raise Invalid(each.field, f"there is no {KINDS[each.collection].name} {each.name!r}")
            if misfit := each.misfit(kind_of(found.record)):
                raise Invalid(each.field, misfit)

    def upstreams_of_pool(self, name: str) -> Sequence[ProxyUpstream]:
        """Those that callers have written into the pool of this name, which may lead to own proxies; those of a source
        never do (`UpstreamsSpec.fetched`)."""
        found = self._caches["pools"].get(self._caches["pools"].named(name) or "")
        return () if found is None else found.record.upstreams

    # --- inside ---

    def _made(self, make: Callable[[], Any]) -> Any:
        try:
            return make()
        except SecretBoxError as error:
            raise StoreWriteError(str(error)) from error

    def _matching(self, kind: ObjectKind, key: str, if_match: int | None) -> StoredObject:
        stored = self.get(kind, key)
        if if_match not in (None, stored.revision):
            raise StaleRevision(stored.revision)
        return stored

    def _refuse(self, kind: ObjectKind, record: Any) -> None:
        if self._caches[kind.collection].named(record.name) not in (None, record.id):
            raise Invalid("name", f'the name "{record.name}" is in use')
        self.refuse_unknown(kind.names(record))
        if kind.collection in self.checks:
            self.checks[kind.collection](record)

    def _refuse_in_use(self, kind: ObjectKind, record: Any, field: str | None, hint: str) -> None:
        users = self.users(kind, record.name)
        if users:
            raise Invalid(field, in_use(kind, record.name, users, hint))

    def _stored(self, kind: ObjectKind, record: Any, expect: int) -> StoredObject:
        document = self._store.put(kind.collection, record.model_dump(mode="json"), expect)
        return StoredObject(record, document.revision)

    def _delete(self, kind: ObjectKind, before: StoredObject) -> None:
        try:
            self._store.delete(kind.collection, before.record.id, before.revision)
        except (NotStored, RevisionConflict) as error:
            raise NotFound(f"The {kind.name}") from error

    def _send(self, kind: ObjectKind, stored: StoredObject) -> None:
        self._link.apply(ApplyObjects((self._message(kind, stored),)))

    def _message(self, kind: ObjectKind, stored: StoredObject) -> FleetObject:
        used = self.complete(stored)
        return object_message(kind, used.record, used.revision, self._seal, self._file_of)

    def _event(self, kind: ObjectKind, action: str, record: Any) -> None:
        self._publish(f"{kind.name}.{action}", about(kind, record))


def kind_of(record: Any) -> str:
    """The kind of a list, empty of others."""
    return getattr(record, "kind", "")


def about(kind: ObjectKind, record: Any) -> dict[str, Any]:
    """The data of events about an object."""
    return {f"{kind.name}_id": record.id, "name": record.name}


def in_use(kind: ObjectKind, name: str, users: Sequence[str], hint: str) -> str:
    """That an object is in use: the number of its users, and the first of them."""
    more = f" and {len(users) - USERS_NAMED} more" if len(users) > USERS_NAMED else ""
    return f"the {kind.name} {name!r} is in use by {len(users)} ({', '.join(users[:USERS_NAMED])}{more}): {hint}"
