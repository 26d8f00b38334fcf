"""Sign-ins, credentials and what goes with them at two nodes of a fleet, through the API."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from actors.cluster.database import Database
from actors.cluster.identity import NodeIdentity
from api.call import Reply
from api.cluster import shared_requests
from api.cluster.fleet_node import FleetNode
from api.cluster.following.heartbeat import Heartbeat
from api.cluster.migration_runner import migrate
from api.errors import TooBusy
from api.http import idempotency
from api.http.idempotency import _digest
from config.settings.settings import AccountSettings
from config.text.formatting import timestamp_text
from tests.kit.api_stage import PASSWORD
from tests.kit.fleet_database import create_fleet
from tests.kit.postgresql import migrated_database, needs_postgresql
from tests.kit.postgresql_server import Server
from tests.kit.wait import wait_until
from tests.unit.api.cluster.node_api import NodeApi
from tests.unit.api.cluster.node_api import two as nodes_in_memory
from tests.unit.api.holding import sign_in
from tests.unit.api.store.replicas import MemoryLedger

pytestmark = needs_postgresql


class SharingApi(NodeApi):
    """That of a node whose sign-ins are shared."""

    def __init__(self, dsn: str, ledger: MemoryLedger, name: str, other: NodeApi | None = None) -> None:
        self.dsn = dsn
        super().__init__(ledger, name, other)
        accounts = AccountSettings(self_service=True)
        self.services.apply(replace(self.services.settings, accounts=accounts))

    def open(self) -> None:
        super().open()
        self.node = node = FleetNode(NodeIdentity(UUID(int=1), self.name, self.name, "full", self.dsn))
        node.opened(self.engine)
        self.database, self.loose = node.database, node.loose
        self.loose.start()

    def end(self) -> None:
        assert isinstance(self.node, FleetNode)
        self.node.close()
        super().end()

    def login(self, password: str = PASSWORD, **body: Any) -> Any:
        return self.post("/auth/login", {"username": "admin", "password": password, **body})


@contextmanager
def two(dsn: str) -> Iterator[tuple[SharingApi, SharingApi]]:
    with closing(Database(dsn)) as found:
        migrate(found, "a")
        create_fleet(found, UUID(int=1), "a")
    ledger = MemoryLedger()
    with ExitStack() as stack:
        one = stack.enter_context(closing(SharingApi(dsn, ledger, "a")))
        other = stack.enter_context(closing(SharingApi(dsn, ledger, "b", one)))
        yield one, other


@pytest.fixture
def nodes() -> Iterator[tuple[SharingApi, SharingApi]]:
    with migrated_database() as dsn, two(dsn) as found:
        yield found


def bearer(tokens: dict[str, Any]) -> dict[str, str]:
    return {"Authorization": f"Bearer {tokens['access_token']}"}


def test_a_sign_in_at_one_node_is_good_at_the_other_at_once(nodes: tuple[SharingApi, SharingApi]) -> None:
    one, other = nodes
    tokens = one.login().json["data"]
    assert other.get("/auth/test", bearer(tokens)).status_code == 200
    for node in (other, one, other):
        found = node.post("/auth/refresh", {"refresh_token": tokens["refresh_token"]})
        assert found.status_code == 200, found.text
        earlier, tokens = tokens, found.json["data"]
    assert one.get("/auth/test", bearer(tokens)).status_code == 200
    assert one.post("/auth/logout", None, bearer(tokens)).status_code == 200
    wait_until(lambda: other.get("/auth/test", bearer(tokens)).status_code == 401, "it is signed out", 1.5)
    assert other.post("/auth/refresh", {"refresh_token": earlier["refresh_token"]}).status_code == 401


def test_a_sign_in_by_a_password_of_this_moment_is_good_where_that_is_not_known_yet(
    nodes: tuple[SharingApi, SharingApi],
) -> None:
    one, other = nodes
    for each in nodes:
        each.engine.loose.settle()
    earlier = one.login().json["data"]
    body = {"password": "another good password", "current_password": PASSWORD}
    assert one.patch(f"/users/{one.admin.id}", body, bearer(earlier)).status_code == 200
    tokens = one.login(body["password"]).json["data"]
    assert other.get("/auth/test", bearer(tokens)).status_code == 200
    assert other.post("/auth/refresh", {"refresh_token": earlier["refresh_token"]}).status_code == 401


def test_a_refresh_token_that_was_used_at_another_node_ends_the_sign_in(nodes: tuple[SharingApi, SharingApi]) -> None:
    one, other = nodes
    stolen = one.login().json["data"]
    tokens = other.post("/auth/refresh", {"refresh_token": stolen["refresh_token"]}).json["data"]
    assert one.post("/auth/refresh", {"refresh_token": stolen["refresh_token"]}).status_code == 401
    wait_until(lambda: other.get("/auth/test", bearer(tokens)).status_code == 401, "the sign-in has ended", 1.5)


def test_a_holder_of_an_account_signs_in_at_one_node_and_out_at_another(nodes: tuple[SharingApi, SharingApi]) -> None:
    one, other = nodes
    status, made = one.ask("POST", "/accounts", {"username": "alice", "password": PASSWORD})
    assert status == 201, made
    other.engine.catch_up()
    headers = sign_in(one, password=PASSWORD)
    assert other.get("/me", headers).status_code == 200
    assert other.post("/me/logout", None, headers).status_code == 200
    assert other.get("/me", headers).status_code == 401
    wait_until(lambda: one.get("/me", headers).status_code == 401, "it is signed out", 1.5)


def test_in_an_outage_people_sign_in_and_out_and_credentials_are_minted_and_revoked() -> None:
    with Server() as server, server.database() as dsn, two(dsn) as (one, other):
        account = one.ask("POST", "/accounts", {"username": "alice", "password": PASSWORD})[1]["account"]
        other.engine.catch_up()
        one.login()  # which makes the key of tokens
        other.engine.catch_up()
        server.stop()
        wait_until(lambda: not one.database.is_available, "the outage is known", 5)
        tokens = one.login().json["data"]
        ended = one.login().json["data"]
        assert one.post("/auth/logout", None, bearer(ended)).status_code == 200
        tokens = one.post("/auth/refresh", {"refresh_token": tokens["refresh_token"]}).json["data"]
        path = f"/accounts/{account['id']}/credentials"
        status, minted = one.ask("POST", path, {"ttl": 600})
        assert status == 201, minted
        assert one.loose.pending()["credentials"] == 1
        assert other.get("/auth/test", bearer(tokens)).status_code == 401
        server.start()
        wait_until(lambda: one.database.is_available and other.database.is_available, "it is back", 5)
        wait_until(lambda: other.get("/auth/test", bearer(tokens)).status_code == 200, "the sign-in is there", 2)
        wait_until(lambda: len(other.ask("GET", path)[1]["credentials"]) == 1, "the credential is there", 2)
        assert other.get("/auth/test", bearer(ended)).status_code == 401
        credential = minted["credential"]["id"]
        assert other.ask("DELETE", f"{path}/{credential}")[0] == 200
        wait_until(lambda: not one.ask("GET", path)[1]["credentials"], "it is revoked", 1.5)


def test_a_request_with_a_key_is_executed_once_whichever_node_it_comes_to(nodes: tuple[SharingApi, SharingApi]) -> None:
    one, other = nodes
    key = {"Idempotency-Key": "k1"}
    body = {"name": "deploy"}
    first = one.post("/api-keys", body, {**one.headers, **key})
    assert first.status_code == 201, first.text
    other.engine.catch_up()
    again = other.post("/api-keys", body, {**one.headers, **key})
    assert again.json["data"]["key"] == first.json["data"]["key"]
    assert other.post("/api-keys", {"name": "other"}, {**one.headers, **key}).status_code == 400
    assert len(one.engine.find("api_keys")) == 1


def test_a_repetition_at_another_node_waits_and_what_failed_is_executed_there(
    nodes: tuple[SharingApi, SharingApi], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = (each.services.idempotency for each in nodes)
    begun, go_on = threading.Event(), threading.Event()
    replies: list[Any] = []

    def slow() -> Reply:
        begun.set()
        assert go_on.wait(5)
        return Reply({"made": "first"})

    def failing() -> Reply:
        begun.set()
        assert go_on.wait(5)
        raise RuntimeError

    def second() -> Reply:
        return Reply({"made": "second"})

    for number, (execute, expected) in enumerate(((slow, "first"), (failing, "second"))):
        begun.clear()
        go_on.clear()
        mark = f"k{number}"

        def ask(execute: Any = execute, mark: str = mark) -> None:
            with suppress(RuntimeError):
                one.once("usr", mark, {}, execute)

        def repeat(mark: str = mark) -> None:
            found = other.once("usr", mark, {}, second)
            replies.append(found.plain() if isinstance(found, Reply) else found)

        threads = [threading.Thread(target=ask)]
        threads[0].start()
        assert begun.wait(5)
        threads.append(threading.Thread(target=repeat))
        threads[1].start()
        time.sleep(0)
        assert len(replies) == number, "it waits"
        go_on.set()
        for each in threads:
            each.join()
        assert expected in str(replies[-1])
    monkeypatch.setattr(idempotency, "LONGEST_WAIT", 0.2)
    assert nodes[0].node is not None
    nodes[0].node.requests.claim(_digest(["usr", "k3"]))
    with pytest.raises(TooBusy):
        other.once("usr", "k3", {}, second)


def test_failed_sign_ins_count_at_all_nodes_and_a_lock_holds_at_all(nodes: tuple[SharingApi, SharingApi]) -> None:
    one, other = nodes
    limit = one.services.settings.auth.max_login_attempts
    for number in range(limit - 1):
        assert nodes[number % 2].login("wrong").status_code == 401
    assert one.login().status_code == 200
    wait_until(lambda: not rows(one, "SELECT 1 FROM proxyfleet.failures"), "they are forgotten", 2)
    for number in range(limit):
        assert nodes[number % 2].login("wrong").status_code == 401
    assert nodes[(limit - 1) % 2].login().status_code == 429, "at once where it was locked"
    wait_until(lambda: one.login().status_code == other.login().status_code == 429, "it is locked at both", 2)
    stored = str(rows(one, "SELECT * FROM proxyfleet.lockouts"))
    assert "admin" not in stored
    assert "127.0.0.1" not in stored
    other.services.login_throttle.forget("Admin")
    wait_until(lambda: one.login().status_code == other.login().status_code == 200, "the lock is lifted", 2)


def test_a_node_that_is_cut_off_counts_by_itself() -> None:
    with Server() as server, server.database() as dsn, two(dsn) as (one, other):
        limit = one.services.settings.auth.max_login_attempts
        server.stop()
        for _ in range(limit):
            assert one.login("wrong").status_code == 401
        assert (one.login().status_code, other.login().status_code) == (429, 200)
        server.start()


def test_the_last_use_of_a_key_is_the_same_at_all_nodes(
    nodes: tuple[SharingApi, SharingApi], monkeypatch: pytest.MonkeyPatch
) -> None:
    def exchange(*nodes: SharingApi) -> None:
        for each in nodes:
            assert isinstance(each.node, FleetNode)
            beats = Heartbeat(each.database, each.name, each.name, lambda: (0, None))
            beats.fields.append(each.node.requests.heartbeat_fields)
            beats.subscribers.append(each.node.requests.on_heartbeat)
            beats.beat_now()

    monkeypatch.setattr(shared_requests, "USES", 0.0)
    one, other = nodes
    made = one.post("/api-keys", {"name": "deploy"}, one.headers).json["data"]
    other.engine.catch_up()
    key_id = one.engine.find("api_keys")[0].id
    assert other.get("/proxies", {"X-API-Key": made["key"]}).status_code == 200
    exchange(other, one)
    known = other.services.last_used.of(key_id)
    assert known is not None
    assert one.services.last_used.of(key_id) == known
    assert one.engine.last_used("api_keys") == other.engine.last_used("api_keys") == {key_id: known}
    other.engine.note_use("api_keys", key_id, known - 100)
    exchange(other)
    assert other.engine.last_used("api_keys") == {key_id: known}, "the greatest wins"
    monkeypatch.setattr(shared_requests, "USES", 60.0)
    other.engine.note_use("api_keys", key_id, known + 1)
    exchange(other, one)
    assert one.services.last_used.of(key_id) == known, "not at each heartbeat"


def test_the_sign_ins_of_a_node_that_is_removed_end(nodes: tuple[SharingApi, SharingApi]) -> None:
    one, other = nodes
    goes_on, ended = one.login().json["data"], other.login().json["data"]
    one.services.tokens.revoke_of_node("b")
    one.engine.loose.settle()
    assert one.get("/auth/test", bearer(ended)).status_code == 401
    wait_until(lambda: other.get("/auth/test", bearer(ended)).status_code == 401, "it has ended", 1.5)
    assert other.get("/auth/test", bearer(goes_on)).status_code == 200


def test_nothing_waits_where_all_can_be_sent(nodes: tuple[SharingApi, SharingApi]) -> None:
    one, _ = nodes
    node = one.node
    assert node is not None
    one.login()
    wait_until(lambda: node.pending()["sign_ins"] == 0, "it is noted that it was sent", 2)


def rows(node: SharingApi, statement: str) -> list[Any]:
    with node.database.session() as session:
        return session.transaction(statement)


def test_tokens_keys_and_credentials_go_by_the_clock_of_the_fleet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Section 15: a node whose clock is off refuses no sign-in for that."""
    with nodes_in_memory() as (one, _):
        assert one.ask("GET", "/auth/test")[0] == 200
        in_an_hour = timestamp_text(time.time() + 3600)
        made = one.ask("POST", "/api-keys", {"name": "deploy", "expires_at": in_an_hour})[1]
        account = one.ask("POST", "/accounts", {"username": "alice", "password": "battery staple"})[1]["account"]["id"]
        key = {"X-API-Key": made["key"]}
        assert one.get("/proxies", key).status_code == 200
        monkeypatch.setattr(one.services.node, "clock", lambda: time.time() + 7200)
        assert one.ask("GET", "/auth/test")[0] == 401
        assert one.get("/proxies", key).status_code == 401
        minted = one.post(f"/accounts/{account}/credentials", {"ttl": 600}, one.token()).json["data"]["credential"]
        assert minted["expires_at"] > timestamp_text(time.time() + 7200)
