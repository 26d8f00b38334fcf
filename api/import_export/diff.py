"""The differences between two entries, or two states of a stored object, field by field, with secrets masked as in the
audit trail."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from api.audit.masking import BOOKKEEPING, HIDING, LONGEST_LIST, STORED_AS, mask
from api.engine.transfer import SecretValue
from api.history.document_changes import DocumentChange, is_renewed, kind_of
from config.model.choices import MASK

KNOWN_BY = {"accounts": "username", "upstreams": "name", "rules": "name"}
"""Lists whose entries are compared one by one, and the field that identifies an entry."""
_INTERNAL = frozenset({"renewal_hash"})
"""What says nothing to people beside the other fields."""
_OMITTED = frozenset({"id", *BOOKKEEPING, *_INTERNAL})
_ELEMENT = re.compile(r"\[[^\]]*+\]?")


@dataclass(frozen=True, slots=True)
class Difference:
    """`field` is a path such as `accounts[alice].limits.connections`; a secret is `***`, a missing value None.

    An entry of a list that was moved has its `place`, from 1.
    """

    field: str
    before: Any
    after: Any


def differences(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> list[Difference]:
    """All differences, in the order of the entry. None stands for a missing entry."""
    return list(_of_maps(before or {}, after or {}, ""))


def _of_maps(before: Mapping[str, Any], after: Mapping[str, Any], path: str) -> Iterator[Difference]:
    for name in dict.fromkeys((*after, *before)):
        yield from _of_values(name, before.get(name), after.get(name), f"{path}{name}")


def _of_values(name: str, before: Any, after: Any, path: str) -> Iterator[Difference]:
    if before == after:
        return
    if name in KNOWN_BY and _are_objects(before) and _are_objects(after):
        yield from _of_lists(before, after, KNOWN_BY[name], path)
    elif isinstance(before, Mapping) and isinstance(after, Mapping):
        yield from _of_maps(before, after, f"{path}.")
    else:
        yield Difference(path, masked(before), masked(after))


def _are_objects(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, Mapping) for each in value)


def _of_lists(before: list[Any], after: list[Any], key: str, path: str) -> Iterator[Difference]:
    old, new = ({each[key]: each for each in entries} for entries in (before, after))
    if len(new) + len(old) > LONGEST_LIST:
        yield Difference(path, _counted(old, new), _counted(new, old))
        return
    for name in dict.fromkeys((*new, *old)):
        yield from _of_values("", old.get(name), new.get(name), f"{path}[{name}]")
    yield from _moves([*old], [*new], path)


def _moves(old: list[Any], new: list[Any], path: str) -> Iterator[Difference]:
    """The places, from 1, of as few entries as have to be moved for the new order."""
    place = {name: index for index, name in enumerate(old)}
    kept = [name for name in new if name in place]
    ends: list[int] = []  # of each length of a rise the lowest end
    lengths = []
    for name in kept:
        length = bisect_left(ends, place[name])
        ends[length : length + 1] = [place[name]]
        lengths.append(length)
    left = len(ends)
    still = set()
    for name, length in zip(reversed(kept), reversed(lengths), strict=True):
        if length == left - 1:
            still.add(name)
            left = length
    for index, name in enumerate(new, 1):
        if name in place and name not in still:
            yield Difference(f"{path}[{name}].place", place[name] + 1, index)


def _counted(these: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, int]:
    return {"entries": len(these), "only_here": len(these.keys() - others.keys())}


def masked(value: Any) -> Any:
    """`value` without secrets. A long list becomes its length."""
    if isinstance(value, SecretValue):
        return MASK
    if isinstance(value, Mapping):
        return {name: masked(item) for name, item in value.items()}
    if isinstance(value, list):
        return {"entries": len(value)} if len(value) > LONGEST_LIST else [masked(item) for item in value]
    return value


# --- of stored objects, with the names of the API -----------------------------------------------------------------


def change_view(change: DocumentChange) -> dict[str, Any]:
    """An object with each field that differs, as `{field, before, after}`."""
    hiding = _hiding(change.collection)
    before, after = map(_compared, (change.before, change.after))
    if before and after and is_renewed(change.before or {}, change.after or {}):
        before["password_hash"] = after["password_hash"]
    found = differences(before, after)
    return {
        "kind": kind_of(change.collection),
        "id": change.id,
        "name": change.name,
        "action": change.action,
        "fields": [
            {
                "field": STORED_AS.sub("", each.field),
                "before": _masked(each.field, each.before, hiding),
                "after": _masked(each.field, each.after, hiding),
            }
            for each in found
        ],
    }


def object_view(revision: int, collection: str, identifier: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
    """An object as it was after a revision, without secrets; None if there was none."""
    hiding = _hiding(collection)
    document = None if body is None else _named({name: mask(name, each, hiding) for name, each in body.items()})
    name = None if body is None else body.get("name") or body.get("username")
    return {
        "revision": revision,
        "kind": kind_of(collection),
        "id": identifier,
        "name": name,
        "document": document,
    }


def _compared(body: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if body is None else {name: value for name, value in body.items() if name not in _OMITTED}


def _hiding(collection: str) -> frozenset[str]:
    """In proxies `headers` are settings, and no secret."""
    return frozenset() if collection == "proxies" else HIDING


def _masked(path: str, value: Any, hiding: frozenset[str]) -> Any:
    names = _ELEMENT.sub("", path).split(".")
    if value is not None and hiding.intersection(names[:-1]):
        return MASK
    return _named(mask(names[-1], value, hiding))


def _named(value: Any) -> Any:
    """Masked documents with the names of the API: `password` for `password_hash`."""
    if isinstance(value, Mapping):
        return {STORED_AS.sub("", name): _named(item) for name, item in value.items() if name not in _INTERNAL}
    return [_named(item) for item in value] if isinstance(value, list) else value
