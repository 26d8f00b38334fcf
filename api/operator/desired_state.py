"""The desired state and the settings of the API, read once by the supervisor at its start, before the API's process."""

from __future__ import annotations

from actors.bus.messages.specs import ProxySpec
from api.services.proxy_specs import read_specs
from api.services.settings import read_stored
from api.store import StoreDamaged, open_store
from config.files.paths import DataDir
from config.files.secret_box import SecretBoxError, secret_box_of
from config.settings.runtime import Stored


def read_desired_proxies(data: DataDir) -> tuple[ProxySpec, ...]:
    """All proxies, active or not. The caller holds the lock of the data directory. Raises `StoreError`.

    The key file of sealed secrets is made here at the first start; without it no secret that is there could be read.
    """
    store = open_store(data)
    try:
        seal = secret_box_of(data)
        specs = read_specs(store, seal)
        seal.ensure()
        return specs
    except SecretBoxError as error:
        raise StoreDamaged(str(error)) from error
    finally:
        store.close()


def read_stored_settings(data: DataDir) -> Stored:
    """The settings changed through the API. The caller holds the lock of the data directory. Raises `StoreError`."""
    store = open_store(data)
    try:
        return read_stored(store)
    finally:
        store.close()
