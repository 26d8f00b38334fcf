"""Lists, pools and policies as the supervisor gets them: packed, with the keys of what they name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from actors.bus.codec import pack
from actors.bus.messages.specs import PLANS, FleetObject
from api.objects.named import FileOf, NamedKind
from api.objects.named_kinds import NAMED
from api.objects.policies import POLICIES
from api.services.pool_sources import PoolSources
from api.store import Store
from config.files.secret_box import SecretBox


def object_message(kind: NamedKind[Any], record: Any, revision: int, seal: SecretBox, file_of: FileOf) -> FleetObject:
    """Raises `SecretBoxError`."""
    names = tuple(dict.fromkeys(each.key for each in kind.refers(record)))
    packed = pack(kind.spec(record, revision, seal, file_of))
    return FleetObject(f"{kind.name}:{record.name}", record.id, revision, names, packed)


def policies_message(names: Iterable[str]) -> FleetObject:
    """The policies that accounts and their plans name. It has no revision: the last one that is sent holds."""
    return FleetObject(PLANS, PLANS, 0, tuple(f"{POLICIES.name}:{each}" for each in sorted(set(names))), b"")


def with_policies(objects: Iterable[FleetObject], names: Iterable[str]) -> tuple[FleetObject, ...]:
    """All that the supervisor gets: the objects, and the policies that accounts and plans name, if they name any."""
    named = policies_message(names)
    return (*objects, named) if named.names else tuple(objects)


def read_objects(store: Store, seal: SecretBox, file_of: FileOf) -> tuple[FleetObject, ...]:
    """All of them. Raises `SecretBoxError`."""
    sources = PoolSources(store, seal)
    return tuple(
        object_message(kind, *sources.complete(kind.model.model_validate(each.body), each.revision), seal, file_of)
        for name, kind in NAMED.items()
        for each in store.find(name)
    )
