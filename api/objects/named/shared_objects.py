"""Lists, pools and policies: objects that any number of proxies name.

They name each other by their names. So an object in use is neither deleted nor renamed, and one that names another is
accepted only while that is there. All changes are made under the lock of the proxies: the supervisor gets each with
the order in which the store has them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from pydantic import BaseModel

from actors.bus.codec import pack
from actors.bus.messages.specs import PLANS, FleetObject, ListRef
from api.engine.kind import Kind
from api.engine.objects import load
from api.engine.record_cache import RecordCache
from api.engine.records import Stored
from api.errors import Invalid, NotFound
from api.objects.kinds import NAMED
from api.objects.named.list_kind import LISTS, list_ref
from api.objects.named.named_kind import FileOf, NamedKind
from api.objects.named.policy_kind import POLICIES
from api.store import Document, RevisionConflict, Store, StoreDamaged, repeated
from config.files.secret_box import SecretBox, sealing_as
from config.model.object_fields import Named
from config.model.proxies import ProxyRecord
from config.model.shared_objects.pools import Pool, PoolUpstream, PoolUpstreamInput
from config.model.shared_objects.upstreams import ProxyUpstream, is_listener, replace_upstreams


class SharedObjects:
    """Reads of all these kinds. Thread-safe. `named_policies` gives the names of policies that accounts and plans have.

    `records` has those that are stored, by collection.
    """

    def __init__(
        self,
        store: Store,
        seal: SecretBox,
        file_of: FileOf,
        sources: PoolSources,
        named_policies: Callable[[], Iterable[str]],
    ) -> None:
        self._seal = seal
        self._file_of = file_of
        self._sources = sources
        self._named_policies = named_policies
        self.records: Mapping[str, RecordCache[Stored[Any]]] = {
            name: RecordCache(store, name, partial(load, kind)) for name, kind in NAMED.items()
        }

    def all(self, kind: Kind[Any]) -> Sequence[Stored[Any]]:
        """All of a kind, oldest first."""
        return self.records[kind.collection].all()

    def get(self, kind: Kind[Any], key: str) -> Stored[Any]:
        """The one with this id or name. Raises `NotFound`."""
        records = self.records[kind.collection]
        found = records.get(key) or records.get(records.named(key) or "")
        if found is None:
            raise NotFound(f"The {kind.name}")
        return found

    def complete(self, stored: Stored[Any]) -> Stored[Any]:
        """As it is used: a pool that has a source with what was fetched from it."""
        return Stored(*self._sources.complete(stored.record, stored.revision))

    def list_ref(self, name: str) -> ListRef:
        """What forwarding actors get of the list. Raises `NotFound`."""
        found = self.get(LISTS, name)
        return list_ref(found.record, found.revision, self._file_of(found.record))

    def message(self, kind: NamedKind[Any], stored: Stored[Any]) -> FleetObject:
        """An object for the supervisor. Raises `SecretBoxError`."""
        used = self.complete(stored)
        names = tuple(dict.fromkeys(each.key for each in kind.refers(used.record)))
        packed = pack(kind.spec(used.record, used.revision, self._seal, self._file_of))
        return FleetObject(f"{kind.name}:{used.record.name}", used.record.id, used.revision, names, packed)

    def messages(self, policies: Iterable[str] = ()) -> tuple[FleetObject, ...]:
        """All objects, for the supervisor, which accounts and plans may give these policies.

        Raises `StoreDamaged` when a secret in one can't be opened.
        """
        with sealing_as(StoreDamaged):
            objects = [self.message(kind, each) for kind in NAMED.values() for each in self.all(kind)]
        named = self.policies_message(policies)
        return (*objects, named) if named.names else tuple(objects)

    def policies_message(self, policies: Iterable[str]) -> FleetObject:
        """The policies that accounts and plans name, and these. It has no revision: the last one that is sent holds."""
        names = sorted({*self._named_policies(), *policies})
        return FleetObject(PLANS, PLANS, 0, tuple(f"{POLICIES.name}:{each}" for each in names), b"")

    def refuse_unknown(self, named: Iterable[Named]) -> None:
        """Raise `Invalid` for the first name of no object, or of a list of another kind."""
        for each in named:
            records = self.records[each.collection]
            found = records.get(records.named(each.name) or "")
            if found is None:
                raise Invalid(each.field, f"there is no {NAMED[each.collection].name} {each.name!r}")
            if misfit := each.misfit(kind_of(found.record)):
                raise Invalid(each.field, misfit)

    def upstreams_of_pool(self, name: str) -> Sequence[ProxyUpstream]:
        """Those that callers have written into the pool of this name, which may lead to own proxies; those of a source
        never do (`UpstreamsSpec.fetched`)."""
        pools = self.records["pools"]
        found = pools.get(pools.named(name) or "")
        return () if found is None else found.record.upstreams


def kind_of(record: Any) -> str:
    """The kind of a list, empty of others."""
    return getattr(record, "kind", "")


# --- the upstreams of pools that have a source: what was fetched last -----------------------------------------------
# They are no configuration: no revision and no entry of the audit trail has them, and a backup does.

FETCHED_UPSTREAMS = "fetched_upstreams"
"""The collection of the store that they are in."""
M = TypeVar("M", bound=BaseModel)


class FetchedUpstreams(BaseModel):
    """A document of the collection, under the id of its pool. Times are Unix seconds."""

    id: str
    created_at: float
    upstreams: list[PoolUpstream]

    @property
    def name(self) -> str:
        """See `record_cache.Record`."""
        return self.id


class _Fetched:
    def __init__(self, document: Document) -> None:
        self.record = FetchedUpstreams.model_validate(document.body)
        self.revision = document.revision


class PoolSources:
    """Thread-safe."""

    def __init__(self, store: Store, seal: SecretBox) -> None:
        self._store = store
        self._seal = seal
        self._cache = RecordCache(store, FETCHED_UPSTREAMS, _Fetched)

    def complete(self, record: M, revision: int) -> tuple[M, int]:
        """A pool with the upstreams that were fetched for it, and the revision of both; any other object as it is."""
        if not isinstance(record, Pool) or record.source is None:
            return record, revision
        found = self._cache.get(record.id)
        if found is None:
            return record, revision
        return record.model_copy(update={"upstreams": found.record.upstreams}), max(revision, found.revision)

    def has(self, pool: Pool) -> bool:
        """Whether something was fetched for it."""
        return self._cache.get(pool.id) is not None

    def keep(self, pool: Pool, given: Sequence[Mapping[str, Any]], proxies: Sequence[ProxyRecord], now: float) -> int:
        """Store what was fetched; how many are left out. Those are own proxies: a provider must not lead clients there.

        Raises `SecretBoxError`, `StoreWriteError`.
        """
        return repeated(lambda: self._keep(pool, given, proxies, now))

    def _keep(self, pool: Pool, given: Sequence[Mapping[str, Any]], proxies: Sequence[ProxyRecord], now: float) -> int:
        known = self._cache.get(pool.id)
        before = [] if known is None else known.record.upstreams
        stated = ({name: value for name, value in each.items() if value is not None} for each in given)
        read = [PoolUpstreamInput.model_validate(each) for each in stated]
        upstreams = [
            each
            for each in replace_upstreams(before, read, self._seal, PoolUpstream)
            if not any(is_listener(each, proxy.host, proxy.ports) for proxy in proxies)
        ]
        fetched = FetchedUpstreams(id=pool.id, created_at=now, upstreams=upstreams)
        self._store.put(FETCHED_UPSTREAMS, fetched.model_dump(mode="json"), 0 if known is None else known.revision)
        return len(read) - len(upstreams)

    def keep_only(self, pool_ids: Collection[str]) -> None:
        """Delete what was fetched for pools that are gone, or have no source any more. Raises `StoreError`."""
        for each in self._cache.all():
            if each.record.id not in pool_ids:
                with suppress(RevisionConflict):  # another node did so
                    self._store.delete(FETCHED_UPSTREAMS, each.record.id, each.revision)
