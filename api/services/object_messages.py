"""Lists, pools and policies as the supervisor gets them: packed, with the keys of what they name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from actors.bus.codec import pack
from actors.bus.messages.fleet_objects import PLANS, FleetObject
from api.services.object_kinds import KINDS, POLICIES, FileOf, ObjectKind
from api.services.pool_sources import PoolSources
from api.store import Store
from config.files.secret_box import SecretBox
from config.model.plans import Plan


def object_message(kind: ObjectKind, record: Any, revision: int, seal: SecretBox, file_of: FileOf) -> FleetObject:
    """Raises `SecretBoxError`."""
    names = tuple(dict.fromkeys(each.key for each in kind.names(record)))
    packed = pack(kind.spec(record, revision, seal, file_of))
    return FleetObject(f"{kind.name}:{record.name}", record.id, revision, names, packed)


def plans_message(plans: Iterable[Plan]) -> FleetObject:
    """The policies of these plans. It has no revision: the last one that is sent holds."""
    names = sorted({plan.policy for plan in plans if plan.policy is not None})
    return FleetObject(PLANS, PLANS, 0, tuple(f"{POLICIES.name}:{each}" for each in names), b"")


def with_plans(objects: Iterable[FleetObject], plans: Iterable[Plan]) -> tuple[FleetObject, ...]:
    """All that the supervisor gets: the objects, and what plans name, if they name any."""
    named = plans_message(plans)
    return (*objects, named) if named.names else tuple(objects)


def read_objects(store: Store, seal: SecretBox, file_of: FileOf) -> tuple[FleetObject, ...]:
    """All of them. Raises `SecretBoxError`."""
    sources = PoolSources(store, seal)
    return tuple(
        object_message(kind, *sources.complete(kind.model.model_validate(each.body), each.revision), seal, file_of)
        for name, kind in KINDS.items()
        for each in store.find(name)
    )
