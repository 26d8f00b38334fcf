"""A change that changes nothing leaves a resource as it is: its ETag, its time, no event, no row in the audit trail."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit.api_stage import PASSWORD, Api, error_of, revision_of
from tests.unit.api.creating import create

ACCOUNT = {"username": "ada", "password": PASSWORD, "quota": {"bytes": 1000, "period": "day"}}
UPSTREAM = {"protocol": "http", "host": "upstream.test", "port": 3128, "auth": {"username": "p", "password": "q"}}
CREATED = {
    "auth": {"enabled": True, "username": "u", "password": PASSWORD},
    "limits": {"requests_per_minute": 5},
    "tags": ["a"],
    "accounts": [ACCOUNT],
    "upstreams": [
        {"protocol": "http", "host": "upstream.test", "port": 3128, "auth": {"username": "p", "password": "q"}}
    ],
}
HOOK = {"name": "hook", "url": "https://hook.test/", "events": ["proxy.*"], "headers": {"X-A": "b"}}


def unchanged(api: Api, path: str, body: dict[str, Any], method: str = "PATCH") -> None:
    """The response is that of a change."""
    headers = api.token()
    before = api.get(path, headers)
    rows, events = api.get("/audit", headers).json["data"]["total"], len(api.fleet.events)
    response = api.request(method, path, {**headers, "If-Match": before.headers["ETag"]}, json=body)
    assert response.status_code == 200, response.text
    assert revision_of(response) == revision_of(before)
    assert revision_of(api.get(path, headers)) == revision_of(before)
    assert api.get("/audit", headers).json["data"]["total"] == rows
    assert len(api.fleet.events) == events
    (kind,) = {"proxy", "user", "webhook"} & before.json["data"].keys()
    assert response.json["data"][kind]["updated_at"] == before.json["data"][kind]["updated_at"]


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
@pytest.mark.parametrize("body", [{}, CREATED, {"settings": {}}, {"auth": {"password": PASSWORD}}])
def test_a_proxy_that_is_given_what_it_has(api: Api, body: dict[str, Any], method: str) -> None:
    proxy = create(api, api.token(), **CREATED)
    unchanged(api, f"/proxies/{proxy['id']}", body, method)


def test_the_supervisor_is_notified_again_since_it_may_have_missed_the_change(api: Api) -> None:
    proxy = create(api, api.token())
    spec = api.fleet.desired.pop(proxy["id"])
    unchanged(api, f"/proxies/{proxy['id']}", {})
    assert api.fleet.desired[proxy["id"]] == spec


def test_a_user(api: Api) -> None:
    user = api.add_user("ada", role="operator", email="ada@example.com")
    same = {"email": "ada@example.com", "role": "operator", "status": "active"}
    for body in ({}, same):
        unchanged(api, f"/users/{user.id}", body)


def test_a_users_password_is_a_change_even_if_it_is_the_same_since_it_ends_their_tokens(api: Api) -> None:
    user = api.add_user("ada")
    token = api.token("ada")
    before = revision_of(api.get(f"/users/{user.id}", api.token()))
    response = api.patch(f"/users/{user.id}", {"password": PASSWORD}, api.token())
    assert revision_of(response) != before
    assert error_of(api.get("/auth/test", token))[0] == 401


@pytest.mark.parametrize("body", [{}, HOOK, {"enabled": True}])
def test_a_webhook(api: Api, body: dict[str, Any]) -> None:
    made = api.post("/webhooks", HOOK, api.token()).json["data"]["webhook"]
    unchanged(api, f"/webhooks/{made['id']}", body)


def test_an_account_leaves_its_proxy_as_it_is(api: Api) -> None:
    headers = api.token()
    proxy = create(api, headers, **CREATED)
    before = revision_of(api.get(f"/proxies/{proxy['id']}", headers))
    for body in ({}, {"password": PASSWORD}, {"quota": ACCOUNT["quota"]}):
        assert api.patch(f"/proxies/{proxy['id']}/accounts/ada", body, headers).status_code == 200
    assert revision_of(api.get(f"/proxies/{proxy['id']}", headers)) == before


def test_what_does_change_something_is_a_change_whatever_else_stays(api: Api) -> None:
    headers = api.token()
    proxy = create(api, headers, **CREATED)
    before = api.get(f"/proxies/{proxy['id']}", headers)
    response = api.patch(f"/proxies/{proxy['id']}", {**CREATED, "tags": ["b"]}, headers)
    assert revision_of(response) != revision_of(before)
    assert len(api.fleet.published("proxy.updated")) == 1
