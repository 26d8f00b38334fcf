"""The wish, read once by the supervisor at its boot, before there is an API process."""

from __future__ import annotations

from actors.bus.messages import ProxySpec
from api.proxies import read_specs
from api.store import open_store
from config.paths import DataDir


def read_wish(data: DataDir) -> tuple[ProxySpec, ...]:
    """All proxies, active or not. The caller holds the lock of the data directory. Raises `StoreError`."""
    store = open_store(data)
    try:
        return read_specs(store)
    finally:
        store.close()
