"""A request with an `Idempotency-Key` whose node is killed: the change is made once, and a repetition says so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from api.http import idempotency
from api.objects.nodes import proxies_over_nodes
from api.objects.proxies import supervisor_link
from tests.kit.api_stage import error_of
from tests.kit.postgresql import Server, migrated_database, needs_postgresql
from tests.kit.wait import wait_until
from tests.unit.api.cluster.node_api import FollowingApi, following

pytestmark = needs_postgresql


class NodeKilled(BaseException):
    """The process ends here."""


@pytest.fixture
def nodes() -> Iterator[list[FollowingApi]]:
    with migrated_database() as dsn, following(dsn, dsn) as found:
        found[0].token()  # which makes the key of tokens
        found[1].engine.catch_up()
        yield found


def restart(node: FollowingApi) -> None:
    node.node.close()
    node.services.close()
    node.engine.close()
    del node.services
    node.open()
    node.start()


def ask(node: FollowingApi, path: str, body: dict[str, Any], key: str) -> Any:
    return node.post(path, body, {**node.token(), "Idempotency-Key": key})


def killed_before_the_response(node: FollowingApi, path: str, body: dict[str, Any], key: str) -> None:
    """The change is made."""
    usual = node.services.idempotency._keep

    def keep(mark: str, entry: dict[str, Any]) -> None:
        if entry["answer"] is not None:
            raise NodeKilled
        usual(mark, entry)

    node.services.idempotency._keep = keep  # type: ignore[method-assign]
    with pytest.raises(NodeKilled):
        ask(node, path, body, key)
    restart(node)


def is_said_to_be_made(node: FollowingApi, path: str, body: dict[str, Any], key: str) -> bool:
    found = ask(node, path, body, key)
    assert found.status_code == 400, found.text
    assert error_of(found)[2]["field"] == "Idempotency-Key"
    return "was made, whose response was lost: see the audit trail" in found.text


def test_what_was_made_before_a_kill_is_made_once_whichever_node_it_is_repeated_at(
    nodes: list[FollowingApi], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idempotency, "LOST_AFTER", 0.5)
    one, other = nodes
    made = one.post("/accounts", {"username": "alice", "password": "battery staple"}, one.token())
    account = made.json["data"]["account"]["id"]
    for path, body, collection in (
        ("/api-keys", {"name": "deploy"}, "api_keys"),
        (f"/accounts/{account}/credentials", {"ttl": 600}, "credentials"),
    ):
        killed_before_the_response(one, path, body, path)
        for node in (one, other, one):
            node.engine.catch_up()
            assert is_said_to_be_made(node, path, body, path)
            assert len(node.engine.every(collection)) == 1
        assert error_of(ask(other, path, {**body, "name": "x"}, path))[0] == 400


def test_a_response_is_not_said_to_be_lost_while_the_proxy_that_was_made_starts() -> None:
    its_start = supervisor_link.START_WAIT + supervisor_link.RETRY_INTERVAL
    assert its_start + proxies_over_nodes.WAIT < idempotency.LOST_AFTER < idempotency.LONGEST_WAIT


def test_what_was_not_made_before_a_kill_is_made_when_it_is_repeated(
    nodes: list[FollowingApi], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _ = nodes
    with monkeypatch.context() as patch:
        patch.setattr(one.services.idempotency, "_give_back", lambda _mark: None)
        patch.setattr(one.engine, "commit", lambda _writes: (_ for _ in ()).throw(NodeKilled()))
        with pytest.raises(NodeKilled):
            ask(one, "/api-keys", {"name": "deploy"}, "k")
    restart(one)
    assert ask(one, "/api-keys", {"name": "deploy"}, "k").status_code == 201


def test_what_fails_after_a_change_may_be_repeated(nodes: list[FollowingApi], monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = nodes
    made = one.post("/accounts", {"username": "alice", "password": "battery staple"}, one.token())
    path = f"/accounts/{made.json['data']['account']['id']}/credentials"
    with monkeypatch.context() as patch:
        patch.setattr(one.engine.trail, "append_all", lambda _rows: 1 / 0)
        assert ask(one, path, {"ttl": 600}, "k").status_code == 500
    other.engine.catch_up()
    assert ask(other, path, {"ttl": 600}, "k").status_code == 201


def test_a_credential_that_was_minted_in_an_outage_is_minted_once_at_its_node() -> None:
    with Server() as server, server.database() as dsn, following(dsn) as (one,):
        made = one.post("/accounts", {"username": "alice", "password": "battery staple"}, one.token())
        path = f"/accounts/{made.json['data']['account']['id']}/credentials"
        server.stop()
        wait_until(lambda: not one.node.database.is_available, "the outage is known", 20)
        killed_before_the_response(one, path, {"ttl": 600}, "k")
        assert is_said_to_be_made(one, path, {"ttl": 600}, "k")
        assert len(one.engine.every("credentials")) == 1
        server.start()
