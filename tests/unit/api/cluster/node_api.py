"""The API of a node: with a ledger in memory, or as in a product, with the database of a fleet."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import Any, cast
from uuid import UUID

from actors.cluster.database import Database
from actors.cluster.identity import NodeIdentity
from api.cluster.fleet_node import FleetNode, NodeHost
from api.cluster.migration_runner import migrate
from api.cluster.shared_ledger import LedgerUnavailable
from api.engine.commit import Engine
from api.security import users
from api.security.users import User
from config.files.secret_box import secret_box_of
from config.settings.groups import History
from tests.kit.api_stage import PASSWORD, Api, UnrecordedStore, error_of
from tests.kit.fleet_database import create_fleet
from tests.unit.api.store.replicas import MemoryLedger


class NodeApi(Api):
    """That of a node of a fleet, which has the key of another one."""

    def __init__(self, ledger: MemoryLedger, name: str, other: NodeApi | None = None) -> None:
        self.ledger, self.name, self.other = ledger, name, other
        super().__init__()
        self.headers = self.token()

    def open(self) -> None:
        if self.other is not None:
            shutil.copytree(self.other.data.keys, self.data.keys, dirs_exist_ok=True)
        self.engine = Engine(self.data, secret_box_of(self.data), self.ledger.of(self.name))
        self.engine.catch_up()
        self.store = cast("UnrecordedStore", self.engine)

    def add_user(self, username: str, **fields: Any) -> User:
        return users.by_name(self.engine, username) or super().add_user(username, **fields)

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Status and data, or what is wrong."""
        result = self.request(method, path, self.headers, **({} if body is None else {"json": body}))
        return result.status_code, result.json["data"] if result.status_code < 300 else error_of(result)


@contextmanager
def two() -> Iterator[tuple[NodeApi, NodeApi]]:
    ledger = MemoryLedger()
    with ExitStack() as stack:
        one = stack.enter_context(closing(NodeApi(ledger, "a")))
        yield one, stack.enter_context(closing(NodeApi(ledger, "b", one)))


class FollowingApi(Api):
    """That of a node that commits to the database of its fleet and follows it, with all threads of a product."""

    node: FleetNode

    def __init__(self, dsn: str, name: str, other: FollowingApi | None = None) -> None:
        """It has the key of the `other` one."""
        self.dsn, self.name, self.other = dsn, name, other
        super().__init__()

    def open(self) -> None:
        if self.other is not None:
            shutil.copytree(self.other.data.keys, self.data.keys, dirs_exist_ok=True)
        self.data.cluster.mkdir(exist_ok=True)
        self.node = FleetNode(NodeIdentity(FLEET, self.name, self.name, "full", self.dsn))
        self.engine = Engine(self.data, secret_box_of(self.data), self.node.ledger)
        self.node.opened(self.engine)
        with suppress(LedgerUnavailable):
            self.engine.catch_up()
        self.store = cast("UnrecordedStore", self.engine)

    def add_user(self, username: str, **fields: Any) -> User:
        return users.by_name(self.engine, username) or super().add_user(username, **fields)

    def start(self) -> None:
        super().start()
        self.node.start(NodeHost(lambda *_event: None, History))

    def end(self) -> None:
        self.node.close()
        super().end()

    def login(self, password: str = PASSWORD, username: str = "admin") -> dict[str, str]:
        """The tokens of a new sign-in."""
        found = self.post("/auth/login", {"username": username, "password": password})
        assert found.status_code == 200, found.text
        return cast("dict[str, str]", found.json["data"])

    def refresh(self, tokens: Mapping[str, str]) -> int:
        """The status of a refresh."""
        return self.post("/auth/refresh", {"refresh_token": tokens["refresh_token"]}).status_code


FLEET = UUID(int=1)


@contextmanager
def following(*dsns: str) -> Iterator[list[FollowingApi]]:
    """Nodes `a`, `b`, … of a new fleet, each by its way to an empty database."""
    with closing(Database(dsns[0])) as found:
        migrate(found, "a")
        create_fleet(found, FLEET, "a")
    with ExitStack() as stack:
        nodes: list[FollowingApi] = []
        for number, dsn in enumerate(dsns):
            nodes.append(stack.enter_context(closing(FollowingApi(dsn, "abc"[number], *nodes[:1]))))
        yield nodes
