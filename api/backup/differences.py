"""What a restore would change: names of resources, and of the fields that differ. No values, so no secrets either.

The audit trail, metrics and the outbox of webhooks always differ, since time goes on; they are not reported, unless
there is no whole trail now.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from api.objects.kinds import KINDS
from api.store import Store
from api.store.accounts.columns import TABLES

Bodies = Mapping[str, Mapping[str, Any]]

COLLECTIONS = tuple(name for name in (*KINDS, "api_keys", "settings") if name not in TABLES)
"""Collections that are compared; accounts and plans are elsewhere."""
PASSING = frozenset(("created_at", "updated_at", "last_login", "last_used"))


@dataclass(frozen=True, slots=True)
class Difference:
    """`added` is what only the backup has, `removed` what only is there now."""

    kind: str
    name: str
    change: Literal["added", "changed", "removed"]
    fields: tuple[str, ...] = ()


def bodies_of(store: Store) -> dict[str, Bodies]:
    """What is stored, by collection and id."""
    return {
        collection: {document.id: document.body for document in store.find(collection)} for collection in COLLECTIONS
    }


def differences(now: Mapping[str, Bodies], then: Mapping[str, Bodies]) -> list[Difference]:
    """From what is there now to what is in the backup."""
    return [each for collection in COLLECTIONS for each in _of_collection(collection, now, then)]


def key_differences(now: Mapping[str, bytes], then: Mapping[str, bytes]) -> Iterator[Difference]:
    """The same for key files, known by their names."""
    for name in sorted({*now, *then}):
        if name not in now:
            yield Difference("keys", name, "added")
        elif name not in then:
            yield Difference("keys", name, "removed")
        elif now[name] != then[name]:
            yield Difference("keys", name, "changed")


def trail_difference(head: str | None) -> Iterator[Difference]:
    """The audit trail, if there is no whole one now."""
    if head is None:
        yield Difference("audit", "trail", "added")


def _of_collection(collection: str, now: Mapping[str, Bodies], then: Mapping[str, Bodies]) -> Iterator[Difference]:
    before, after = now.get(collection, {}), then.get(collection, {})
    for identifier in dict.fromkeys((*after, *before)):
        old, new = before.get(identifier), after.get(identifier)
        body = new or old or {}
        name = str(body.get("name") or body.get("username") or identifier)
        if old is None:
            yield Difference(collection, name, "added")
        elif new is None:
            yield Difference(collection, name, "removed")
        elif fields := _fields(old, new):
            yield Difference(collection, name, "changed", fields)


def _fields(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[str, ...]:
    names = dict.fromkeys((*new, *old))
    return tuple(name for name in names if name not in PASSING and old.get(name) != new.get(name))
