"""Regions: sets of requests that a rule of a policy can describe, as one condition on each dimension."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from api.import_export.convert.host_sets import Addresses, Names
from api.import_export.convert.intervals import Intervals
from config.model.choices import ANY_METHOD

TUNNEL = frozenset({"CONNECT"})
"""In place of methods: what is no plain HTTP."""
PLAIN = frozenset({ANY_METHOD})
"""All methods of plain HTTP."""
PORTS = (1, 65535)
MINUTES = (0, 7 * 24 * 60 - 1)
"""Minutes of a week, from Monday 0:00."""


@dataclass(frozen=True, slots=True)
class Region:
    """Requests that meet all conditions; None is none.

    `methods` is `TUNNEL`, `PLAIN`, or names of methods of plain HTTP. With `paths`, which have patterns with `*`, there
    are methods.
    """

    clients: Addresses | None = None
    hosts: Addresses | Names | None = None
    ports: Intervals | None = None
    methods: frozenset[str] | None = None
    paths: frozenset[str] | None = None
    users: frozenset[str] | None = None
    minutes: Intervals | None = None

    def others(self) -> Region | None:
        """All requests that are not in it, if that is a region and a short one."""
        given = [each.name for each in fields(self) if getattr(self, each.name) is not None]
        if given == ["ports"] and self.ports is not None:
            return Region(ports=self.ports.outside(*PORTS))
        if given == ["minutes"] and self.minutes is not None:
            return Region(minutes=self.minutes.outside(*MINUTES))
        if given == ["methods"] and self.methods in (TUNNEL, PLAIN):
            return Region(methods=PLAIN if self.methods == TUNNEL else TUNNEL)
        return None

    @property
    def empty(self) -> bool:
        """Whether no request is in it."""
        return any(not value for each in fields(self) if (value := getattr(self, each.name)) is not None)


EVERYTHING = Region()
PLAIN_HTTP = Region(methods=PLAIN)


def meet(one: Region, other: Region) -> tuple[Region, bool] | None:
    """The requests in both, None if there are none; and whether it is exactly these, or more."""
    values: dict[str, Any] = {name: _both(getattr(one, name), getattr(other, name)) for name in _PLAIN}
    hosts, exact_hosts = _hosts(one.hosts, other.hosts)
    paths, exact_paths = _paths(one.paths, other.paths)
    found = replace(one, **values, methods=_methods(one.methods, other.methods), hosts=hosts, paths=paths)
    return None if found.empty else (found, exact_hosts and exact_paths)


def is_within(one: Region, other: Region) -> bool:
    """Whether all requests of one region are certainly in the other."""
    for name in _DIMENSIONS:
        wide = getattr(other, name)
        if wide is None:
            continue
        narrow = getattr(one, name)
        if narrow is None or (narrow != wide and not _part(name, narrow, wide)):
            return False
    return True


def joined(one: Region, other: Region) -> Region | None:
    """The requests of both as one region, where the two differ in one condition."""
    different = [name for name in _DIMENSIONS if getattr(one, name) != getattr(other, name)]
    if len(different) > 1:
        return None
    for name in different:
        values = getattr(one, name), getattr(other, name)
        if None in values or type(values[0]) is not type(values[1]) or (name == "methods" and not _are_named(*values)):
            return None
        union = values[0] | values[1] if isinstance(values[0], frozenset) else type(values[0]).union(values)
        return replace(one, **{name: union})
    return one


def _are_named(*methods: frozenset[str]) -> bool:
    return not any(each in (PLAIN, TUNNEL) for each in methods)


def _part(name: str, narrow: Any, wide: Any) -> bool:
    if name == "methods":
        return bool(_methods(narrow, wide) == narrow)
    if name == "paths":
        return bool(narrow <= wide) or _paths(narrow, wide) == (narrow, True)
    return type(narrow) is type(wide) and bool(narrow <= wide)


_PLAIN = ("clients", "ports", "users", "minutes")
_DIMENSIONS = (*_PLAIN, "methods", "hosts", "paths")


def _methods(one: frozenset[str] | None, other: frozenset[str] | None) -> frozenset[str] | None:
    if one is None or other is None:
        return other if one is None else one
    if PLAIN in (one, other) and TUNNEL not in (one, other):
        return other if one == PLAIN else one
    return one & other


def _both(one: Any, other: Any) -> Any:
    if one is None or other is None:
        return other if one is None else one
    return one & other


def _hosts(one: Addresses | Names | None, other: Addresses | Names | None) -> tuple[Addresses | Names | None, bool]:
    """A rule can't ask for a name and for its address."""
    if isinstance(one, Addresses) and isinstance(other, Addresses):
        return one & other, True
    if isinstance(one, Names) and isinstance(other, Names):
        return one & other, True
    if one is None or other is None:
        return other if one is None else one, True
    return (one if isinstance(one, Names) else other), False


def _paths(one: frozenset[str] | None, other: frozenset[str] | None) -> tuple[frozenset[str] | None, bool]:
    if one is None or other is None or one == other:
        return other if one is None else one, True
    if not all(map(_is_prefix, one | other)):
        return one, False
    deeper = {each for each in one if any(each.startswith(up[:-1]) for up in other)}
    return frozenset(deeper | {each for each in other if any(each.startswith(up[:-1]) for up in one)}), True


def _is_prefix(pattern: str) -> bool:
    return pattern.endswith("*") and pattern.count("*") == 1
