"""The settings as actors get them: plain values by group, some groups for each kind of actor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from operator import getitem
from typing import Any


class ActorSettings:
    """The effective values; every start of a process reads them, and a change sends what has changed."""

    def __init__(self) -> None:
        self._groups: dict[str, Any] = {}

    def put(self, groups: Mapping[str, Any]) -> None:
        """These groups have these values from now on."""
        self._groups.update(groups)

    def of(self, names: Iterable[str]) -> dict[str, Any]:
        """The groups with these names; a part of a group has its name behind a dot."""
        return {name: reduce(getitem, name.split("."), self._groups) for name in names}
