"""All stored proxies, so that requests parse no documents."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from api.services.record_cache import RecordCache
from api.store import Document, Store
from config.model.proxies import ProxyRecord

COLLECTION = "proxies"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StoredProxy:
    """A record and its revision. Requests share it, so it must not be altered.

    `backend_secret` is that of `auth.backend` where a change has just set it.
    """

    record: ProxyRecord
    revision: int
    _made: dict[Callable[[StoredProxy], Any], Any] = field(default_factory=dict, compare=False, repr=False)
    backend_secret: str | None = field(default=None, compare=False, repr=False)

    def once(self, make: Callable[[StoredProxy], T]) -> T:
        """The result of the function `make`, computed at the first call and shared as the record is."""
        made: T = self._made.get(make) or self._made.setdefault(make, make(self))
        return made


def load(document: Document) -> StoredProxy:
    """The proxy in a document."""
    return StoredProxy(ProxyRecord.model_validate(document.body), document.revision)


class ProxyCache(RecordCache[StoredProxy]):
    """The proxies of a store."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, COLLECTION, load)
