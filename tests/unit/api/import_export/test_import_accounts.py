"""Plans and accounts of the fleet in a document: exported, imported, and all or nothing with everything else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from api.import_export import export as exports
from api.store import StoreWriteError
from config.passwords import check_password
from tests.kit.api_stage import Api, error_of
from tests.kit.tables import table
from tests.unit.api.importing import HEAD, SEALED, Importing

PROXIES = [
    {"name": "east", "port": 3128, "protocol": "http", "tags": ["eu"], "auth": {"enabled": True}},
    {"name": "west", "port": 3129, "protocol": "socks5", "tags": ["us"], "auth": {"enabled": True}},
]
PLANS = [
    {"name": "basic", "limits": {"connections": 5}, "quota": {"bytes": 1000, "period": "month"}},
    {"name": "gold", "self_service": {"password": True}, "disclose": False},
]
OFFICE = {"timezone": "Europe/Berlin", "windows": [{"days": ["mon"], "from": "08:00", "to": "18:00"}]}
ACCOUNTS = [
    {"username": "ada", "password": "that of ada", "proxies": {"names": ["east"]}, "plan": "basic", "schedule": OFFICE},
    {"username": "ada", "password": "of the other ada", "proxies": {"names": ["west"]}, "metadata": {"crm": "7"}},
    {"username": "job", "limits": {"connections": 0}, "allow_destinations": [], "plan": "gold"},
    {"username": "old", "password": "that of old", "expires_at": "2020-01-01T00:00:00Z", "enabled": False},
]
SECTIONS: dict[str, Any] = {"proxies": PROXIES, "plans": PLANS, "accounts": ACCOUNTS}


@pytest.fixture
def here(api: Api) -> Importing:
    return Importing(api)


@pytest.fixture
def there() -> Iterator[Importing]:
    """Another installation, empty."""
    made = Api()
    yield Importing(made)
    made.close()


def accounts(importing: Importing) -> dict[str, list[dict[str, Any]]]:
    """The stored bodies by user name, oldest first."""
    found: dict[str, list[dict[str, Any]]] = {}
    for each in importing.api.services.account_store.find("accounts"):
        found.setdefault(each.body["username"], []).append(each.body)
    return found


def summary(response: Any) -> tuple[int, int, int, int]:
    return tuple(response["summary"][name] for name in ("create", "update", "delete", "unchanged"))  # type: ignore[return-value]


def test_a_document_makes_plans_and_accounts_and_is_no_change_again(here: Importing) -> None:
    assert summary(here.apply(sections=SECTIONS)) == (8, 0, 0, 0)
    stored = accounts(here)
    ids = {each["name"]: each["id"] for each in here.api.get("/proxies", here.headers).json["data"]["proxies"]}
    assert [each["proxies"]["ids"] for each in stored["ada"]] == [[ids["east"]], [ids["west"]]]
    assert check_password("of the other ada", stored["ada"][1]["password_hash"])
    assert stored["job"][0]["limits"]["connections"] == 0
    assert stored["job"][0]["allow_destinations"] == []
    assert stored["job"][0]["proxies"]["all"]
    plans = {each.record.name: each for each in here.api.services.plans.all()}
    assert stored["job"][0]["plan"] == plans["gold"].record.id
    shown = here.api.get("/plans", here.headers).json["data"]["plans"]
    assert {each["name"]: each["accounts"] for each in shown} == {"basic": 1, "gold": 1}
    assert summary(here.apply(sections=SECTIONS)) == (0, 0, 0, 8)
    assert len(here.api.fleet.published("account.created")) == 4
    kinds = here.api.get("/audit", here.headers, query_string="action=account.created").json["data"]["audit"]
    assert len({each["request_id"] for each in kinds}) == 1
    assert len(kinds) == 4


def test_an_export_makes_the_same_elsewhere(here: Importing, there: Importing) -> None:
    here.apply(sections=SECTIONS)
    document = here.export("encrypted", **SEALED)
    assert "that of ada" not in str(document)
    assert "$2b$" not in str(document)
    response = there.post(document, **SEALED)
    assert response.status_code == 200, response.text
    assert {**there.export(), "users": []} == {**here.export(), "users": []}
    one, other = accounts(here), accounts(there)
    for name, found in one.items():
        assert [each["password_hash"] for each in found] == [each["password_hash"] for each in other[name]]
    assert there.post(document, **SEALED).json["data"]["changed"] is False


def test_an_export_without_secrets_keeps_passwords_and_is_refused_elsewhere(here: Importing, there: Importing) -> None:
    here.apply(sections=SECTIONS)
    before = accounts(here)
    document = here.export()
    assert here.post(document).json["data"]["changed"] is False
    assert accounts(here) == before
    plans, listed = document["plans"], document["accounts"]
    refused = there.post({**HEAD, "proxies": PROXIES, "plans": plans, "accounts": listed})
    fields = {each["field"] for each in error_of(refused)[2]["errors"]}
    assert fields == {"accounts[0].password", "accounts[1].password", "accounts[3].password"}
    assert accounts(there) == {}


def test_accounts_of_one_name_are_known_again_without_deleted_proxies_and_in_any_order(
    here: Importing,
) -> None:
    """The ids of a stored account are in the order in which they came; a document has names in alphabetical order."""
    of_both = {"username": "ada", "password": "that of both", "proxies": {"names": ["west", "east"]}}
    here.apply(proxies=PROXIES, accounts=[of_both])
    north = {**PROXIES[0], "name": "north", "port": 3130}
    here.apply(proxies=[north], accounts=[of_both, {**of_both, "proxies": {"names": ["north"]}}])
    assert here.post(here.export()).json["data"]["changed"] is False
    for each in here.api.get("/proxies", here.headers).json["data"]["proxies"]:
        assert here.api.request("DELETE", f"/api/v1/proxies/{each['id']}", here.headers).status_code == 200
        response = here.post(here.export())
        assert response.status_code == 200, response.text
        assert response.json["data"]["changed"] is False


def test_fields_that_are_left_out_stay_and_null_inherits(here: Importing) -> None:
    here.apply(sections=SECTIONS)
    change = {"username": "job", "tags": ["ci"], "limits": {"connections": None}, "plan": None}
    response = here.apply(accounts=[change])
    (changed,) = response["changes"]
    assert (changed["kind"], changed["name"], changed["action"]) == ("account", "job", "update")
    assert {each["field"] for each in changed["fields"]} == {"tags", "limits.connections", "plan"}
    stored = accounts(here)["job"][0]
    assert (stored["allow_destinations"], stored["limits"]["connections"], stored["plan"]) == ([], None, "")


def test_pruning_deletes_the_others(here: Importing) -> None:
    here.apply(sections=SECTIONS)
    refused = here.post({**HEAD, "plans": PLANS[:1]}, "prune=true")
    assert error_of(refused)[2]["field"] == "plans"
    response = here.apply("prune=true", plans=PLANS[:1], accounts=ACCOUNTS[:1])
    assert summary(response) == (0, 0, 4, 2)
    assert [len(found) for found in accounts(here).values()] == [1]
    assert len(here.api.fleet.published("account.deleted")) == 3


@table(
    ("field", "sections"),
    [
        ("accounts[0].plan", {"accounts": [{"username": "x", "plan": "none"}]}),
        ("accounts[0].proxies.names[0]", {"accounts": [{"username": "x", "proxies": {"names": ["none"]}}]}),
        ("accounts[0].proxies.ids", {"accounts": [{"username": "x", "proxies": {"ids": ["prx_1"]}}]}),
        ("accounts[1].username", {"accounts": [{"username": "x"}, {"username": "x"}]}),
        ("plans[1].name", {"plans": [{"name": "x"}, {"name": "x"}]}),
        ("accounts[0].username", {"proxies": [{**PROXIES[0], "accounts": [{"username": "x", "password": "staples!"}]}],
                                  "accounts": [{"username": "x"}]}),
        ("accounts[0].policy", {"accounts": [{"username": "x", "policy": "strict"}]}),
    ],
)  # fmt: skip
def test_a_wrong_entry_is_named_and_nothing_is_stored(here: Importing, field: str, sections: dict[str, Any]) -> None:
    before = here.content()
    response = here.post({**HEAD, "settings": {"logging": {"level": "debug"}}, **sections})
    assert error_of(response)[2]["field"] == field, response.text
    assert here.content() == before
    assert here.api.services.account_store.revision == 0


def test_a_clash_with_what_is_stored_is_named(here: Importing) -> None:
    here.apply(sections=SECTIONS)
    both = {**PROXIES[0], "tags": ["eu", "us"]}
    here.apply(accounts=[{"username": "eve", "proxies": {"tags": ["eu"]}}])
    twin = {"username": "eve", "proxies": {"tags": ["us"]}}
    eves = [{"username": "eve", "proxies": {"tags": ["eu"]}}, twin]
    here.apply(accounts=eves)
    refused = here.post({**HEAD, "proxies": [both]})
    assert error_of(refused)[2]["field"] == "proxies[0].tags"


def test_too_many_accounts_are_not_exported_by_accident(here: Importing, monkeypatch: pytest.MonkeyPatch) -> None:
    here.apply(sections=SECTIONS)
    monkeypatch.setattr(exports, "MOST_ACCOUNTS", 3)
    refused = here.api.get("/config/export", here.headers)
    assert error_of(refused)[2]["field"] == "accounts"
    omitted = here.api.get("/config/export", here.headers, query_string="accounts=omitted")
    assert "accounts" not in omitted.json["data"]
    assert len(omitted.json["data"]["plans"]) == 2


def test_the_etag_covers_accounts(here: Importing) -> None:
    tags = []
    for sections in (SECTIONS, {"accounts": [{"username": "job", "tags": ["x"]}]}, {"plans": [{"name": "new"}]}):
        here.apply(sections=sections)
        tags.append(here.api.get("/config/export", here.headers).headers["ETag"])
    assert len(set(tags)) == 3
    stale = here.post({**HEAD, "plans": []}, If_Match=tags[0])
    assert stale.status_code == 412


# --- all or nothing ---


def test_a_refused_configuration_leaves_the_accounts(here: Importing, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_given: Any) -> Any:
        raise StoreWriteError("the disk is full")

    with monkeypatch.context() as broken:
        broken.setattr("api.import_export.imports.commit_and_revoke", full)
        assert here.post({**HEAD, **SECTIONS}).status_code == 500
    assert here.api.services.account_store.revision == 0
    here.api.start()
    assert accounts(here) == {}
    assert summary(here.apply(sections=SECTIONS)) == (8, 0, 0, 0)
