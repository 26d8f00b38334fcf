"""Forwarding actors with live connections, which are played."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from actors.bus.messages.forwarding import (
    CloseConnections,
    ConnectionGroups,
    ConnectionPage,
    ConnectionReport,
    ConnectionsEnded,
    GroupConnections,
    QueryConnections,
)
from actors.forwarding.connections.table import PAGE_MAX

STARTED = 1_700_000_000.0
ONE = ConnectionReport("5f", "192.0.2.1", "", "a.example:443", "tunnel", STARTED, 1.0, 10, 20, 1.0, 2.0)


def connection(number: int, **fields: Any) -> ConnectionReport:
    return replace(ONE, id=f"{number:x}", started_at=STARTED + number, **fields)


class Process:
    """The forwarding actor of one proxy: sorts and pages as the real one, and records what it is asked."""

    def __init__(self, connections: Sequence[ConnectionReport]) -> None:
        self.connections = list(connections)
        self.asked: list[Any] = []

    def __call__(self, message: Any) -> Any:
        self.asked.append(message)
        if isinstance(message, QueryConnections):
            found = self._sorted(message.sort)[message.offset : message.offset + min(message.limit, PAGE_MAX)]
            return ConnectionPage(tuple(found), len(self.connections))
        if isinstance(message, GroupConnections):
            groups = self._groups(message.by)
            named = {each: groups[each] for each in message.values or groups if each in groups}
            ordered = sorted(named.items(), key=lambda each: (-each[1][0], -each[1][1] - each[1][2], each[0]))
            page = ordered[message.offset : message.offset + min(message.limit, PAGE_MAX)]
            return ConnectionGroups(dict(page), len(ordered))
        assert isinstance(message, CloseConnections)
        return ConnectionsEnded(len(self.connections))

    def _sorted(self, sort: str) -> list[ConnectionReport]:
        field = sort.removeprefix("-")
        age = [(-each.started_at if field == "age" else getattr(each, field)) for each in self.connections]
        pairs = sorted(zip(age, self.connections, strict=True), key=lambda pair: (pair[0], pair[1].started_at))
        ordered = [each for _value, each in pairs]
        return ordered[::-1] if sort.startswith("-") else ordered

    def _groups(self, by: str | None) -> dict[str, tuple[int, int, int]]:
        found: dict[str, tuple[int, int, int]] = {}
        for each in self.connections:
            value = getattr(each, by) if by else ""
            count, bytes_in, bytes_out = found.get(value, (0, 0, 0))
            found[value] = (count + 1, bytes_in + each.bytes_in, bytes_out + each.bytes_out)
        return found
