"""What is remembered of users and keys between requests: no more than is needed, and nothing that is no longer so."""

from __future__ import annotations

from typing import Any

import pytest

from api.security import users
from api.security.api_keys import LAST_USED_STEP, load
from api.security.last_used import LastUsed
from tests.kit.api_stage import PROXY, Api, error_of


def test_a_user_who_was_found_by_name_is_not_searched_for_again(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    found = users.by_name(api.store, "ADMIN")
    monkeypatch.setattr(users, "_searched", lambda *_: pytest.fail("searched"))
    assert users.by_name(api.store, "ADMIN") == found


def test_a_user_who_is_deleted_or_made_anew_is_not_the_one_that_was_found_before(api: Api) -> None:
    first = api.add_user("other")
    assert users.by_name(api.store, "other") == first
    api.store.delete("users", first.id)
    assert users.by_name(api.store, "other") is None
    second = api.add_user("other")
    assert users.by_name(api.store, "other") == second != first


def test_uses_are_written_now_and_then_and_those_of_revoked_keys_are_forgotten(api: Api) -> None:
    for _ in range(3):
        api.key()
    noted = LastUsed(api.store, "api_keys", LAST_USED_STEP)
    keys = [load(document) for document in api.store.find("api_keys")]
    for key in keys:
        for moment in (1e9, 1e9 + LAST_USED_STEP - 1):
            noted.touch(key.id, moment)
    assert api.store.last_used("api_keys") == {each.id: 1e9 for each in keys}
    for each in keys[:2]:
        api.store.delete("api_keys", each.id)
    another = load(api.store.put("api_keys", {**keys[2].model_dump(mode="json"), "id": "key_other"}))
    noted.touch(keys[2].id, 2e9)
    noted.touch(another.id, 2e9)
    assert noted._known == api.store.last_used("api_keys") == {keys[2].id: 2e9, another.id: 2e9}


def test_a_name_that_is_taken_is_quoted_as_it_was_written(api: Api) -> None:
    headers: dict[str, Any] = api.token()
    api.post("/proxies", {**PROXY, "name": "it's"}, headers)
    again = api.post("/proxies", {**PROXY, "name": "it's", "port": 3129}, headers)
    assert error_of(again)[2] == {"field": "name", "error": 'the name "it\'s" is in use'}
