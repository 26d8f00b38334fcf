"""`headers` of a proxy: which header fields it adds."""

from __future__ import annotations

from typing import Any

import pytest

from api.import_export.minimal import minimal
from tests.kit.api_stage import PROXY, Api, error_of
from tests.unit.api.audit_reader import rows
from tests.unit.api.importing import Importing


@pytest.fixture
def headers(api: Api) -> dict[str, str]:
    return api.token()


@pytest.mark.parametrize("given", [{}, {"headers": {}}])
def test_a_proxy_has_its_pseudonym_in_via_unless_said(api: Api, headers: dict[str, str], given: dict[str, Any]) -> None:
    proxy = api.post("/proxies", {**PROXY, **given}, headers).json["data"]["proxy"]
    assert (proxy["headers"], api.fleet.desired[proxy["id"]].via) == ({"via": "pseudonym"}, "pseudonym")


@pytest.mark.parametrize("via", ["pseudonym", "on", "off"])
def test_via_is_stored_sent_to_the_process_and_survives_other_changes(
    api: Api, headers: dict[str, str], via: str
) -> None:
    proxy = api.post("/proxies", {**PROXY, "headers": {"via": via}}, headers).json["data"]["proxy"]
    path = f"/proxies/{proxy['id']}"
    assert proxy["headers"] == {"via": via}
    for body in ({"tags": ["x"]}, {"headers": {}}):
        assert api.patch(path, body, headers).json["data"]["proxy"]["headers"] == {"via": via}
    assert api.fleet.desired[proxy["id"]].via == via
    assert api.patch(path, {"headers": {"via": "on"}}, headers).json["data"]["proxy"]["headers"] == {"via": "on"}
    assert api.fleet.desired[proxy["id"]].via == "on"
    assert api.get(path, headers).json["data"]["proxy"]["headers"] == {"via": "on"}


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"via": "maybe"}, "headers.via"),
        ({"via": False}, "headers.via"),
        ({"via": None}, "headers.via"),
        ({"via": "OFF"}, "headers.via"),
        ({"forwarded": "off"}, "headers.forwarded"),
        ({"via": "off", "set": {}}, "headers.set"),
        ("off", "headers"),
        (None, "headers"),
    ],
)
def test_other_words_and_other_keys_are_refused_by_name(
    api: Api, headers: dict[str, str], given: Any, field: str
) -> None:
    status, _code, details = error_of(api.post("/proxies", {**PROXY, "headers": given}, headers))
    assert (status, details["field"]) == (400, field)
    assert api.store.find("proxies") == []


def test_a_wrong_word_is_400_with_the_allowed_ones(api: Api, headers: dict[str, str]) -> None:
    response = api.post("/proxies", {**PROXY, "headers": {"via": "maybe"}}, headers)
    assert "must be one of pseudonym, on, off" in response.text


def test_the_audit_trail_shows_what_via_was_and_is(api: Api, headers: dict[str, str]) -> None:
    proxy = api.post("/proxies", PROXY, headers).json["data"]["proxy"]
    api.patch(f"/proxies/{proxy['id']}", {"headers": {"via": "off"}}, headers)
    (row,) = rows(api, action="proxy.updated")
    assert (row["before"], row["after"]) == ({"headers": {"via": "pseudonym"}}, {"headers": {"via": "off"}})


def test_an_import_says_what_of_via_differs_and_an_entry_without_it_keeps_it(api: Api) -> None:
    one = Importing(api)
    quiet = {**PROXY, "headers": {"via": "off"}}
    one.apply(proxies=[quiet])
    assert one.export()["proxies"][0]["headers"] == {"via": "off"}
    (change,) = one.apply("dry_run=true", proxies=[{**quiet, "headers": {"via": "on"}}])["changes"]
    assert change["fields"] == [{"field": "headers.via", "before": "off", "after": "on"}]
    assert one.apply(proxies=[PROXY])["summary"]["unchanged"] == 1


@pytest.mark.parametrize(("via", "exported"), [("pseudonym", None), ("on", {"via": "on"}), ("off", {"via": "off"})])
def test_a_minimal_export_has_via_only_where_it_is_not_as_by_default(api: Api, via: str, exported: Any) -> None:
    one = Importing(api)
    one.apply(proxies=[{**PROXY, "headers": {"via": via}}])
    assert minimal(one.export())["proxies"][0].get("headers") == exported
