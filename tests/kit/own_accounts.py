"""The accounts of a data directory that nothing else has open."""

from __future__ import annotations

from api.store.accounts import AccountStore
from api.store.fleet import require_store
from api.store.fleet_file import FleetFile
from config.files.paths import DataDir


class OwnAccounts(AccountStore):
    """Opens and closes the file by itself."""

    def __init__(self, data: DataDir) -> None:
        require_store(data)
        super().__init__(FleetFile(data.fleet), data)

    def close(self) -> None:
        super().close()
        self._file.close()
