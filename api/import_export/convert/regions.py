"""Regions: sets of requests that a rule of a policy can describe, as one condition on each dimension."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from api.import_export.convert.host_sets import Addresses, Names
from api.import_export.convert.intervals import Intervals

TUNNEL = "CONNECT"
_METHODS = (
    "ACL BASELINE-CONTROL BIND CHECKIN CHECKOUT COPY DELETE GET HEAD LABEL LINK LOCK MERGE MKACTIVITY MKCALENDAR MKCOL "
    "MKREDIRECTREF MKWORKSPACE MOVE OPTIONS ORDERPATCH PATCH POST PROPFIND PROPPATCH PURGE PUT QUERY REBIND REPORT "
    "SEARCH TRACE UNBIND UNCHECKOUT UNLINK UNLOCK UPDATE UPDATEREDIRECTREF VERSION-CONTROL"
)
PLAIN_METHODS = frozenset(_METHODS.split())
"""The methods of plain HTTP: those that IANA has registered, and squid's PURGE."""
METHODS = PLAIN_METHODS | {TUNNEL}
PORTS = (1, 65535)
MINUTES = (0, 7 * 24 * 60 - 1)
"""Minutes of a week, from Monday 0:00."""


@dataclass(frozen=True, slots=True)
class Region:
    """Requests that meet all conditions; None is none.

    `paths` has patterns with `*` and holds for plain HTTP, as `methods` without `TUNNEL` do.
    """

    clients: Addresses | None = None
    hosts: Addresses | Names | None = None
    ports: Intervals | None = None
    methods: frozenset[str] | None = None
    paths: frozenset[str] | None = None
    users: frozenset[str] | None = None
    minutes: Intervals | None = None

    @property
    def by_method(self) -> bool:
        """Whether it tells plain HTTP from tunnels."""
        return self.methods is not None or self.paths is not None

    def others(self) -> Region | None:
        """All requests that are not in it, if that is a region and a short one."""
        given = [each.name for each in fields(self) if getattr(self, each.name) is not None]
        if given == ["ports"] and self.ports is not None:
            return Region(ports=self.ports.outside(*PORTS))
        if given == ["minutes"] and self.minutes is not None:
            return Region(minutes=self.minutes.outside(*MINUTES))
        if given == ["methods"] and self.methods is not None:
            return Region(methods=METHODS - self.methods)
        return None

    @property
    def empty(self) -> bool:
        """Whether no request is in it."""
        return any(not value for each in fields(self) if (value := getattr(self, each.name)) is not None)


EVERYTHING = Region()


def meet(one: Region, other: Region) -> tuple[Region, bool] | None:
    """The requests in both, None if there are none; and whether it is exactly these, or more."""
    values: dict[str, Any] = {name: _both(getattr(one, name), getattr(other, name)) for name in _PLAIN}
    hosts, exact_hosts = _hosts(one.hosts, other.hosts)
    paths, exact_paths = _paths(one.paths, other.paths)
    if paths is not None and values["methods"] is not None:
        values["methods"] -= {TUNNEL}
    found = replace(one, **values, hosts=hosts, paths=paths)
    return None if found.empty else (found, exact_hosts and exact_paths)


_PLAIN = ("clients", "ports", "methods", "users", "minutes")


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
