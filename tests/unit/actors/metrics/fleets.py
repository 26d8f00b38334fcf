"""Machines of a fleet, each with its collector and processes, as tests make them: by a clock set by hand."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from actors.cluster.database import Database, DatabaseSession
from actors.cluster.errors import DatabaseUnavailable
from actors.metrics.usage.reporter import UsageReporter
from api.cluster.fleet_usage import Unreported, unreported
from tests.unit.actors.forwarding.usage_world import World


class CutDatabase(Database):
    """The database, behind a cable that a test cuts."""

    is_cut = False
    is_known_away = False
    failures = 0
    """So many of the next calls fail."""

    def __init__(self, dsn: str) -> None:
        super().__init__(dsn)
        self.responds = threading.Event()
        self.responds.set()

    @property
    def is_available(self) -> bool:
        return super().is_available and not self.is_known_away

    @contextmanager
    def session(self, even_if_unavailable: bool = False) -> Iterator[DatabaseSession]:
        self.responds.wait(5)
        self.failures -= 1
        if self.is_cut or self.failures >= 0:
            raise DatabaseUnavailable("no response in time")
        with super().session(even_if_unavailable) as session:
            yield session


class Node(World):
    """A machine of the fleet with its collector."""

    def __init__(self, folder: Path, name: str, dsn: str, policy: str = "share") -> None:
        folder.mkdir(parents=True)
        super().__init__(folder)
        self.folder, self.name, self.dsn, self._policy = folder, name, dsn, policy

    def follow(self, is_edge: bool = False) -> None:
        self.database = CutDatabase(self.dsn)
        self.collector.service.set_quota_offline(self._policy)
        self.collector.service.follow(self.database, self.name, is_edge)
        self.turn()

    @property
    def reporter(self) -> UsageReporter:
        found = self.collector.service._reporter
        assert found is not None
        return found

    def turn(self) -> None:
        super().turn()
        self.await_database()
        super().turn()

    def await_database(self) -> None:
        """Until it has responded to what is on its way."""
        deadline = time.monotonic() + 5
        while self._is_waiting and time.monotonic() < deadline:
            self.loop.turn(0.01)

    @property
    def _is_waiting(self) -> bool:
        service = self.collector.service
        reporter, limits = service._reporter, service._limits
        if service._loading is not None:
            return True
        return (reporter is not None and reporter._busy) or (limits is not None and limits._is_busy)

    def restart(self) -> None:
        self.collector.service.leave()
        self.collector.restart()
        self.follow()

    def unreported(self) -> Unreported:
        return unreported(self.folder / "metrics" / "usage.sqlite")


class Fleet:
    def __init__(self, dsn: str, folder: Path, stack: ExitStack) -> None:
        self.dsn, self._folder, self._stack = dsn, folder, stack
        self.database = stack.enter_context(closing(Database(dsn)))
        self.nodes: list[Node] = []

    def node(self, policy: str = "share", follows: bool = True) -> Node:
        name = f"nod_{len(self.nodes)}"
        node = Node(self._folder / name, name, self.dsn, policy)
        self._stack.callback(node.close)
        self.nodes.append(node)
        self.execute(
            "INSERT INTO proxyfleet.documents (collection, id, revision, place, body)"
            f" VALUES ('nodes', '{name}', 1, 0, '{{}}')"
        )
        if follows:
            node.follow()
        return node

    def pass_time(self, seconds: float) -> None:
        for _ in range(round(seconds * 2)):
            for node in self.nodes:
                node.hand.time += 0.5
                node.turn()

    def execute(self, statement: str) -> list[Any]:
        with self.database.session() as session:
            return session.transaction(statement)

    def total(self, account: str = "acc_1") -> int:
        [(total,)] = self.execute(
            f"SELECT total_in + total_out FROM proxyfleet.usage_totals WHERE account = '{account}'"
        )
        return int(total)

    def hours(self) -> int:
        [(total,)] = self.execute("SELECT coalesce(sum(bytes_in + bytes_out), 0)::bigint FROM proxyfleet.usage_hours")
        return int(total)

    def cut(self, is_cut: bool = True) -> None:
        for node in self.nodes:
            node.database.is_cut = is_cut
