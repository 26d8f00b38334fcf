"""What ends with a user ends in one step with the change that ends it, whatever happens at that moment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from api.operator.offline import reset_password
from api.security.users import User
from api.store import FleetStore, StoreWriteError, Write
from tests.kit.api_stage import PASSWORD, Api

CHANGES: dict[str, Callable[[Api, User], Any]] = {
    "another password": lambda api, user: api.patch(f"/users/{user.id}", {"password": "another one"}, api.token()),
    "disabled": lambda api, user: api.patch(f"/users/{user.id}", {"status": "disabled"}, api.token()),
    "deleted": lambda api, user: api.request("DELETE", f"/users/{user.id}", api.token()),
    "imported with another password": lambda api, user: imported(api, {"username": "ada", "password": "another one"}),
    "imported as disabled": lambda api, user: imported(api, {"username": "ada", "status": "disabled"}),
}


def imported(api: Api, entry: dict[str, Any]) -> Any:
    return api.post("/config/import", {"kind": "proxyfleet.config", "version": 1, "users": [entry]}, api.token())


def families(store: FleetStore, user: User) -> list[str]:
    return [each.id for each in store.find("refresh_families", user_id=user.id)]


def is_of_users(writes: list[Write]) -> bool:
    """Whether this is the change; the other one is the sign-in of who makes it."""
    return any(each.collection == "users" for each in writes)


@pytest.fixture
def ada(api: Api) -> User:
    user = api.add_user("ada")
    for _ in range(3):
        api.token("ada")
    return user


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_the_user_and_their_sign_ins_are_changed_by_one_step_of_the_store(
    api: Api, ada: User, monkeypatch: pytest.MonkeyPatch, change: Callable[[Api, User], Any]
) -> None:
    made: list[list[tuple[str, str]]] = []
    commit = api.engine.documents.take

    def noted(writes: list[Write]) -> int:
        if is_of_users(writes):
            made.append([(each.collection, each.id) for each in writes])
        return commit(writes)

    monkeypatch.setattr(api.engine.documents, "take", noted)
    before = families(api.store, ada)
    assert len(before) == 3
    response = change(api, ada)
    assert response.status_code == 200, response.text
    assert families(api.store, ada) == []
    assert sorted(made[0]) == sorted([("users", ada.id), *(("refresh_families", each) for each in before)])


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_disk_that_refuses_leaves_the_user_and_their_sign_ins_as_they_were(
    api: Api, ada: User, monkeypatch: pytest.MonkeyPatch, change: Callable[[Api, User], Any]
) -> None:
    key = api.key("ada")
    stored, before = api.store.get("users", ada.id), families(api.store, ada)
    token = api.token("ada")

    commit = api.engine.documents.take

    def refuse(writes: list[Write]) -> int:
        if is_of_users(writes):
            raise StoreWriteError("the disk is full")
        return commit(writes)

    with monkeypatch.context() as full:
        full.setattr(api.engine.documents, "take", refuse)
        assert change(api, ada).status_code == 500
    assert api.store.get("users", ada.id) == stored
    assert set(before) <= set(families(api.store, ada))
    assert [api.get("/auth/test", each).status_code for each in (key, token)] == [200, 200]
    assert (
        api.fleet.published("user.updated")
        == api.fleet.published("user.deleted")
        == api.fleet.published("api_key.revoked")
        == []
    )


def test_a_password_that_is_reset_offline_ends_all_sign_ins_in_the_same_step(api: Api, ada: User) -> None:
    revision = api.store.revision
    api.end()
    reset_password(api.data, "ada", "another one")
    api.open()
    assert families(api.store, ada) == []
    assert api.store.revision == revision + 1
    api.start()
    assert api.post("/auth/login", {"username": "ada", "password": PASSWORD}).status_code == 401
