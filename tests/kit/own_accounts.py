"""The accounts of a data directory that nothing else has open."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from api.store import Document, Write
from api.store.accounts import AccountStore
from api.store.fleet_file import FleetFile
from api.store.fleet_store import require_store
from config.files.paths import DataDir


class OwnAccounts(AccountStore):
    """Opens and closes the file by itself."""

    def __init__(self, data: DataDir) -> None:
        require_store(data)
        super().__init__(FleetFile(data.fleet), data)

    def put(self, collection: str, document: Mapping[str, Any], expect: int | None = None) -> Document:
        """See `Store.put`."""
        revision = self.commit([Write(collection, document["id"], document, expect)])
        return Document(document["id"], revision, dict(document))

    def delete(self, collection: str, identifier: str, expect: int | None = None) -> int:
        """See `Store.delete`."""
        return self.commit([Write(collection, identifier, None, expect)])

    def close(self) -> None:
        super().close()
        self._file.close()
