"""Accounts have passwords by the rule of users, by whatever way they come, unless the operator permits any."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from falcon.testing import Result

from api.api_settings import ApiSettings
from config.passwords import hash_password
from config.settings.settings import AccountSettings
from config.weak_passwords import weakness_of_account
from tests.kit.api_stage import QUIET, Api, error_of
from tests.kit.tables import table
from tests.unit.api.creating import create
from tests.unit.api.importing import HEAD, Importing

GOOD = "battery staples"


@table("password", ["1", "seven77", "password", "alice-of-berlin", "XXXXXXXXX"])
def test_what_users_may_not_have_is_weak(password: str) -> None:
    assert weakness_of_account(password, "Alice-of-Berlin", None, "a hash") is not None
    assert weakness_of_account(password, "Alice-of-Berlin", "a hash", "a hash") is None, "it has it already"
    assert weakness_of_account(GOOD, "alice", None, "a hash") is None


def _create(api: Api, password: str) -> Result:
    return api.post("/accounts", {"username": "bob", "password": password}, api.token())


def _update(api: Api, password: str) -> Result:
    made = api.post("/accounts", {"username": "bob", "password": GOOD}, api.token()).json["data"]["account"]
    return api.patch(f"/accounts/{made['id']}", {"password": password}, api.token())


def _batch(api: Api, password: str) -> Result:
    return api.post("/accounts/batch", {"create": [{"username": "bob", "password": password}]}, api.token())


def _of_one_proxy(api: Api, password: str) -> Result:
    proxy = create(api, api.token())
    return api.post(f"/proxies/{proxy['id']}/accounts", {"username": "bob", "password": password}, api.token())


def _changed_at_one_proxy(api: Api, password: str) -> Result:
    assert _of_one_proxy(api, GOOD).status_code == 201
    (proxy,) = api.get("/proxies", api.token()).json["data"]["proxies"]
    return api.patch(f"/proxies/{proxy['id']}/accounts/bob", {"password": password}, api.token())


def _with_a_new_proxy(api: Api, password: str) -> Result:
    body = {"name": "office", "port": 3128, "protocol": "http", "accounts": [{"username": "bob", "password": password}]}
    return api.post("/proxies", body, api.token())


def _with_a_proxy(api: Api, password: str) -> Result:
    proxy = create(api, api.token(), accounts=[{"username": "ann", "password": GOOD}])
    accounts = [{"username": "ann"}, {"username": "bob", "password": password}]
    return api.patch(f"/proxies/{proxy['id']}", {"accounts": accounts}, api.token())


def _document_with_a_proxy(api: Api, password: str) -> Result:
    accounts = [{"username": "bob", "password": password}]
    proxy = {"name": "office", "port": 3128, "protocol": "http", "accounts": accounts}
    return Importing(api).post({**HEAD, "proxies": [proxy]})


def _document(api: Api, password: str) -> Result:
    return Importing(api).post({**HEAD, "accounts": [{"username": "bob", "password": password}]})


def _holder(api: Api, password: str) -> Result:
    api.services.self_service.enabled = lambda: True
    api.post("/plans", {"name": "own", "self_service": {"password": True}}, api.token())
    api.post("/accounts", {"username": "bob", "password": GOOD, "plan": "own"}, api.token())
    signed_in = api.post("/me/login", {"username": "bob", "password": GOOD}).json["data"]["access_token"]
    headers = {"Authorization": f"Bearer {signed_in}"}
    return api.patch("/me", {"password": password, "current_password": GOOD}, headers)


WAYS: dict[str, tuple[Callable[[Api, str], Result], str]] = {
    "create": (_create, "password"),
    "update": (_update, "password"),
    "batch": (_batch, "create[0].password"),
    "an account of one proxy": (_of_one_proxy, "password"),
    "its change": (_changed_at_one_proxy, "password"),
    "a new proxy": (_with_a_new_proxy, "accounts[0].password"),
    "a change of a proxy": (_with_a_proxy, "accounts[1].password"),
    "import of a proxy": (_document_with_a_proxy, "proxies[0].accounts[0].password"),
    "import": (_document, "accounts[0].password"),
    "the holder": (_holder, "password"),
}


@pytest.mark.parametrize(("way", "field"), WAYS.values(), ids=WAYS)
def test_every_way_refuses_a_weak_password(api: Api, way: Callable[[Api, str], Result], field: str) -> None:
    status, _, details = error_of(way(api, "1"))
    assert (status, details["field"]) == (400, field)
    assert "must have 8 characters at least" in details["error"]


@pytest.mark.parametrize("way", [_create, _of_one_proxy, _document, _with_a_proxy, _document_with_a_proxy])
def test_the_setting_permits_any(api: Api, way: Callable[[Api, str], Result]) -> None:
    api.services.apply(ApiSettings(security=QUIET, accounts=AccountSettings(weak_passwords=True)))
    assert way(api, "1").status_code in (200, 201)


def test_a_hash_is_not_judged(api: Api) -> None:
    body = {"username": "bob", "password_hash": hash_password("1", cost=4)}
    assert api.post("/accounts", body, api.token()).status_code == 201
