"""What a proxy says of addresses: whether balancers announce its clients, and which address it goes out from."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit.api_stage import PROXY, Api, error_of


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
        view = api.patch(path, {"accept_proxy_protocol": wanted}, headers).json["data"]["proxy"]
        assert view["accept_proxy_protocol"] is wanted
        assert api.fleet.desired[proxy["id"]].accept_proxy_protocol is wanted
    assert "accept_proxy_protocol" not in api.get("/proxies", headers).json["data"]["proxies"][0]


def test_announcements_can_be_wanted_from_the_first(api: Api, headers: dict[str, str]) -> None:
    proxy = create(api, headers, accept_proxy_protocol=True)
    assert proxy["accept_proxy_protocol"] is True
    assert api.fleet.desired[proxy["id"]].accept_proxy_protocol


@pytest.mark.parametrize("given", [1, "true", None, ["192.0.2.0/24"]])
def test_announcements_are_wanted_or_not(api: Api, headers: dict[str, str], given: Any) -> None:
    refused = api.post("/proxies", {**PROXY, "accept_proxy_protocol": given}, headers)
    status, _code, details = error_of(refused)
    assert (status, details["field"]) == (400, "accept_proxy_protocol")


@pytest.mark.parametrize(
    ("given", "kept"), [("127.0.0.9", "127.0.0.9"), ("::ffff:127.0.0.9", "127.0.0.9"), ("0:0::1", "::1"), ("", "")]
)
def test_a_source_address_of_this_machine_is_kept_in_its_usual_form(
    api: Api, headers: dict[str, str], given: str, kept: str
) -> None:
    proxy = create(api, headers, bind_address=given)
    assert proxy["bind_address"] == kept
    assert api.fleet.desired[proxy["id"]].bind_address == kept


def test_an_empty_source_address_takes_the_one_that_there_was_away(api: Api, headers: dict[str, str]) -> None:
    proxy = create(api, headers, bind_address="127.0.0.9")
    path = f"/proxies/{proxy['id']}"
    assert api.patch(path, {"tags": ["x"]}, headers).json["data"]["proxy"]["bind_address"] == "127.0.0.9"
    assert api.patch(path, {"bind_address": ""}, headers).json["data"]["proxy"]["bind_address"] == ""
    assert api.fleet.desired[proxy["id"]].bind_address == ""


@pytest.mark.parametrize(
    "given",
    [
        *("203.0.113.9", "2001:db8::9", "0.0.0.0", "::", "224.0.0.1", "ff02::1", "255.255.255.255", "127.1"),
        *("localhost", "127.0.0.1:80", "fe80::1%lo", "127.0.0.0/8", " 127.0.0.1", None, 7),
    ],
)
def test_what_is_no_address_of_this_machine_is_refused(api: Api, headers: dict[str, str], given: Any) -> None:
    refused = api.post("/proxies", {**PROXY, "bind_address": given}, headers)
    status, _code, details = error_of(refused)
    assert (status, details["field"]) == (400, "bind_address")
    assert api.store.find("proxies") == []
