"""What a proxy says of addresses: whether balancers announce its clients, and which address it goes out from."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.support import PROXY, Api, error_of


@pytest.fixture
def headers(api: Api) -> dict[str, str]:
    return api.token()


def create(api: Api, headers: dict[str, str], **fields: Any) -> dict[str, Any]:
    made = api.post("/proxies", {**PROXY, **fields}, headers)
    assert made.status_code == 201, made.text
    proxy: dict[str, Any] = made.json["data"]["proxy"]
    return proxy


def test_announcements_are_off_until_they_are_wanted_and_can_be_turned_off(api: Api, headers: dict[str, str]) -> None:
    proxy = create(api, headers)
    path = f"/proxies/{proxy['id']}"
    assert proxy["accept_proxy_protocol"] is False
    for wanted in (True, False):
        shown = api.patch(path, {"accept_proxy_protocol": wanted}, headers).json["data"]["proxy"]
        assert shown["accept_proxy_protocol"] is wanted
        assert api.fleet.wish[proxy["id"]].accept_proxy_protocol is wanted
    assert "accept_proxy_protocol" not in api.get("/proxies", headers).json["data"]["proxies"][0]


def test_announcements_can_be_wanted_from_the_first(api: Api, headers: dict[str, str]) -> None:
    proxy = create(api, headers, accept_proxy_protocol=True)
    assert proxy["accept_proxy_protocol"] is True
    assert api.fleet.wish[proxy["id"]].accept_proxy_protocol


@pytest.mark.parametrize("given", [1, "true", None, ["192.0.2.0/24"]])
def test_announcements_are_wanted_or_not(api: Api, headers: dict[str, str], given: Any) -> None:
    refused = api.post("/proxies", {**PROXY, "accept_proxy_protocol": given}, headers)
    status, _code, details = error_of(refused)
    assert (status, details["field"]) == (400, "accept_proxy_protocol")
