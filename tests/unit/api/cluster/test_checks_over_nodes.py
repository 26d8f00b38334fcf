"""Changes at two nodes at once that do not fit to each other: one is made, the other gets the usual refusal."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any, cast

from api.engine.commit import Engine
from api.security import users
from api.security.users import User
from config.files.secret_box import secret_box_of
from tests.kit.api_stage import PASSWORD, PROXY, Api, UnrecordedStore, error_of
from tests.kit.tables import table
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


LIST = ("POST", "/lists", {"name": "listed", "kind": "domains", "entries": ["example.com"]})
RULED = ("POST", "/plans", {"name": "ruled", "deny_destinations": ["list:listed"]})
PLAN = ("POST", "/plans", {"name": "planned"})
ACCOUNT = ("POST", "/accounts", {"username": "alice", "password": PASSWORD})
OF_PLAN = ("POST", "/accounts", {"username": "alice", "password": PASSWORD, "plan": "planned"})
FIRST = ("POST", "/proxies", PROXY)
SECOND = ("POST", "/proxies", {**PROXY, "name": "second", "port": 3129})
Request = tuple[str, str, Any]


@table(
    "before, first, second, field",
    [
        (None, FIRST, ("POST", "/proxies", {**PROXY, "port": 3129}), "name"),
        (None, FIRST, ("POST", "/proxies", {**PROXY, "name": "second"}), "port"),
        (None, FIRST, ("POST", "/proxies", {**PROXY, "name": "second", "host": "127.0.0.1"}), "port"),
        (FIRST, SECOND, ("PATCH", "{id}", {"port": 3129}), "port"),
        (FIRST, SECOND, ("PATCH", "{id}", {"name": "second"}), "name"),
        (None, LIST, LIST, "name"),
        (LIST, ("DELETE", "{id}", None), RULED, "deny_destinations"),
        (LIST, RULED, ("DELETE", "{id}", None), None),
        (LIST, RULED, ("PATCH", "{id}", {"name": "other"}), "name"),
        (None, PLAN, PLAN, "name"),
        (None, ACCOUNT, ACCOUNT, "username"),
        (None, ACCOUNT, ("POST", "/accounts/batch", {"create": [ACCOUNT[2]]}), "create[0].username"),
        (PLAN, ("DELETE", "{id}", None), OF_PLAN, "plan"),
        (PLAN, OF_PLAN, ("DELETE", "{id}", None), None),
        (
            FIRST,
            ACCOUNT,
            ("POST", "{id}/accounts", {"username": "alice", "password": PASSWORD}),
            "username",
        ),
    ],
)  # fmt: skip
def test_of_two_changes_at_once_that_clash_one_is_made_and_the_other_is_refused_as_on_one_machine(
    before: Request | None, first: Request, second: Request, field: str | None
) -> None:
    with two() as (one, other):
        path = ""
        if before is not None:
            status, made = one.ask(*before)
            assert status == 201, made
            path = f"{before[1]}/{next(each['id'] for each in made.values() if isinstance(each, dict))}"
            other.engine.catch_up()
        found: list[tuple[int, Any]] = []

        def overtake(node: str) -> None:
            """The other node checks and commits while this one has checked, and has not its turn."""
            if node == "a" and not found:
                thread = threading.Thread(target=lambda: found.append(other.ask(*at(path, first))))
                thread.start()
                thread.join()

        one.ledger.before = overtake
        status, refused = one.ask(*at(path, second))
        assert found[0][0] < 300, found
        assert status == 400, refused
        assert field is None or field in str(refused[2]), refused
        one.engine.catch_up()
        for name in ("proxies", "lists", "policies", "plans", "accounts"):
            known = {each.id: each.body for each in one.engine.find(name)}
            assert known == {each.id: each.body for each in other.engine.find(name)}


def at(path: str, request: Request) -> Request:
    return request[0], request[1].replace("{id}", path), request[2]


def test_users_of_one_name_are_made_once_and_an_import_is_planned_anew() -> None:
    with two() as (one, other):
        made: list[Any] = []

        def overtake(node: str) -> None:
            if node == "a" and not made:
                made.append(users.new_user(users.UserCreate(username="eve", password=PASSWORD)))
                other.engine.put("users", made[0].model_dump(mode="json"), 0)

        one.ledger.before = overtake
        status, refused = one.ask("POST", "/users", {"username": "eve", "password": PASSWORD})
        assert (status, len(one.engine.find("users", username="eve"))) == (400, 1), refused
        one.ledger.before = lambda _node: None
        made.clear()

        def change(node: str) -> None:
            if node == "a" and not made:
                made.append("begun")
                other.engine.put("lists", {**one.engine.find("lists")[0].body, "description": "theirs"})

        assert one.ask(*LIST)[0] == 201
        other.engine.catch_up()
        one.ledger.before = change
        document = {"kind": "proxyfleet.config", "version": 1, "plans": [PLAN[2]]}
        status, outcome = one.ask("POST", "/config/import", document)
        assert status == 200, outcome
        assert [each.body["description"] for each in one.engine.every("lists")] == ["theirs"]
        assert [each.body["name"] for each in one.engine.every("plans")] == ["planned"]
