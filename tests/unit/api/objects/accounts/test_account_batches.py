"""Many accounts in one change: all of them or none, and errors that name the entry."""

from __future__ import annotations

from typing import Any

import pytest

from api.objects.accounts import account_batches
from config.model.fleet_accounts import BATCH_MAX
from config.passwords import check_password, hash_password
from tests.kit.api_stage import Api, error_of


def batch(api: Api, body: dict[str, Any], path: str = "/accounts/batch") -> dict[str, Any]:
    response = api.post(path, body, api.token())
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json["data"]
    return found


def problems(api: Api, body: dict[str, Any], path: str = "/accounts/batch") -> dict[str, str]:
    """Field and error of a refused batch, which changed nothing."""
    before = api.services.account_store.revision
    status, _, details = error_of(api.post(path, body, api.token()))
    assert status == 400, details
    assert api.services.account_store.revision == before
    found = details.get("errors", [details])
    return {str(each["field"]): each["error"] for each in found}


def names(api: Api) -> set[str]:
    return {each.body["username"] for each in api.services.account_store.find("accounts")}


def test_accounts_are_created_changed_and_deleted_in_one_commit(api: Api) -> None:
    made = batch(api, {"create": [{"username": "a", "password": "secret a"}, {"username": "b"}, {"username": "c"}]})
    assert [each["username"] for each in made["created"]] == ["a", "b", "c"]
    a, b, c = (each["id"] for each in made["created"])
    revision = api.services.account_store.revision
    data = batch(
        api,
        {
            "create": [{"username": "c"}],
            "update": [{"id": a, "enabled": False}, {"id": b, "username": "d"}],
            "delete": [c],
        },
    )
    assert data["count"] == {"created": 1, "updated": 2, "deleted": 1}
    assert data["deleted"] == [c]
    assert names(api) == {"a", "c", "d"}
    assert api.services.account_store.revision == revision + 2
    document = api.services.account_store.get("accounts", a)
    assert document is not None
    assert not document.body["enabled"]
    assert check_password("secret a", document.body["password_hash"])
    assert len(api.fleet.published("account.created")) == 4
    assert len(api.fleet.published("account.deleted")) == 1
    entries = api.get("/audit?action=account.created", api.token()).json["data"]["audit"]
    assert len(entries) == 4


def test_one_wrong_entry_changes_nothing_and_all_wrong_ones_are_named(api: Api) -> None:
    (a,) = batch(api, {"create": [{"username": "a"}]})["created"]
    good = [{"username": f"u{number}"} for number in range(3)]
    assert problems(
        api, {"create": [*good, {"username": "x:y"}, {"username": "z", "limits": {"connections": -1}}]}
    ).keys() == {
        "create[3].username",
        "create[4].limits.connections",
    }
    wrong = {
        "create": [*good, {"username": "v", "plan": "none"}, {"username": "w", "expires_at": "2020-01-01T00:00:00Z"}],
        "update": [{"id": "acc_nothing", "enabled": False}, {"id": a["id"], "plan": "none"}],
        "delete": ["acc_nothing_either"],
    }
    assert problems(api, wrong).keys() == {
        "create[3].plan",
        "create[4].expires_at",
        "update[0].id",
        "update[1].plan",
        "delete[0]",
    }
    assert names(api) == {"a"}


def test_names_clash_with_stored_ones_and_with_each_other(api: Api) -> None:
    (a,) = batch(api, {"create": [{"username": "a"}]})["created"]
    found = problems(api, {"create": [{"username": "b"}, {"username": "a"}]})
    assert a["id"] in found["create[1].username"]
    assert problems(api, {"create": [{"username": "b"}, {"username": "b"}]}).keys() == {"create[1].username"}
    batch(api, {"create": [{"username": "a"}], "delete": [a["id"]]})  # the name is free in this very change


def test_an_account_has_one_change(api: Api) -> None:
    (a,) = batch(api, {"create": [{"username": "a"}]})["created"]
    assert problems(api, {"update": [{"id": a["id"]}], "delete": [a["id"]]}) == {"delete[0]": "is there twice"}
    assert problems(api, {"update": [{"id": a["id"]}, {"id": a["id"]}]}) == {"update[1].id": "is there twice"}


def test_a_batch_has_a_thousand_entries_at_most(api: Api) -> None:
    most = [{"username": f"u{number}"} for number in range(BATCH_MAX + 1)]
    assert "create" in problems(api, {"create": most})
    assert batch(api, {"create": most[:-1]})["count"]["created"] == BATCH_MAX
    assert api.services.account_store.count("accounts") == BATCH_MAX


def test_to_delete_needs_the_permission_to_delete(api: Api) -> None:
    (a,) = batch(api, {"create": [{"username": "a"}]})["created"]
    key = api.key(permissions=["proxy.write"])
    assert api.post("/accounts/batch", {"create": [{"username": "b"}]}, key).status_code == 200
    refused = error_of(api.post("/accounts/batch", {"delete": [a["id"]]}, key))
    assert refused == (403, "INSUFFICIENT_PERMISSIONS", {"required_permission": "proxy.delete"})


def test_an_import_checks_without_changing_and_takes_more_but_as_hashes(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed = hash_password("correct horse")
    body = {"create": [{"username": f"u{number}", "password_hash": hashed} for number in range(BATCH_MAX + 1)]}
    checked = batch(api, body, "/accounts/import?dry_run=true")
    assert (checked["count"]["created"], checked["created"], names(api)) == (BATCH_MAX + 1, [], set())
    assert batch(api, body, "/accounts/import")["count"]["created"] == BATCH_MAX + 1
    assert problems(api, {"create": [{"username": "u0"}]}, "/accounts/import?dry_run=true").keys() == {
        "create[0].username"
    }
    monkeypatch.setattr("api.objects.accounts.account_operations.BATCH_MAX", 1)
    passwords = [{"username": f"p{number}", "password": f"password of {number}"} for number in range(2)]
    assert "password_hash" in str(problems(api, {"create": passwords}, "/accounts/import"))


def test_no_more_errors_are_named_than_people_read(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(account_batches, "ERRORS_MAX", 3)
    wrong = [{"username": f"u{number}", "plan": "none"} for number in range(9)]
    assert problems(api, {"create": wrong}).keys() == {f"create[{number}].plan" for number in range(3)}


def test_tags_of_accounts_are_added_and_removed_and_others_stay(api: Api) -> None:
    made = batch(api, {"create": [{"username": name, "tags": ["old", "kept"]} for name in ("a", "b")]})["created"]
    changes = [{"id": each["id"], "add_tags": ["new"], "remove_tags": ["old"]} for each in made]
    assert batch(api, {"update": changes})["count"]["updated"] == 2
    stored = [each.body["tags"] for each in api.services.account_store.find("accounts")]
    assert stored == [["kept", "new"]] * 2
    assert batch(api, {"update": changes})["count"]["updated"] == 0
    both = {"id": made[0]["id"], "tags": ["x"], "add_tags": ["y"]}
    assert problems(api, {"update": [both]}).keys() == {"update[0].tags"}
