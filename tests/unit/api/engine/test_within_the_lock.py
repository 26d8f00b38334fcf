"""Within `Engine.exclusive`, which holds up every change of all nodes, nothing waits for anything but the file."""

from __future__ import annotations

import os
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import bcrypt
import pytest
import urllib3

from actors.bus.messages.common import METRICS, Done
from actors.lists import compiler
from api.app import OPERATIONS
from api.engine import ledger
from api.engine.loose import LOOSE
from api.engine.operation import HOLDER, NONE
from api.history.lost_changes import LostChanges
from api.operations import Operation
from api.security import users
from api.security.password_checker import PasswordChecker
from api.store import Write
from config.model import fields
from config.model.plans import PlanCreate
from tests.kit.api_stage import PASSWORD, PROXY, Api
from tests.unit.api import holding
from tests.unit.api.holding import account, sign_in, with_self_service

WAITS = ("socket.bind", "socket.connect", "socket.getaddrinfo", "subprocess.Popen", "open", "os.rename")
"""Events of the interpreter that stand for waiting: for the network, another process, a file."""
HASHING = ((bcrypt, "hashpw"), (bcrypt, "checkpw"), (ThreadPoolExecutor, "submit"), (PasswordChecker, "check_password"))
WORK = (*HASHING, (time, "sleep"), (compiler.ListCompiler, "compile"), (urllib3.HTTPConnectionPool, "urlopen"))

WRITES = [each for each in OPERATIONS if each.method != "GET"]
ELSEWHERE = {
    "finishOAuth2": "there is no identity provider",
    "testProxy": "a process that is not played does it",
    "explainAccess": "as above",
    "endConnections": "as above",
    "endConnection": "as above",
    "checkPool": "as above",
    "reportPoolUpstream": "as above",
    "redeliver": "as above",
    "testWebhook": "as above",
    "refreshList": "another thread fetches",
    "refreshPool": "as above",
    "dropCachedNames": "a process that is not played does it",
    **dict.fromkeys(
        ("replaceNode", "updateNode", "removeNode", "drainNode", "resumeNode", "createNodeToken", "revokeNodeToken"),
        "one machine is no fleet",
    ),
    "resumeAccount": "there is no cookie, and sign-ins of holders are in another file",
}
"""Operations that are not finished here, and why. They change no document."""
LAST = ("updateMe", "logout", "logoutAccount")
QUERIES = {"endFleetConnections": "?all=true", "endConnections": "?all=true"}


class Watch:
    """Notes what is done in a thread that is within a transaction of the engine."""

    def __init__(self) -> None:
        self.is_within: Callable[[], bool] | None = None
        self.found: list[str] = []
        sys.addaudithook(self._event)  # for good: it does nothing when it watches nothing

    @contextmanager
    def watching(self, is_within: Callable[[], bool]) -> Iterator[list[str]]:
        self.is_within, self.found = is_within, []
        with pytest.MonkeyPatch.context() as patch:
            for owner, name in WORK:
                patch.setattr(owner, name, self._noted(name, getattr(owner, name)))
            try:
                yield self.found
            finally:
                self.is_within = None

    def note(self, what: str) -> None:
        if self.is_within is not None and self.is_within():
            stack = traceback.StackSummary.extract(traceback.walk_stack(None), limit=12, lookup_lines=False)
            if any((each.filename, each.name) == (ledger.__file__, "begin") for each in stack):
                return  # in a fleet entries of the audit trail are on the disk before the database has them
            self.found.append(f"{what}, from {[f'{each.filename}:{each.lineno}' for each in stack]}")

    def _event(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.is_within is not None and event in WAITS:
            self.note(f"{event} {arguments[:1]}")

    def _noted(self, name: str, function: Any) -> Any:
        def call(*given: Any, **named: Any) -> Any:
            self.note(name)
            return function(*given, **named)

        return call


WATCH = Watch()


BODIES: dict[str, Any] = {
    "login": {"username": "admin", "password": PASSWORD},
    "loginAccount": {"username": "alice", "password": holding.PASSWORD},
    "updateMe": {"password": "another good one", "current_password": holding.PASSWORD},
    "createProxy": {**PROXY, "tags": ["office"], "auth": {"enabled": True, "username": "office", "password": PASSWORD}},
    "createAccount": {"username": "of-a-proxy", "password": PASSWORD},
    "createFleetAccount": {"username": "carol", "password": PASSWORD},
    "importAccounts": {"create": [{"username": "imported", "password": PASSWORD}]},
    "importConfig": {
        "kind": "proxyfleet.config",
        "version": 1,
        "proxies": [{"name": "imported", "port": 3130, "protocol": "http", "status": "active"}],
        "users": [{"username": "eve", "password": PASSWORD}],
        "lists": [{"name": "imported", "kind": "domains", "entries": ["example.com"]}],
        "settings": {"proxy": {"default_timeout": 31}},
    },
    "replaceProxy": {"port": 3140, "auth": {"password": "another good one"}},
    "replaceUser": {"password": "another good one"},
}
"""Bodies of operations where the example of their model does not fit to the others."""


def body_of(api: Api, operation: Operation, ids: dict[str, str]) -> Any:
    if operation.id == "refreshToken":
        signed_in = api.post("/auth/login", {"username": "admin", "password": PASSWORD}).json["data"]
        return {"refresh_token": signed_in["refresh_token"]}
    if operation.id == "tagProxies":
        return {"ids": [ids["proxy_id"]], "add_tags": ["berlin"]}
    if operation.id == "batchProxies":
        new = {"name": "many", "port": 3150, "protocol": "http", "auth": BODIES["createProxy"]["auth"]}
        return {"create": [new], "update": [{"id": ids["proxy_id"], "port": 3151, "add_tags": ["paris"]}]}
    if operation.id == "batchAccounts":
        return {
            "create": [{"username": "many", "password": PASSWORD}],
            "update": [{"id": ids["account_id"], "tags": ["a"]}],
        }
    if operation.body is None:
        return None
    return BODIES.get(operation.id) or fields.example_of(operation.body)


def learn(operation: Operation, data: Any, ids: dict[str, str]) -> None:
    """Note the id of what was made, under the name that paths have for it."""
    for kind, made in data.items():
        if operation.status == 201 and isinstance(made, dict) and "id" in made:
            name = "key_id" if kind == "api_key" else f"{kind}_id"
            ids["my_credential_id" if operation.id == "createMyCredential" else name] = made["id"]


def test_any_operation_that_changes_something_waits_for_nothing_within_the_lock_and_says_what_it_has_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with closing(with_self_service()) as api:
        api.fleet.others[METRICS] = lambda _message: Done()
        api.services.objects["plans"].create(
            PlanCreate.model_validate({"name": "own", "self_service": {"password": True, "credentials": True}})
        )
        for name in ("alice", "ann"):
            account(api, name, plan="own")
        admin, holder, ids = api.token(), sign_in(api), {"username": "of-a-proxy", "setting": "proxy.default_timeout"}
        unfinished, commit = [], api.engine.commit

        def expecting(writes: Sequence[Write]) -> int:
            loose = [each for each in writes if each.expect is None]
            assert {each.collection for each in loose} <= LOOSE, "a change that another one overtook would be lost"
            return commit(writes)

        monkeypatch.setattr(api.engine, "commit", expecting)

        def call(operation: Operation) -> None:
            headers = {HOLDER: holder, NONE: {}}.get(operation.access, admin)
            if operation.id == "logoutAccount":
                headers = sign_in(api, "ann")
            known = {**ids, "connection_id": "1", "upstream": "u", "delivery_id": "d", "node_id": "n", "token_id": "t"}
            if operation.id == "reapplyLostChanges":
                known["lost_id"] = lost_plan(api)
            known["revision_id"] = str(api.services.revisions.newest)
            if "session_id" in operation.path:
                who = ids["user_id"] if "user_id" in operation.path else api.admin.id
                user = users.by_id(api.store, who)
                assert user is not None
                api.services.tokens.issue(user)
                known["session_id"] = api.store.find("refresh_families", user_id=who)[-1].id
            if operation.id == "revokeMyCredential":
                known["credential_id"] = ids["my_credential_id"]
            path, body = operation.path.format_map(known) + QUERIES.get(operation.id, ""), body_of(api, operation, ids)
            with WATCH.watching(api.fleet.within_a_commit) as found:
                response = api.request(operation.method, path, headers, **({} if body is None else {"json": body}))
            assert found == [], f"{operation.id} waits within the lock"
            if response.status_code < 300:
                learn(operation, response.json["data"], ids)
            elif operation.id not in ELSEWHERE:
                unfinished.append((operation.id, response.text))

        for operation in sorted(WRITES, key=order):
            call(operation)
        assert unfinished == [], f"say in BODIES how these are called: {unfinished}"


def lost_plan(api: Api) -> str:
    """The file that has a plan which the database of a fleet has lost; its name."""
    plan = api.store.find("plans")[0]
    body = {**plan.body, "id": "pln_00000000000000aa", "name": "lost"}
    lost = {"collection": "plans", "id": body["id"], "name": "lost", "revision": 7, "body": body}
    api.services.data.cluster.mkdir(exist_ok=True)
    LostChanges("2026-11-29T04:00:00Z", "fleet", "fra1", 0, [7], [lost]).save(api.services.data)
    return "last"


def order(operation: Operation) -> tuple[int, int, bool]:
    """First what makes objects, last what deletes them, users of others before these."""
    is_deletion = operation.method == "DELETE"
    part = 3 if operation.id in LAST else 2 if is_deletion else 0 if operation.status == 201 else 1
    return (part, -operation.path.count("/"), "account" not in operation.path) if is_deletion else (part, 0, False)


@pytest.mark.parametrize("what", ["hash", "bus", "sleep", "socket", "file"])
def test_what_waits_within_the_lock_is_noticed(api: Api, what: str) -> None:
    deeds: dict[str, Callable[[], object]] = {
        "hash": lambda: bcrypt.hashpw(b"a", bcrypt.gensalt(4)),
        "sleep": lambda: time.sleep(0),
        "socket": lambda: socket.getaddrinfo("127.0.0.1", 80),
        "file": lambda: api.data.initial_password.exists() or open(os.devnull).close(),
    }
    with WATCH.watching(api.fleet.within_a_commit) as found:
        if what == "bus":
            with pytest.raises(AssertionError, match="a commit waits for"), api.engine.exclusive():
                api.fleet.ask(METRICS, None)
            return
        deeds[what]()
        assert found == []
        with api.engine.exclusive():
            deeds[what]()
    assert len(found) == 1
