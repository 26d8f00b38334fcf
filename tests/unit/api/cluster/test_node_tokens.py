"""Tokens by which machines join, in the API: for administrators, with an audit trail, and never with their secrets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from api.fleet import ThisNode
from config.model.nodes import tokens as node_tokens
from config.model.nodes.tokens import COLLECTION, NodeTokenRecord, TokenLine, with_port_of
from tests.kit.api_stage import Api
from tests.kit.tables import table


class Full(ThisNode):
    node_id: str | None = "nod_f"
    now = 1_800_000_000.0

    def clock(self) -> float:
        return self.now

    def invitation(self) -> tuple[str, str]:
        return "a" * 64, "10.0.0.7:7444"


class NodeApi(Api):
    node = full = Full()


@pytest.fixture
def api() -> Iterator[NodeApi]:
    with closing(made := NodeApi()):
        yield made


def made(api: Api, **fields: Any) -> tuple[dict[str, Any], TokenLine]:
    result = api.post("/nodes/tokens", fields, api.token())
    assert result.status_code == 201, result.text
    assert result.headers["Cache-Control"] == "no-store"
    data = result.json["data"]
    return data["token"], TokenLine.parse(data["line"])


def test_a_token_is_a_line_that_is_made_once_and_is_in_no_list_and_no_audit_trail(api: NodeApi) -> None:
    token, line = made(api, name="fra2", tags=["eu"], role="edge", ttl=600)
    assert (line.fingerprint, line.place, line.id) == ("a" * 64, ("10.0.0.7", 7444), token["id"])
    stored = NodeTokenRecord.model_validate(api.store.find(COLLECTION)[0].body)
    assert stored.is_secret(line.secret)
    assert stored.expires_at == Full.now + 600
    listed = api.get("/nodes/tokens", api.token()).json["data"]
    assert listed == {"tokens": [token], "total": 1}
    assert (token["name"], token["tags"], token["role"], token["used_by"]) == ("fra2", ["eu"], "edge", None)
    (entry,) = [each for each in api.get("/audit", api.token()).json["data"]["audit"] if "node_token" in each["action"]]
    assert (entry["action"], entry["actor"]["username"]) == ("node_token.created", "admin")
    for text in (json.dumps([listed, entry]), repr(line), repr(stored)):
        assert line.secret not in text
        assert stored.secret_hash not in text


def test_a_token_is_good_for_an_hour_by_default(api: NodeApi) -> None:
    token, _ = made(api)
    assert token["expires_at"] == "2027-01-15T09:00:00.000Z"


def test_a_revoked_token_is_gone(api: NodeApi) -> None:
    token, _ = made(api)
    headers = api.token()
    assert api.request("DELETE", f"/nodes/tokens/{token['id']}", headers).json["data"] == {
        "id": token["id"],
        "revoked": True,
    }
    assert api.request("DELETE", f"/nodes/tokens/{token['id']}", headers).status_code == 404
    entries = api.get("/audit", headers).json["data"]["audit"]
    assert "node_token.revoked" in {each["action"] for each in entries}


@table(
    "body, field",
    [
        ({"ttl": 59}, "ttl"),
        ({"ttl": node_tokens.LONGEST + 1}, "ttl"),
        ({"role": "master"}, "role"),
        ({"name": "a b"}, "name"),
        ({"name": ""}, "name"),
        ({"name": "ü"}, "name"),
        ({"tags": [""]}, "tags[0]"),
        ({"secret": "x"}, "secret"),
    ],
)
def test_what_can_not_be_is_refused(api: NodeApi, body: dict[str, Any], field: str) -> None:
    result = api.post("/nodes/tokens", body, api.token())
    assert result.status_code == 400
    assert result.json["error"]["details"]["field"] == field


def test_only_administrators_may(api: NodeApi) -> None:
    api.add_user("olga", role="operator")
    headers = api.token("olga")
    assert api.get("/nodes/tokens", headers).status_code == 403
    assert api.post("/nodes/tokens", {}, headers).status_code == 403
    assert api.request("DELETE", "/nodes/tokens/tok_0", headers).status_code == 403


def test_old_ones_make_room_and_there_is_a_most(api: NodeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.objects.nodes.token_operations.MAX_TOKENS", 2)
    first, _ = made(api, ttl=60)
    made(api)
    refused = api.post("/nodes/tokens", {}, api.token())
    assert (refused.status_code, "at most 2" in refused.text) == (400, True)
    monkeypatch.setattr(Full, "now", Full.now + node_tokens.LONGEST + 61)
    third, _ = made(api)
    ids = {each["id"] for each in api.get("/nodes/tokens", api.token()).json["data"]["tokens"]}
    assert first["id"] not in ids
    assert third["id"] in ids


def test_a_machine_alone_has_no_tokens() -> None:
    with closing(Api()) as alone:
        for found in (alone.get("/nodes/tokens", alone.token()), alone.post("/nodes/tokens", {}, alone.token())):
            assert (found.status_code, found.json["error"]["code"]) == (409, "NOT_A_FLEET")


@table(
    "address, listen, known",
    [
        ("10.0.0.7", "0.0.0.0:8443", "10.0.0.7:8443"),
        ("10.0.0.7", "0.0.0.0:7443", "10.0.0.7"),
        ("10.0.0.7:9", "0.0.0.0:8443", "10.0.0.7:9"),
        ("2001:db8::7", "[::]:8443", "[2001:db8::7]:8443"),
        ("[2001:db8::7]", "[::]:8443", "[2001:db8::7]:8443"),
        ("[2001:db8::7]:9", "[::]:8443", "[2001:db8::7]:9"),
        ("fra.example", "0.0.0.0:8443", "fra.example:8443"),
        ("fra.example", "", "fra.example"),
        ("", "0.0.0.0:8443", ""),
    ],
)
def test_an_address_without_a_port_has_that_at_which_the_node_listens(address: str, listen: str, known: str) -> None:
    assert with_port_of(address, listen) == known
