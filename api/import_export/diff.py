"""The differences between two entries, field by field, with secrets masked."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from api.audit.masking import LONGEST_LIST
from api.engine.transfer import SecretValue
from config.model.choices import MASK

KNOWN_BY = {"accounts": "username", "upstreams": "name", "rules": "name"}
"""Lists whose entries are compared one by one, and the field that identifies an entry."""


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
