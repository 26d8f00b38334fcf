"""Sign-ins, credentials and what goes with them at two nodes of a fleet, through the API."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from typing import Any

import pytest

from actors.cluster.database import Database
from api.cluster.loose import Loose
from api.cluster.migration_runner import migrate
from config.settings.settings import AccountSettings
from tests.kit.api_stage import PASSWORD
from tests.kit.postgresql import Server, database, needs_postgresql
from tests.kit.wait import wait_until
from tests.unit.api.cluster.node_api import NodeApi
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
        self.database = Database(self.dsn)
        self.loose = Loose(self.database, self.name, self.engine.loose)
        self.engine.loose.share(self.loose)
        self.loose.start()

    def end(self) -> None:
        self.loose.close()
        self.database.close()
        super().end()

    def login(self, password: str = PASSWORD, **body: Any) -> Any:
        return self.post("/auth/login", {"username": "admin", "password": password, **body})


@contextmanager
def two(dsn: str) -> Iterator[tuple[SharingApi, SharingApi]]:
    with closing(Database(dsn)) as found:
        migrate(found, "a")
    ledger = MemoryLedger()
    with ExitStack() as stack:
        one = stack.enter_context(closing(SharingApi(dsn, ledger, "a")))
        other = stack.enter_context(closing(SharingApi(dsn, ledger, "b", one)))
        yield one, other


@pytest.fixture
def nodes() -> Iterator[tuple[SharingApi, SharingApi]]:
    with database() as dsn, two(dsn) as found:
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
