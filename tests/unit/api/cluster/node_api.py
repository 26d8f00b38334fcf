"""The API of a node, whose ledger is in memory."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any, cast

from api.engine.commit import Engine
from api.security import users
from api.security.users import User
from config.files.secret_box import secret_box_of
from tests.kit.api_stage import Api, UnrecordedStore, error_of
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
