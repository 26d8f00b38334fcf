"""The desired state, read once by the supervisor at its start, before the API's process."""

from __future__ import annotations

from actors.bus.messages.specs import FleetObject, ProxySpec
from api.services.list_states import ListStates
from api.services.object_messages import read_objects, with_policies
from api.services.proxy_specs import read_specs
from api.store import FleetStore, Store, StoreDamaged
from config.files.paths import DataDir
from config.files.secret_box import SecretBoxError, secret_box_of


def read_desired_proxies(store: Store, data: DataDir) -> tuple[ProxySpec, ...]:
    """All proxies, active or not. The caller holds the lock of the data directory. Raises `StoreError`.

    The key file of sealed secrets is made here at the first start; without it no secret that is there could be read.
    """
    try:
        seal = secret_box_of(data)
        specs = read_specs(store, seal)
        seal.ensure()
        return specs
    except SecretBoxError as error:
        raise StoreDamaged(str(error)) from error


def read_desired_objects(store: FleetStore, data: DataDir) -> tuple[FleetObject, ...]:
    """All lists, pools and policies, and what accounts and plans name.

    The caller holds the lock of the data directory. Raises `StoreError`.
    """
    try:
        objects = read_objects(store, secret_box_of(data), ListStates(data.lists).current_file)
        return with_policies(objects, store.accounts.named_policies())
    except SecretBoxError as error:
        raise StoreDamaged(str(error)) from error
