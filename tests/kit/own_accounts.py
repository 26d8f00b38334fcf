"""The accounts of a data directory that nothing else has open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from api.engine.commit import Engine
from api.store import Document, FleetStore, Write
from api.store.accounts import AccountStore
from config.files.paths import DataDir
from tests.kit.ledgers import opened_store


class OwnAccounts(AccountStore):
    """Opens and closes the file by itself."""

    def __init__(self, data: DataDir) -> None:
        self._fleet: FleetStore = opened_store(data)
        self._fleet.accounts.close()
        super().__init__(self._fleet.file, data)
        self._fleet.accounts = self

    def commit(self, writes: Sequence[Write]) -> int:
        """See `Store.commit`."""
        return self._fleet.commit(writes)

    def put(self, collection: str, document: Mapping[str, Any], expect: int | None = None) -> Document:
        """See `Store.put`."""
        return self._fleet.put(collection, document, expect)

    def delete(self, collection: str, identifier: str, expect: int | None = None) -> int:
        """See `Store.delete`."""
        return self._fleet.delete(collection, identifier, expect)

    def close(self) -> None:
        super().close()
        if isinstance(self._fleet, Engine):
            self._fleet.trail.close()
        self._file.close()
