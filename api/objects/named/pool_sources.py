"""The upstreams of pools that have a source: what was fetched last, in a collection of the store.

They are no configuration: no revision and no entry of the audit trail has them, and a backup does. A pool is read with
them by `SharedObjects.complete`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel

from api.engine.record_cache import RecordCache
from api.store import Document, Store, repeated
from config.files.secret_box import SecretBox
from config.model.proxies import ProxyRecord
from config.model.shared_objects.pools import Pool, PoolUpstream, PoolUpstreamInput
from config.model.shared_objects.upstreams import is_listener, replace_upstreams

COLLECTION = "fetched_upstreams"
R = TypeVar("R", bound=BaseModel)


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
        self._cache = RecordCache(store, COLLECTION, _Fetched)

    def complete(self, record: R, revision: int) -> tuple[R, int]:
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
        self._store.put(COLLECTION, fetched.model_dump(mode="json"), 0 if known is None else known.revision)
        return len(read) - len(upstreams)

    def keep_only(self, pool_ids: Collection[str]) -> None:
        """Delete what was fetched for pools that are gone, or have no source any more. Raises `StoreError`."""
        for each in self._cache.all():
            if each.record.id not in pool_ids:
                self._store.delete(COLLECTION, each.record.id, each.revision)
