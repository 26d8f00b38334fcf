"""All stored proxies, so that requests parse no documents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import BaseModel

from api.engine.record_cache import RecordCache
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
    record = ProxyRecord.model_validate(_with_shared_parts(document.body))
    if record.model_fields_set == _FIELDS:
        object.__setattr__(record, "__pydantic_fields_set__", _FIELDS)  # 2 KB of each; copies have their own
    return StoredProxy(record, document.revision)


def _with_shared_parts(body: Mapping[str, Any]) -> dict[str, Any]:
    """A body in which parts that many proxies have alike, as most have the defaults, are one object each."""
    return {name: _shared_part(name, value) if name in _PARTS else value for name, value in body.items()}


def _shared_part(name: str, value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    known, key = _shared[name], repr(value)
    part = known.get(key)
    if part is None:
        part = _PARTS[name].model_validate(value)
        if len(known) < SHARED_PARTS:
            known[key] = part
    return part


_FIELDS = set(ProxyRecord.model_fields)
_PARTS: dict[str, type[BaseModel]] = {
    name: each.annotation
    for name, each in ProxyRecord.model_fields.items()
    if isinstance(each.annotation, type) and issubclass(each.annotation, BaseModel)
}
SHARED_PARTS = 100
"""Different ones of each name that are remembered, for as long as the process runs."""
_shared: dict[str, dict[str, BaseModel]] = {name: {} for name in _PARTS}


class ProxyCache(RecordCache[StoredProxy]):
    """The proxies of a store."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, COLLECTION, load)
